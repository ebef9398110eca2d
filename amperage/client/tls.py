"""TLS contexts for connections (tcps, wss), from certificate files."""

from __future__ import annotations

import ssl
from pathlib import Path

from amperage.client.errors import TlsFileError


def make_ssl_context(
    authorities: str | Path | None = None,
    certificate: str | Path | None = None,
    key: str | Path | None = None,
) -> ssl.SSLContext:
    """Return a TLS context for the `ssl_context` of a client.

    Args:
        authorities: the file with the certificates of the authorities that the server's certificate
            is checked against; None for the system's.
        certificate: the file with the client's certificate; None for no certificate.
        key: the file with its key; None if the certificate's file has the key.

    Raises:
        TlsFileError: a file cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=authorities)
    except (OSError, ValueError) as error:
        raise _unusable(str(authorities), error) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key, password=lambda: "")
        except (OSError, ValueError) as error:
            files = f"{certificate} with {key}" if key is not None else str(certificate)
            raise _unusable(files, error) from None
    return context


def _unusable(files: str, error: Exception) -> TlsFileError:
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        return TlsFileError(f"{files}: {error.strerror or error}")
    return TlsFileError(f"{files}: expected PEM format, and a key without a password")
