"""TLS for transports and destinations: from their configuration to what encrypts connections.

Certificates are read into a context of their own step, `load_certificates`, so that they can be
read again while connections are open: a context hands the new ones to connections that come later.
Source: AMPS User Guide, TLS/SSL Transports.
"""

from __future__ import annotations

import ssl
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from config_schema.spec import TlsSpec

_VERSIONS: Final = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
"""The versions that OpenSSL still has, oldest first; SSLv2 and SSLv3 are gone."""

_EXCLUDING: Final = {
    "TLSv1": ssl.OP_NO_TLSv1,
    "TLSv1.1": ssl.OP_NO_TLSv1_1,
    "TLSv1.2": ssl.OP_NO_TLSv1_2,
    "TLSv1.3": ssl.OP_NO_TLSv1_3,
}


class TlsError(ValueError):
    """TLS settings that cannot be used. The text names the element and what is wrong with it."""


def make_server_context(tls: TlsSpec) -> ssl.SSLContext:
    """Make the context for the connections that a transport accepts.

    Raises:
        TlsError: a file cannot be read or used, or OpenSSL does not know what is asked for.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, tls)
    load_certificates(context, tls)
    return context


def make_client_context(tls: TlsSpec) -> ssl.SSLContext:
    """Make the context for connections to other instances.

    With VerifyClient the certificate of the other end has to be signed by an authority that is
    given; which name it was made for does not matter.
    Source: AMPS User Guide, Verifying Connection Identity using Mutual TLS.

    Raises:
        TlsError: see `make_server_context`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _restrict(context, tls)
    if tls.certificate:
        load_certificates(context, tls)
    return context


def _restrict(context: ssl.SSLContext, tls: TlsSpec) -> None:
    """Have a context accept what is asked for, and nothing else."""
    _restrict_versions(context, tls.protocols)
    if tls.ciphers:
        _use(
            f"Ciphers {tls.ciphers!r}",
            partial(context.set_ciphers, tls.ciphers),
            "expected a list of ciphers as OpenSSL understands it",
        )
    if tls.verify_client:
        load_authorities(context, tls)
        context.verify_mode = ssl.CERT_REQUIRED


def tell_failures(context: ssl.SSLContext, tell: Callable[[str], None]) -> None:
    """Have somebody told why the handshake of a connection fails.

    The event loop keeps that to itself, and nobody else hears of such a connection.

    Args:
        context: the context of the connections.
        tell: takes the reason, in words.
    """

    class TellingObject(ssl.SSLObject):
        """One connection's side of TLS."""

        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                tell(words(error))
                raise

    context.sslobject_class = TellingObject


def files_of(tls: TlsSpec) -> list[Path]:
    """The files that a transport's TLS is made from: certificate, key, authorities.

    Raises:
        TlsError: the directory of the authorities has none.
    """
    own = [Path(path) for path in (tls.certificate, tls.private_key) if path]
    return own + (_authorities(tls) if tls.verify_client else [])


def load_authorities(context: ssl.SSLContext, tls: TlsSpec) -> None:
    """Trust the authorities of clients' certificates, besides those that are trusted already.

    Raises:
        TlsError: a file cannot be read or used.
    """
    for path in _authorities(tls):
        _use(
            f"certificate authority {path}",
            partial(context.load_verify_locations, path),
            "expected certificates in PEM format",
        )


def load_certificates(context: ssl.SSLContext, tls: TlsSpec) -> None:
    """Read the certificate and its private key; connections accepted from now on use them.

    Raises:
        TlsError: one of the files cannot be read or used, or they do not belong together. What
            was loaded before stays in force.
    """
    certificate, key = tls.certificate or "", tls.private_key or ""
    trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _use(
        f"Certificate {certificate}",
        partial(trial.load_verify_locations, certificate),
        "expected a certificate in PEM format",
    )
    _use(f"PrivateKey {key}", lambda: Path(key).open("rb").close(), "")
    for target in (trial, context):  # a context that failed has lost what it had
        _use(
            f"PrivateKey {key}",
            partial(target.load_cert_chain, certificate, key, password=_no_password),
            f"expected the key of {certificate}, in PEM format and without a password",
        )


def _no_password() -> str:
    """What OpenSSL is told instead of asking on the terminal."""
    return ""


def _restrict_versions(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    wanted = [name for name in _VERSIONS if name in names]
    if not wanted:
        raise TlsError(
            f"SecureSocketProtocols {' '.join(names)!r}: none of these is supported,"
            f" expected at least one of {', '.join(_VERSIONS)}"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # whoever configures them knows
        context.minimum_version = _VERSIONS[wanted[0]]
        context.maximum_version = _VERSIONS[wanted[-1]]
        for name, option in _EXCLUDING.items():
            if name not in wanted:
                context.options |= option  # also those between the oldest and the newest


def _authorities(tls: TlsSpec) -> list[Path]:
    """The files with certificates that clients are checked with: CAFile, and all of CAPath."""
    paths = [Path(tls.ca_file)] if tls.ca_file else []
    if tls.ca_path:
        found = sorted(Path(tls.ca_path).glob("*.pem"))
        if not found:
            raise TlsError(f"CAPath {tls.ca_path}: there is no .pem file")
        paths += found
    return paths


def _use(what: str, action: Callable[[], object], expected: str) -> None:
    try:
        action()
    except ssl.SSLError as error:
        raise TlsError(f"{what}: {words(error)}; {expected}") from None
    except OSError as error:
        raise TlsError(f"{what}: {error.strerror or error}") from None
    except ValueError as error:
        raise TlsError(f"{what}: {error}; {expected}") from None


def words(error: ssl.SSLError) -> str:
    """What is wrong, in words."""
    reason = getattr(error, "reason", None) or error.args[0]  # the binding does not always set it
    return str(reason).rstrip(".").replace("_", " ").lower()
