"""Connections to a service: a new one for each request, or reused ones.

The service may close an idle connection at any time: if nothing is received on it, the request is
sent again on a new one.

Everything runs on the desk's thread.
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

_KEPT_SECONDS: Final = 10.0
"""Idle timeout of a connection."""

_REQUEST_TIMEOUT: Final = 408
"""The status of some services on a connection that was idle for long."""


class ConnectionPool:
    """Connections to one service.

    Args:
        client: makes them.
        are_kept: whether they are reused.
    """

    def __init__(self, client: HttpClient, *, are_kept: bool) -> None:
        self._client = client
        self._are_kept = are_kept
        self._kept: deque[tuple[HttpClientConnection, float]] = deque()
        self._is_watched = False

    async def get(
        self, endpoint: Endpoint, headers: Sequence[tuple[str, str | bytes]]
    ) -> HttpClientResponse:
        """Send a GET request to the service, and return the response.

        Raises:
            HttpClientError: there is no response, or none that can be used.
        """
        kept = self._take()
        if kept is not None:
            try:
                found = await self._ask(kept, endpoint, headers)
            except HttpClientError:
                if kept.is_heard:
                    raise
            else:
                if found.status != _REQUEST_TIMEOUT:
                    return found
        return await self._ask(await self._client.connect(endpoint), endpoint, headers)

    async def _ask(
        self,
        connection: HttpClientConnection,
        endpoint: Endpoint,
        headers: Sequence[tuple[str, str | bytes]],
    ) -> HttpClientResponse:
        is_usable = False
        own = [] if self._are_kept else [("connection", "close")]
        try:
            found = await connection.ask("GET", endpoint, [*own, *headers])
            is_usable = self._are_kept and connection.is_usable
        finally:
            if is_usable:
                self._keep(connection)
            else:
                connection.close()
        return found

    def _take(self) -> HttpClientConnection | None:
        """Return the most recently used connection that is still usable; None without one."""
        while self._kept:
            connection, _ = self._kept.pop()
            if connection.is_usable:
                return connection
            connection.close()
        return None

    def _keep(self, connection: HttpClientConnection) -> None:
        self._kept.append((connection, asyncio.get_running_loop().time()))
        self._watch()

    def _watch(self) -> None:
        """Schedule the closing of idle connections."""
        if self._kept and not self._is_watched:
            self._is_watched = True
            ends = self._kept[0][1] + _KEPT_SECONDS
            asyncio.get_running_loop().call_at(ends, self._close_old)

    def _close_old(self) -> None:
        self._is_watched = False
        now = asyncio.get_running_loop().time()
        while self._kept and self._kept[0][1] + _KEPT_SECONDS <= now:
            self._kept.popleft()[0].close()
        self._watch()
