"""TLS contexts for transports and destinations, made from their configuration.

When a file changes, a new context is made, and secures the connections that are made later: so a
certificate that was removed, of an authority for instance, is not trusted any more. That holds also
if another authority cannot be used then, or none is left: peers without a trusted authority are
refused.
Source: AMPS User Guide, TLS/SSL Transports.
"""

from __future__ import annotations

import ssl
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from config_schema.spec import TlsSpec
from server.util.safe_open import MAX_CERTIFICATE_FILE_SIZE, check_regular

if TYPE_CHECKING:
    from server.process.file_watch import FileWatch

_VERSIONS: Final = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
"""The versions that OpenSSL still supports, oldest first; SSLv2 and SSLv3 are gone."""

_DISABLING_OPTIONS: Final = {
    "TLSv1": ssl.OP_NO_TLSv1,
    "TLSv1.1": ssl.OP_NO_TLSv1_1,
    "TLSv1.2": ssl.OP_NO_TLSv1_2,
    "TLSv1.3": ssl.OP_NO_TLSv1_3,
}


_PEM: Final = ".pem"
"""The suffix of the files of a CAPath."""

_EXPLANATIONS: Final = {
    "tlsv1 alert unknown ca": "the other end does not trust the authority of our Certificate",
    "sslv3 alert bad certificate": "the other end does not accept our Certificate",
    "sslv3 alert certificate unknown": "the other end does not accept our Certificate",
    "sslv3 alert certificate expired": "the other end reports that our Certificate has expired",
    "tlsv1 alert certificate required": "the other end wants a certificate, and we have none",
    "peer did not return a certificate": "VerifyClient wants one",
    "unsupported protocol": "no version of TLS is common to both",
    "no protocols available": "no version of TLS is common to both",
    "no shared cipher": "no cipher is common to both",
    "wrong version number": "the other end does not speak TLS",
}
"""Explanations of OpenSSL's error texts, for operators."""


class TlsError(ValueError):
    """TLS settings that cannot be used. The text names the element and the problem."""


def make_server_context(tls: TlsSpec) -> ssl.SSLContext:
    """Make the context for the connections that a transport accepts.

    Raises:
        TlsError: a file cannot be read or used, or OpenSSL does not know a setting.
    """
    context, unusable = remake_server_context(tls)
    if unusable:
        raise TlsError(unusable[0])
    return context


def remake_server_context(tls: TlsSpec) -> tuple[ssl.SSLContext, list[str]]:
    """Make the context for a transport that is open already, after one of its files has changed.

    Returns:
        The context, and the problems of authorities, which it does not trust.

    Raises:
        TlsError: the certificate or its key cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    unusable = _restrict(context, tls)
    _load_certificates(context, tls)
    return context, unusable


def make_client_context(tls: TlsSpec) -> ssl.SSLContext:
    """Make the context for connections to other instances.

    With VerifyClient the peer's certificate has to be signed by a configured authority; the host
    name in the certificate is not checked.
    Source: AMPS User Guide, Verifying Connection Identity using Mutual TLS.

    Raises:
        TlsError: see `make_server_context`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if unusable := _restrict(context, tls):
        raise TlsError(unusable[0])
    if tls.certificate:
        _load_certificates(context, tls)
    return context


def _restrict(context: ssl.SSLContext, tls: TlsSpec) -> list[str]:
    """Restrict a context to the configured versions, ciphers and authorities.

    Returns:
        The problems of authorities.

    Raises:
        TlsError: OpenSSL does not know a setting.
    """
    _restrict_versions(context, tls.protocols)
    if tls.ciphers:
        _use(
            f"Ciphers {tls.ciphers!r}",
            partial(context.set_ciphers, tls.ciphers),
            "expected a list of ciphers as OpenSSL understands it",
        )
    if not tls.verify_client:
        return []
    context.verify_mode = ssl.CERT_REQUIRED
    return _load_authorities(context, tls)


