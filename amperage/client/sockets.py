"""Opens and configures the socket for a URI, for the blocking and the asyncio clients."""

from __future__ import annotations

import socket
import ssl
from typing import Final

from amperage.client.errors import ClientError, ConnectError, ProtocolError
from amperage.client.uri import ServerUri

_LEVEL_AND_NAME: Final = {
    "tcp_nodelay": (socket.IPPROTO_TCP, socket.TCP_NODELAY),
    "tcp_keepalive": (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
    "tcp_sndbuf": (socket.SOL_SOCKET, socket.SO_SNDBUF),
    "tcp_rcvbuf": (socket.SOL_SOCKET, socket.SO_RCVBUF),
}


def open_socket(
    uri: ServerUri, timeout: float | None, ssl_context: ssl.SSLContext | None
) -> socket.socket:
    """Connect to a server.

    Args:
        uri: the server.
        timeout: seconds for each step; None for the operating system's timeout.
        ssl_context: for tcps and wss; None checks the certificate against the system's authorities.

    Returns:
        A connected, non-blocking socket.

    Raises:
        ConnectError: the connection cannot be established; the text has the reason.
    """
    try:
        connection = _connected(uri, timeout)
    except OSError as error:
        raise connect_error(uri, error) from None
    try:
        apply_options(connection, uri)
        if uri.is_encrypted:
            context = ssl_context or ssl.create_default_context()
            connection = context.wrap_socket(connection, server_hostname=uri.host)
        connection.setblocking(False)
    except OSError as error:
        connection.close()
        raise connect_error(uri, error) from None
    return connection


def _connected(uri: ServerUri, timeout: float | None) -> socket.socket:
    if uri.scheme != "unix":
        return socket.create_connection((uri.host, uri.port), timeout)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    try:
        connection.connect(uri.path)
    except OSError:
        connection.close()
        raise
    return connection


def apply_options(connection: socket.socket, uri: ServerUri) -> None:
    """Set the connection parameters. TCP_NODELAY is set unless the URI has another value.

    Args:
        connection: a connected socket.
        uri: the URI with the parameters.
    """
    if uri.scheme == "unix":
        return
    for name, value in {"tcp_nodelay": 1, **uri.options}.items():
        if name in _LEVEL_AND_NAME:
            level, option = _LEVEL_AND_NAME[name]
            connection.setsockopt(level, option, value)


def connect_error(uri: ServerUri, error: OSError) -> ConnectError:
    """Return the error for a failed connection, with the reason in one sentence."""
    return _unable(uri, _cause(error))


def premature_end_error(uri: ServerUri, error: ClientError) -> ConnectError:
    """Return the error for a connection that has ended before it was open."""
    if isinstance(error, ConnectError):
        return error
    cause = str(error)
    if uri.scheme in ("ws", "wss") and not isinstance(error, ProtocolError):
        cause += "; it has not answered as a websocket: check that this is a transport of that type"
    return _unable(uri, cause)


def _unable(uri: ServerUri, cause: str) -> ConnectError:
    return ConnectError(f"Unable to connect to AMPS at {uri.address}: {cause}")


def _cause(error: OSError) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return f"the server's certificate is not trusted: {error.verify_message}"
        case ssl.SSLError():
            return f"TLS failed: {error.reason or error}"
        case TimeoutError():
            return "no answer in time"
        case ConnectionRefusedError():
            return "connection refused"
        case socket.gaierror():
            return f"unknown host: {error.strerror}"
        case _:
            return error.strerror or str(error)
