"""Options of modules that use web services: the headers to send, and the TLS settings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from server.security.http_client import HttpTlsSettings

if TYPE_CHECKING:
    from config_schema.spec import Options

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OWN_HEADERS: Final = frozenset(
    {"connection", "content-length", "expect", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Headers of message framing and connection management, which a configuration must not set."""


def split_header(text: str) -> tuple[str, str]:
    """Split an HTTPHeader into its name and its value.

    Raises:
        ValueError: it is malformed; the text says why, without the value, which may be a secret.
    """
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or not _HEADER_NAME.fullmatch(name) or not value.replace("\t", " ").isprintable():
        raise ValueError("expected a name, a colon and a value in one line, as x-origin: AMPS")
    if name.lower() in _OWN_HEADERS:
        raise ValueError(f"header {name} is not for a configuration to set")
    return name, value


def read_tls(options: Options) -> HttpTlsSettings:
    """Read the options about https.

    Raises:
        UnitError: one is neither true nor false.
    """
    return HttpTlsSettings(
        options.get("Certificate"),
        options.get("Key"),
        options.get("CAKey"),
        options.flag("AllowUnverifiedPeer", default=False),
        options.flag("AllowSelfSigned", default=False),
    )
