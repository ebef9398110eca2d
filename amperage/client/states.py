"""The connection states that a reconnecting client reports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum

from amperage.client.errors import ClientError
from amperage.client.uri import ServerUri


class ConnectionState(Enum):
    """The state of a connection.

    CONNECTED --> LOGGED_ON --> RECOVERED --> DISCONNECTED --> CONNECTED ...
                                                   \\-> GAVE_UP
    """

    CONNECTED = "connected"
    """A connection to a server is established."""
    LOGGED_ON = "logged on"
    """The server has accepted the logon."""
    RECOVERED = "recovered"
    """Subscriptions are restored, and unacknowledged messages have been sent again."""
    DISCONNECTED = "disconnected"
    """The connection has ended, or an attempt to connect has failed; the error has the reason."""
    GAVE_UP = "gave up"
    """There will be no more attempts, and streams end with the error."""
    CLOSED = "closed"
    """The application has closed the client."""


@dataclass(frozen=True, slots=True)
class ConnectionEvent:
    """A change of state.

    Attributes:
        state: the new state.
        server: the server of the connection.
        error: the reason, if the connection or an attempt has failed.
    """

    state: ConnectionState
    server: ServerUri | None = None
    error: ClientError | None = None


StateListener = Callable[[ConnectionEvent], None]
"""A callback for each change of state, called in the client's thread; it must not block."""

AsyncStateListener = Callable[[ConnectionEvent], Awaitable[None] | None]
"""The callback of an asyncio client: a function, or a coroutine function, which is awaited."""
