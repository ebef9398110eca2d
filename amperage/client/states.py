"""What a client that reconnects tells about its connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum

from amperage.client.errors import ClientError
from amperage.client.uri import ServerUri


class ConnectionState(Enum):
    """Where a connection is in its life.

    CONNECTED --> LOGGED_ON --> RECOVERED --> DISCONNECTED --> CONNECTED ...
                                                   \\-> GAVE_UP
    """

    CONNECTED = "connected"
    """There is a connection to a server."""
    LOGGED_ON = "logged on"
    """The server has accepted the logon."""
    RECOVERED = "recovered"
    """Subscriptions have been placed again and unacknowledged messages have been sent again."""
    DISCONNECTED = "disconnected"
    """The connection has ended, or an attempt to make one has failed; the error says why."""
    GAVE_UP = "gave up"
    """There will be no more attempts, and streams end with the error."""
    CLOSED = "closed"
    """The client was closed by its owner."""


@dataclass(frozen=True, slots=True)
class ConnectionEvent:
    """One change of state.

    Attributes:
        state: the new state.
        server: which server it is about.
        error: why, where something went wrong.
    """

    state: ConnectionState
    server: ServerUri | None = None
    error: ClientError | None = None


StateListener = Callable[[ConnectionEvent], None]
"""Called with each change of state, in the thread of the client; it must not wait."""

AsyncStateListener = Callable[[ConnectionEvent], Awaitable[None] | None]
"""The same for an asyncio client: a function, or a coroutine function, which is awaited."""
