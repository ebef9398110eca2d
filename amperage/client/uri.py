"""The URI of a server: `tcp://user:password@host:port/amps/json?tcp_nodelay=true`.

The path names the protocol and the message type. Both may be omitted: the protocol is then `amps`,
and the message type is the transport's own. Over tcp and tcps the protocol may also be one of the
legacy ones, `tcp://host:port/fix`. User and password may be percent-encoded.

    tcp, tcps   frames over TCP, over TLS
    ws, wss     websocket messages; a proxy may need a longer path before /amps
    unix        unix:///path/of/socket?message_type=json -- the path is the socket's file
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from amperage.client.arguments import required_text
from amperage.client.errors import InvalidUriError
from amperage.wire.legacy.dialects import DIALECTS

SCHEMES: Final = ("tcp", "tcps", "ws", "wss", "unix")

AMPS: Final = "amps"
"""The protocol of all transports except legacy ones."""

PROTOCOLS: Final = (AMPS, *DIALECTS)
"""The protocols of a server's transports."""

_TRUTH: Final = {"true": 1, "1": 1, "yes": 1, "false": 0, "0": 0, "no": 0}
_COMPRESSION: Final = {"zlib": 1, "none": 0}


def _truth(text: str) -> int:
    return _TRUTH[text.lower()]


def _compression(text: str) -> int:
    return _COMPRESSION[text.lower()]


_OPTIONS: Final[Mapping[str, Callable[[str], int]]] = {
    "compression": _compression,
    "tcp_nodelay": _truth,
    "tcp_keepalive": _truth,
    "tcp_sndbuf": int,
    "tcp_rcvbuf": int,
}
_EXPECTED: Final = {_truth: "true or false", _compression: "zlib or none", int: "a number of bytes"}
_PASSWORD: Final = re.compile(r"((?:^|,|://)[^:@,/]*:)(?!//)[^@]*@")
"""A user with a password, before a host."""
_MESSAGE_TYPE: Final = "message_type"


@dataclass(frozen=True, slots=True)
class ServerUri:
    """The URI of a server: its address, protocol, message type, user and password.

    Attributes:
        scheme: one of `SCHEMES`.
        host: a name or an address; IPv6 addresses without brackets. Empty for unix.
        port: 1 to 65535; 0 for unix.
        user: the user to log on as; None for no user.
        password: the password; omitted from every printed form.
        message_type: such as "json"; None for the transport's own.
        options: connection parameters (compression, tcp_nodelay, tcp_keepalive, tcp_sndbuf,
            tcp_rcvbuf) as numbers.
        path: the path of the request (ws, wss) or of the socket (unix).
        protocol: one of `PROTOCOLS`.
    """

    scheme: str
    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    message_type: str | None = None
    options: Mapping[str, int] = field(default_factory=dict)
    path: str = ""
    protocol: str = AMPS

    @property
    def address(self) -> str:
        """The host and port as in the URI, or the path of a socket."""
        if self.scheme == "unix":
            return self.path
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection uses TLS."""
        return self.scheme in ("tcps", "wss")

    def __str__(self) -> str:
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        if self.scheme == "unix":
            query = f"?{_MESSAGE_TYPE}={quote(self.message_type)}" if self.message_type else ""
            return f"{self.scheme}://{user}{quote(self.path)}{query}"
        message_type = f"/{self.message_type}" if self.message_type else ""
        return (
            f"{self.scheme}://{user}{self.address}{self.path or f'/{self.protocol}{message_type}'}"
        )


def parse_uri(text: str) -> ServerUri:
    """Parse the URI of a server.

    Args:
        text: such as "tcp://localhost:9007/amps/json".

    Raises:
        InvalidUriError: the text is not such a URI; the error describes the expected form.
        TypeError: the argument is not text.
    """
    required_text("uri", text)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise InvalidUriError(f"{without_passwords(text)}: {error}") from None
    if parts.scheme not in SCHEMES:
        *others, last = (f"{scheme}://" for scheme in SCHEMES)
        expected = f"{', '.join(others)} or {last}"
        raise _invalid(text, f"expected a URI that begins with {expected}")
    user = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password is not None else None
    message_type, options = _parameters(text, parts)
    if parts.scheme == "unix":
        if parts.hostname or not parts.path.strip("/"):
            raise _invalid(
                text, "expected the absolute path of a socket, such as unix:///var/run/amps.sock"
            )
        path = unquote(parts.path)
        return ServerUri("unix", "", 0, user, password, message_type, options, path)
    if not parts.hostname or not port:
        raise _invalid(text, "expected host:port, such as localhost:9007")
    if message_type is not None:
        raise _invalid(text, f"{_MESSAGE_TYPE} is for unix://; expected the path /amps/TYPE")
    is_websocket = parts.scheme in ("ws", "wss")
    protocol, message_type = _protocol_and_type(text, parts, behind_proxy=is_websocket)
    return ServerUri(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port,
        user=user,
        password=password,
        message_type=message_type,
        options=options,
        path=parts.path if is_websocket else "",
        protocol=protocol,
    )


def without_passwords(text: str) -> str:
    """Return the URIs of servers for display, with `***` in place of passwords.

    Args:
        text: URIs or arguments of `spark -server`, also several joined by commas.
    """
    return _PASSWORD.sub(r"\1***@", text)


def with_message_type(text: str, message_type: str) -> str:
    """Return the URI of a server with another message type.

    Args:
        text: the server's URI, with any type or none: `tcp://host:port/amps`.
        message_type: the type.

    Raises:
        InvalidUriError: the text is not such a URI.
    """
    given = parse_uri(text).message_type
    parts = urlsplit(text)
    if parts.scheme == "unix":
        others = [pair for pair in parse_qsl(parts.query) if pair[0] != _MESSAGE_TYPE]
        return urlunsplit(parts._replace(query=urlencode([*others, (_MESSAGE_TYPE, message_type)])))
    path = parts.path.rstrip("/")
    if given is not None:
        path = path.rpartition("/")[0]
    return urlunsplit(parts._replace(path=f"{path or '/amps'}/{message_type}"))


def _protocol_and_type(
    text: str, parts: SplitResult, *, behind_proxy: bool
) -> tuple[str, str | None]:
    path = [part for part in parts.path.split("/") if part]
    if behind_proxy and "amps" in path[-2:]:
        path = path[-1:] if path[-1] == "amps" else path[-2:]
    if not path:
        return AMPS, None
    known = (AMPS,) if behind_proxy else PROTOCOLS
    if path[0] not in known or len(path) > 2:
        raise _invalid(text, f"expected the path /amps or /amps/TYPE, found {parts.path}")
    return path[0], path[1] if len(path) == 2 else None


def _parameters(text: str, parts: SplitResult) -> tuple[str | None, Mapping[str, int]]:
    message_type: str | None = None
    options: dict[str, int] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == _MESSAGE_TYPE:
            message_type = value
            continue
        read = _OPTIONS.get(name)
        if read is None:
            known = ", ".join(sorted(_OPTIONS))
            raise _invalid(text, f"unknown connection parameter {name}; known are {known}")
        try:
            options[name] = read(value)
        except (KeyError, ValueError):
            raise _invalid(text, f"{name} is {value!r}, expected {_EXPECTED[read]}") from None
    return message_type, options


def _invalid(text: str, message: str) -> InvalidUriError:
    return InvalidUriError(f"{without_passwords(text)}: {message}")
