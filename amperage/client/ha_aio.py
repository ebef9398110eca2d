"""The asyncio client that reconnects automatically: `amperage.HAClient`, with `await`.

While there is no session, a task (`amperage.client.reconnect_task`) reconnects. Commands called
meanwhile are sent in the next session; their callers wait.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable, Iterable

from amperage.client.aio_commands import AsyncCommands
from amperage.client.arguments import handler
from amperage.client.authentication import (
    Authenticator,
    PasswordAuthenticator,
)
from amperage.client.backoff import Backoff
from amperage.client.bookmarks import BookmarkStorage, BookmarkStore
from amperage.client.command_shell import not_connected
from amperage.client.commands import LogonParameters
from amperage.client.commands import logon_options as checked_logon_options
from amperage.client.errors import TimedOutError, copy_error
from amperage.client.file_publish_store import check_client_name
from amperage.client.ha_arguments import SessionOptions, check_ha_arguments
from amperage.client.limits import DEFAULT_HEARTBEAT, DEFAULT_TIMEOUT, MAX_MISSED_HEARTBEATS
from amperage.client.publish_store import PublishStorage, PublishStore, warn_unpersisted_messages
from amperage.client.reconnect_task import ReconnectTask, StateCalls
from amperage.client.reconnection import Reconnection
from amperage.client.recovery import RecoveringProtocol
from amperage.client.sequence_numbers import AsyncRefusalListener
from amperage.client.serialization import Decoder, Encoder
from amperage.client.servers import Server, ServerChooser
from amperage.client.states import AsyncStateListener, ConnectionState
from amperage.client.store_claims import claim_stores, release_stores
from amperage.client.time_limit import TimeLimit
from amperage.client.uri import ServerUri


class AsyncHAClient(AsyncCommands):
    """A client that connects to one of several servers, and reconnects, for one event loop.

    The methods and errors are those of `HAClient`; the methods are awaited.

    Args:
        servers: URIs in order of preference, or a chooser.
        name: the client name; it must be unique, and the same in every run of a program, so that
            the server recognises the program's messages. None generates one.
        backoff: the delays between rounds of attempts, and the limits of attempts.
        heartbeat: seconds between heartbeats; a server is considered gone after two intervals of
            silence, and a server disconnects a client with an event loop blocked for as long. None
            for no heartbeats.
        publish_store: stores messages until they are persisted; None for a store in memory. From
            `connect` to `close` no other client may use it. `close` leaves it open.
        bookmark_store: stores the progress of bookmark subscriptions; None for a store in memory.
            The same rules apply.
        on_state: a callback for each change of the connection's state, called with a
            `ConnectionEvent`.
        on_refused: a callback for each published message that the server refuses, called with the
            message, a `StoredMessage`, and the error; None makes `flush` raise
            `MessagesRefusedError`. Coroutine functions, for this and `on_state`, are awaited, one
            call after the other.
        timeout: default timeout of a call, in seconds.
        authenticator: provides the credentials for servers without their own authenticator.
        ssl_context: for tcps and wss.
        logon_options: options of each logon.
        encoder: encodes published values that are neither bytes nor text: "json", or a function
            that returns bytes or text. None refuses them.
        decoder: decodes received bodies for `message.value`: "json", a type for JSON bodies, or a
            function of the bytes. None leaves them as they are.
    """

    def __init__(
        self,
        servers: ServerChooser | Iterable[str | ServerUri | Server],
        name: str | None = None,
        *,
        backoff: Backoff | None = None,
        heartbeat: int | None = DEFAULT_HEARTBEAT,
        publish_store: PublishStorage | None = None,
        bookmark_store: BookmarkStorage | None = None,
        on_state: AsyncStateListener | None = None,
        on_refused: AsyncRefusalListener | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        authenticator: Authenticator | None = None,
        ssl_context: ssl.SSLContext | None = None,
        logon_options: LogonParameters | None = None,
        encoder: Encoder | None = None,
        decoder: Decoder | None = None,
    ) -> None:
        super().__init__(timeout, encoder, decoder)
        handler("on_refused", on_refused, may_be_async=True)
        handler("on_state", on_state, may_be_async=True)
        check_ha_arguments(
            authenticator, ssl_context, backoff, heartbeat, publish_store, bookmark_store
        )
        self.name = check_client_name(name, publish_store)
        self.publish_store = PublishStore() if publish_store is None else publish_store
        self.bookmark_store = BookmarkStore() if bookmark_store is None else bookmark_store
        chooser = servers if isinstance(servers, ServerChooser) else ServerChooser(servers)
        self._reconnection = Reconnection(chooser, backoff or Backoff(), random.random)
        self._heartbeat = heartbeat
        self._on_refused = on_refused
        self._session_options = SessionOptions(
            name=self.name,
            timeout=timeout,
            authenticator=authenticator or PasswordAuthenticator(),
            ssl_context=ssl_context,
            logon_options=checked_logon_options(logon_options),
            on_state=on_state,
        )
        self._state_calls = StateCalls(on_state, self._waiters)
        self._session: tuple[ReconnectTask, RecoveringProtocol] | None = None
        self._server: ServerUri | None = None

    def __repr__(self) -> str:
        state = f"connected to {self.server}" if self.is_connected else "not connected"
        return f"<{type(self).__name__} {self.name}: {state}>"

    # The connection

    @property
    def is_connected(self) -> bool:
        """Whether there is a session: the client is connected and logged on."""
        return self._session is not None and self._session[0].connection is not None

    async def connect(self, *, timeout: float | None = None) -> None:
        """Connect to one of the servers and log on; see `HAClient.connect`."""
        await self.close()
        claim_stores(self, publish_store=self.publish_store, bookmark_store=self.bookmark_store)
        protocol = RecoveringProtocol(self.publish_store, self.bookmark_store, self._on_refused)
        protocol.traffic = self._traffic
        self._reconnection.restart()
        reconnect_task = ReconnectTask(
            self._waiters,
            protocol,
            self._reconnection,
            self._session_options,
            self._server,
            self._state_calls,
        )
        if self._heartbeat is not None:
            protocol.set_heartbeat(self._heartbeat)
            reconnect_task.silence_timeout_s = float(self._heartbeat * MAX_MISSED_HEARTBEATS)
        self._session = reconnect_task, protocol
        reconnect_task.start()
        await self._wait_until(
            lambda: reconnect_task.connection is not None or protocol.is_closed,
            self._time_limit(timeout),
            "a session",
        )
        if protocol.is_closed:
            raise copy_error(protocol.end_reason_error)

    async def close(self) -> None:
        """Close the connection and end all streams. Messages in the publish store stay there."""
        if self._session is None:
            return
        self._send_acks()
        (reconnect_task, protocol), self._session = self._session, None
        self._server = reconnect_task.server
        reconnect_task.stop()
        release_stores(self, self.publish_store, self.bookmark_store)
        reconnect_task.notify_state(ConnectionState.CLOSED, self._server)
        await self._state_calls.wait_until_done()
        await protocol.handler_calls.wait_until_done()
        warn_unpersisted_messages(self.name, self.publish_store)

    @property
    def server(self) -> ServerUri | None:
        """The server of the current or the last connection."""
        return self._server if self._session is None else self._session[0].server

    # Publishing

    async def publish_flush(self, timeout: float | None = None) -> None:
        """Wait until all messages in the publish store are persisted or refused."""
        protocol = self._protocol
        await self._wait_for_store(protocol.publish_sequence, self._time_limit(timeout))
        if protocol.is_closed:
            raise copy_error(protocol.end_reason_error)
        protocol.refusals.raise_if_any()

    # Reconnection

    async def _wait_until(
        self,
        arrived: Callable[[], bool],
        limit: TimeLimit,
        what: str,
        *,
        is_urgent: bool = True,
    ) -> None:
        try:
            await super()._wait_until(arrived, limit, what, is_urgent=is_urgent)
        except TimedOutError:
            if self._session is None or self._session[0].connection is not None:
                raise
            raise limit.timeout_error(what, self._reconnection.failure_text) from None

    @property
    def _protocol(self) -> RecoveringProtocol:
        return self._current_session()[1]

    def _current_session(self) -> tuple[ReconnectTask, RecoveringProtocol]:
        if self._session is None:
            raise not_connected()
        return self._session

    def _write(self) -> int:
        connection = self._current_session()[0].connection
        return 0 if connection is None else connection.write_output()

    async def _wait_until_written(self, position: int) -> None:
        reconnect_task = self._current_session()[0]
        if reconnect_task.connection is not None:
            await reconnect_task.connection.wait_until_written(position, self._timeout)

    def _set_silence_timeout(self, allowed: float) -> None:
        self._current_session()[0].set_silence_timeout(allowed)