def watch_files(
    tls: TlsSpec, files: FileWatch, on_change: Callable[[str], None]
) -> list[Callable[[], None]]:
    """Register a callback for changes of the files that a transport's TLS is made from.

    Args:
        tls: the description.
        files: watches the files.
        on_change: called on a change.

    Returns:
        Functions that end the watches.
    """
    paths = [tls.certificate, tls.private_key, tls.ca_file if tls.verify_client else None]
    watches = [files.watch(Path(path), on_change) for path in filter(None, paths)]
    if tls.verify_client and tls.ca_path:
        watches.append(files.watch_all(Path(tls.ca_path), _PEM, on_change))
    return watches


def _load_authorities(context: ssl.SSLContext, tls: TlsSpec) -> list[str]:
    """Trust the authorities for the peer's certificates. Return the problems of the others."""
    unusable = []
    try:
        paths = _authorities(tls)
    except TlsError as error:
        return [str(error)]
    for path in paths:
        try:
            _use_file(
                f"certificate authority {path}",
                path,
                partial(context.load_verify_locations, path),
                "expected certificates in PEM format",
            )
        except TlsError as error:
            unusable.append(str(error))
    return unusable


def _load_certificates(context: ssl.SSLContext, tls: TlsSpec) -> None:
    """Read the certificate and its private key.

    Raises:
        TlsError: one of the files cannot be read or used, or they do not belong together.
    """
    certificate, key = tls.certificate or "", tls.private_key or ""
    trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _use_file(
        f"Certificate {certificate}",
        certificate,
        partial(trial.load_verify_locations, certificate),
        "expected a certificate in PEM format",
    )
    _use_file(
        f"PrivateKey {key}",
        key,
        partial(context.load_cert_chain, certificate, key, password=_no_password),
        f"expected the key of {certificate}, in PEM format and without a password",
    )


def _no_password() -> str:
    """Return no password, so that OpenSSL does not prompt for one on the terminal."""
    return ""


def _restrict_versions(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    versions = [name for name in _VERSIONS if name in names]
    if not versions:
        raise TlsError(
            f"SecureSocketProtocols {' '.join(names)!r}: none of these is supported,"
            f" expected at least one of {', '.join(_VERSIONS)}"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the operator chose them knowingly
        context.minimum_version = _VERSIONS[versions[0]]
        context.maximum_version = _VERSIONS[versions[-1]]
        for name, option in _DISABLING_OPTIONS.items():
            if name not in versions:
                context.options |= option  # also versions between the oldest and the newest


def _authorities(tls: TlsSpec) -> list[Path]:
    """Return the files with certificates that clients are verified by: CAFile, all of CAPath."""
    paths = [Path(tls.ca_file)] if tls.ca_file else []
    if tls.ca_path:
        pem_files = sorted(Path(tls.ca_path).glob(f"*{_PEM}"))
        if not pem_files:
            raise TlsError(f"CAPath {tls.ca_path}: there is no {_PEM} file")
        paths += pem_files
    return paths


def _use_file(subject: str, path: str | Path, action: Callable[[], object], expected: str) -> None:
    """Make OpenSSL read a file, after a check that it is regular: it would block on a pipe."""
    _use(subject, partial(check_regular, path, MAX_CERTIFICATE_FILE_SIZE), "")
    _use(subject, action, expected)


def _use(subject: str, action: Callable[[], object], expected: str) -> None:
    try:
        action()
    except ssl.SSLError as error:
        raise TlsError(f"{subject}: {describe_tls_error(error)}; {expected}") from None
    except OSError as error:
        raise TlsError(f"{subject}: {error.strerror or error}") from None
    except ValueError as error:
        raise TlsError(f"{subject}: {error}; {expected}") from None


def describe_tls_error(error: ssl.SSLError) -> str:
    """Return a description of the error, with an explanation of OpenSSL's text if there is one."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    reason = getattr(error, "reason", None)  # the binding does not always set it
    if reason is None and isinstance(error.args[0], int):
        return "it is damaged, or cut off"  # OpenSSL's own text only names its PEM routines
    text = str(reason or error.args[0]).rstrip(".").replace("_", " ").lower()
    explanation = _EXPLANATIONS.get(text)
    return text if explanation is None else f"{text} ({explanation})"
