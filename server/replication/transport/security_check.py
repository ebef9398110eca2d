"""Compares the security of an accepted connection with the requirements of a destination.

A connection that this instance makes is secured as configured in the destination's Transport. Over
an accepted one, the destination is served only if that is as secure: encrypted if the Transport is,
and with VerifyClient by a certificate that an authority of the Transport has signed.

Source: AMPS User Guide, Verifying Connection Identity using Mutual TLS, for the requirements of a
destination. To apply them to the connections over which it may be served is our decision.
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
    """Return why a destination must not be served over a connection; None if it may be.

    Args:
        accepted: the TLS context of the accepted connection; None if it is not encrypted.
        transports: the Transports of the destination; the connection must satisfy one of them.
    """
    reason: str | None = None
    for transport in transports:
        reason = None if transport.tls is None else _missing_security(accepted, transport.tls)
        if reason is None:
            return None
    return reason


def _missing_security(accepted: ssl.SSLContext | None, required: TlsSpec) -> str | None:
    if accepted is None:
        return "it is not encrypted, and a connection to the destination would be"
    if not required.verify_client:
        return None
    if accepted.verify_mode is not ssl.CERT_REQUIRED:
        return "no certificate was asked for, and that of the destination has to be verified"
    try:
        trusted = make_client_context(required)
    except TlsError as error:
        return f"the certificate of the destination cannot be verified: {error}"
    if not _authorities(accepted) <= _authorities(trusted) or _has_others(accepted):
        return "certificates were accepted of authorities that the destination does not trust"
    return None


def _authorities(context: ssl.SSLContext) -> set[bytes]:
    return set(context.get_ca_certs(binary_form=True))


def _has_others(context: ssl.SSLContext) -> bool:
    """Return whether the context trusts non-CA certificates, which `get_ca_certs` leaves out."""
    stats = context.cert_store_stats()
    return stats["x509"] > stats["x509_ca"]
