"""What a destination wants of connections, and what one gives that the other instance has made.

A connection that this instance makes is made as the destination's Transport says. Over one that was
accepted, the destination is served only if that is as good: encrypted if the Transport is, and with
VerifyClient by a certificate that an authority of the Transport has signed.

Source: AMPS User Guide, Verifying Connection Identity using Mutual TLS, says of a destination what
has to be so; over which connections it may be served, measured by that, is ours.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING

from server.transports.tls import TlsError, make_client_context

if TYPE_CHECKING:
    from config_schema.spec import OutgoingTransportSpec, TlsSpec


def shortfall(
    accepted: ssl.SSLContext | None, transports: Sequence[OutgoingTransportSpec]
) -> str | None:
    """Why a destination must not be served over a connection; None if it may be.

    Args:
        accepted: what the connection was accepted with; None if it is not encrypted.
        transports: those of the destination, of which one has to be satisfied.
    """
    reason: str | None = None
    for transport in transports:
        reason = None if transport.tls is None else _lack(accepted, transport.tls)
        if reason is None:
            return None
    return reason


def _lack(accepted: ssl.SSLContext | None, wanted: TlsSpec) -> str | None:
    if accepted is None:
        return "it is not encrypted, and a connection to the destination would be"
    if not wanted.verify_client:
        return None
    if accepted.verify_mode is not ssl.CERT_REQUIRED:
        return "no certificate was asked for, and that of the destination has to be verified"
    try:
        trusted = make_client_context(wanted)
    except TlsError as error:
        return f"the certificate of the destination cannot be verified: {error}"
    if not _authorities(accepted) <= _authorities(trusted) or _has_others(accepted):
        return "certificates were accepted of authorities that the destination does not trust"
    return None


def _authorities(context: ssl.SSLContext) -> set[bytes]:
    return set(context.get_ca_certs(binary_form=True))


def _has_others(context: ssl.SSLContext) -> bool:
    """Whether it trusts certificates that are no authority's, which it does not tell."""
    found = context.cert_store_stats()
    return found["x509"] > found["x509_ca"]
