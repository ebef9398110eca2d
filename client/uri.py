"""The URI of a server: `tcp://user:password@host:port/amps/json?tcp_nodelay=true`.

The path names the protocol and the message type. Both may be left out: the protocol is then
`amps`, and the message type is the transport's own. User and password may be percent-encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from client.errors import InvalidUriError

SCHEMES: Final = ("tcp", "tcps")

_TRUTH: Final = {"true": 1, "1": 1, "yes": 1, "false": 0, "0": 0, "no": 0}


def _truth(text: str) -> int:
    return _TRUTH[text.lower()]


_OPTIONS: Final[Mapping[str, Callable[[str], int]]] = {
    "tcp_nodelay": _truth,
    "tcp_keepalive": _truth,
    "tcp_sndbuf": int,
    "tcp_rcvbuf": int,
}


@dataclass(frozen=True, slots=True)
class ServerUri:
    """Where a server is, how to speak to it and as whom.

    Attributes:
        scheme: "tcp" or "tcps" (TLS).
        host: a name or an address; IPv6 addresses without brackets.
        port: 1 to 65535.
        user: who logs on; None for nobody in particular.
        password: kept out of every printed form.
        message_type: such as "json"; None for the transport's own.
        options: connection parameters (tcp_nodelay, tcp_keepalive, tcp_sndbuf, tcp_rcvbuf).
    """

    scheme: str
    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    message_type: str | None = None
    options: Mapping[str, int] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Host and port, as they stand in the URI."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        message_type = f"/{self.message_type}" if self.message_type else ""
        return f"{self.scheme}://{user}{self.address}/amps{message_type}"


def parse_uri(text: str) -> ServerUri:
    """Read the URI of a server.

    Args:
        text: such as "tcp://localhost:9007/amps/json".

    Raises:
        InvalidUriError: the text is not such a URI; it says what was expected.
    """
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise InvalidUriError(f"{_without_password(text)}: {error}") from None
    if parts.scheme not in SCHEMES:
        expected = " or ".join(f"{scheme}://" for scheme in SCHEMES)
        raise _invalid(text, f"expected a URI that begins with {expected}")
    if not parts.hostname or not port:
        raise _invalid(text, "expected host:port, such as localhost:9007")
    return ServerUri(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port,
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password is not None else None,
        message_type=_message_type(text, parts),
        options=_options(text, parts),
    )


def _message_type(text: str, parts: SplitResult) -> str | None:
    path = [part for part in parts.path.split("/") if part]
    if not path:
        return None
    if path[0] != "amps" or len(path) > 2:
        raise _invalid(text, f"expected the path /amps or /amps/TYPE, found {parts.path}")
    return path[1] if len(path) == 2 else None


def _options(text: str, parts: SplitResult) -> Mapping[str, int]:
    options: dict[str, int] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        read = _OPTIONS.get(name)
        if read is None:
            known = ", ".join(sorted(_OPTIONS))
            raise _invalid(text, f"unknown connection parameter {name}; known are {known}")
        try:
            options[name] = read(value)
        except (KeyError, ValueError):
            expected = "true or false" if read is _truth else "a number of bytes"
            raise _invalid(text, f"{name} is {value!r}, expected {expected}") from None
    return options


def _invalid(text: str, message: str) -> InvalidUriError:
    return InvalidUriError(f"{_without_password(text)}: {message}")


def _without_password(text: str) -> str:
    """The text as it may be shown: an error message is no place for a password."""
    credentials, at, rest = text.rpartition("@")
    if not at:
        return text
    scheme, slashes, user = credentials.rpartition("://")
    return f"{scheme}{slashes}{user.partition(':')[0]}@{rest}"
