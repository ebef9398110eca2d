"""Connections to a service: a new one for each request, or reused ones.

The service may close an idle connection at any time: if nothing is received on it, the request is
sent again on a new one.

Everything runs on the thread of `AsyncWorker`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from server.security.http_client import HttpClientError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.security.http_client import (
        Endpoint,
        HttpClient,
        HttpClientConnection,
        HttpClientResponse,
    )

_IDLE_TIMEOUT_S: Final = 10.0
"""Idle timeout of a connection."""

_REQUEST_TIMEOUT: Final = 408
"""The status of some services on a connection that was idle for long."""


class ConnectionPool:
    """Connections to one service.

    Args:
        client: makes them.
        reuses_connections: whether they are reused.
    """

    def __init__(self, client: HttpClient, *, reuses_connections: bool) -> None:
        self._client = client
        self._reuses_connections = reuses_connections
        self._idle_connections: deque[tuple[HttpClientConnection, float]] = deque()
        self._is_expiry_scheduled = False

    async def get(
        self, endpoint: Endpoint, headers: Sequence[tuple[str, str | bytes]]
    ) -> HttpClientResponse:
        """Send a GET request to the service, and return the response.

        Raises:
            HttpClientError: there is no response, or none that can be used.
        """
        connection = self._take_idle()
        if connection is not None:
            try:
                response = await self._send_request(connection, endpoint, headers)
            except HttpClientError:
                if connection.has_received:
                    raise
            else:
                if response.status != _REQUEST_TIMEOUT:
                    return response
        return await self._send_request(await self._client.connect(endpoint), endpoint, headers)

    async def _send_request(
        self,
        connection: HttpClientConnection,
        endpoint: Endpoint,
        headers: Sequence[tuple[str, str | bytes]],
    ) -> HttpClientResponse:
        is_usable = False
        extra_headers = [] if self._reuses_connections else [("connection", "close")]
        try:
            response = await connection.request("GET", endpoint, [*extra_headers, *headers])
            is_usable = self._reuses_connections and connection.is_usable
        finally:
            if is_usable:
                self._add_idle(connection)
            else:
                connection.close()
        return response

    def _take_idle(self) -> HttpClientConnection | None:
        """Return the most recently used connection that is still usable; None without one."""
        while self._idle_connections:
            connection, _ = self._idle_connections.pop()
            if connection.is_usable:
                return connection
            connection.close()
        return None

    def _add_idle(self, connection: HttpClientConnection) -> None:
        self._idle_connections.append((connection, asyncio.get_running_loop().time()))
        self._schedule_expiry()

    def _schedule_expiry(self) -> None:
        """Schedule the closing of idle connections."""
        if self._idle_connections and not self._is_expiry_scheduled:
            self._is_expiry_scheduled = True
            ends = self._idle_connections[0][1] + _IDLE_TIMEOUT_S
            asyncio.get_running_loop().call_at(ends, self._close_expired)

    def _close_expired(self) -> None:
        self._is_expiry_scheduled = False
        now = asyncio.get_running_loop().time()
        while self._idle_connections and self._idle_connections[0][1] + _IDLE_TIMEOUT_S <= now:
            self._idle_connections.popleft()[0].close()
        self._schedule_expiry()
