"""The asyncio client that reconnects automatically: `amperage.HAClient`, with `await`.

While there is no session, a task reconnects. Commands called meanwhile are sent in the next
session; their callers wait.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import ssl
from collections.abc import Callable, Iterable

from amperage.client.aio_commands import AsyncCommands
from amperage.client.aio_connection import AioConnection, Waiters, open_connection
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
from amperage.client.errors import (
    ClientError,
    ConnectionLostError,
    GaveUpError,
    TimedOutError,
    again,
)
from amperage.client.file_publish_store import check_client_name
from amperage.client.ha_arguments import check_ha_arguments
from amperage.client.handler_calls import HandlerCalls
from amperage.client.limits import DEFAULT_HEARTBEAT, DEFAULT_TIMEOUT, MAX_MISSED_HEARTBEATS
from amperage.client.logon import LogonDialogue
from amperage.client.publish_store import PublishStorage, PublishStore, warn_unpersisted_messages
from amperage.client.reconnection import Reconnection
from amperage.client.recovery import RecoveringProtocol
from amperage.client.sequence_numbers import AsyncRefusalListener
from amperage.client.servers import Server, ServerChooser
from amperage.client.states import AsyncStateListener, ConnectionEvent, ConnectionState
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
    ) -> None:
        super().__init__(timeout)
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
        self._on_state = on_state
        self._on_refused = on_refused
        self._authenticator = authenticator or PasswordAuthenticator()
        self._ssl_context = ssl_context
        self._logon_options = checked_logon_options(logon_options)
        self._waiters = Waiters()
        self._recovering_protocol: RecoveringProtocol | None = None
        self._connection: AioConnection | None = None
        self._reconnect_task: asyncio.Task[None] | None = None
        self._state_calls = HandlerCalls("on_state")
        self._state_call_task: asyncio.Task[None] | None = None
        self._server: ServerUri | None = None
        self._silence_timeout_s: float | None = None

    def __repr__(self) -> str:
        state = "not connected" if self._connection is None else f"connected to {self._server}"
        return f"<{type(self).__name__} {self.name}: {state}>"

    # The connection

    async def connect(self, *, timeout: float | None = None) -> None:
        """Connect to one of the servers and log on; see `HAClient.connect`."""
        await self.close()
        claim_stores(self, publish_store=self.publish_store, bookmark_store=self.bookmark_store)
        protocol = RecoveringProtocol(self.publish_store, self.bookmark_store, self._on_refused)
        self._recovering_protocol = protocol
        self._reconnection.restart()
        if self._heartbeat is not None:
            protocol.set_heartbeat(self._heartbeat)
            self._silence_timeout_s = float(self._heartbeat * MAX_MISSED_HEARTBEATS)
        self._begin_reconnecting()
        await self._wait_until(lambda: protocol.is_online, self._time_limit(timeout), "a session")

    async def close(self) -> None:
        """Close the connection and end all streams. Messages in the publish store stay there."""
        if self._recovering_protocol is None:
            return
        self._send_acks()
        protocol, self._recovering_protocol = self._recovering_protocol, None
        if self._reconnect_task is not None:
            self._reconnect_task.cancel()
            self._reconnect_task = None
        protocol.close()
        if self._connection is not None:
            self._connection.end(None)
            self._connection = None
        self._waiters.wake()
        release_stores(self, self.publish_store, self.bookmark_store)
        self._notify_state(ConnectionState.CLOSED, self._server)
        state_call_task = self._state_call_task
        if (
            state_call_task is not None
            and not state_call_task.done()
            and state_call_task is not asyncio.current_task()
        ):
            await state_call_task
        warn_unpersisted_messages(self.name, self.publish_store)

    @property
    def server(self) -> ServerUri | None:
        """The server of the current or the last connection."""
        return self._server

    # Publishing

    async def publish_flush(self, timeout: float | None = None) -> None:
        """Wait until all messages in the publish store are persisted or refused."""
        protocol = self._protocol
        await self._wait_for_store(protocol.publish_sequence, self._time_limit(timeout))
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
        protocol = self._recovering_protocol
        with self._waiters.count_waiter(self._connection, is_urgent=is_urgent):
            try:
                await self._waiters.wait_until(
                    lambda: arrived() or protocol is None or protocol.is_closed, limit, what
                )
            except TimedOutError:
                if self._recovering_protocol is None or self._connection is not None:
                    raise
                raise limit.timeout_error(what, self._reconnection.failure_text) from None
        if arrived():
            return
        if protocol is None:
            raise not_connected()
        raise again(protocol.end_reason_error)

    @property
    def _protocol(self) -> RecoveringProtocol:
        if self._recovering_protocol is None:
            raise not_connected()
        return self._recovering_protocol

    async def _write(self) -> None:
        if self._connection is not None:
            await self._connection.write(self._timeout)

    def _write_soon(self) -> None:
        if self._connection is not None:
            self._connection.write_output()

    def _set_silence_timeout(self, allowed: float) -> None:
        self._silence_timeout_s = allowed
        if self._connection is not None:
            self._connection.set_silence_timeout(allowed)

    def _on_connection_end(self, connection: AioConnection, error: ClientError) -> None:
        if self._connection is not connection:  # an attempt: `_attempt_connection` handles its end
            return
        self._connection = None
        self._reconnection.record_session_end()
        self._notify_state(ConnectionState.DISCONNECTED, self._server, error)
        self._begin_reconnecting()

    def _begin_reconnecting(self) -> None:
        if self._recovering_protocol is not None:
            self._reconnect_task = asyncio.get_running_loop().create_task(self._reconnect())
            self._reconnect_task.add_done_callback(self._close_if_failed)

    def _close_if_failed(self, task: asyncio.Task[None]) -> None:
        """Give up if a listener or an authenticator has raised an exception, for calls to raise."""
        failure = None if task.cancelled() else task.exception()
        if failure is not None and self._recovering_protocol is not None:
            error = GaveUpError(f"reconnecting failed: {failure!r}")
            error.__cause__ = failure
            self._recovering_protocol.close_permanently(error)
            self._waiters.wake()

    async def _reconnect(self) -> None:
        loop = asyncio.get_running_loop()
        while self._connection is None:
            try:
                await asyncio.sleep(self._reconnection.seconds_until_due(loop.time()))
            except GaveUpError as error:
                self._protocol.close_permanently(error)
                self._waiters.wake()
                self._notify_state(ConnectionState.GAVE_UP, self._server, error)
                return
            await self._attempt_connection()

    async def _attempt_connection(self) -> None:
        server = self._reconnection.server
        try:
            connection = await self._log_on(server)
        except ClientError as error:
            self._reconnection.record_failure(asyncio.get_running_loop().time(), error)
            self._notify_state(ConnectionState.DISCONNECTED, server.uri, error)
            return
        self._reconnection.record_success()
        if self._silence_timeout_s is not None:
            connection.set_silence_timeout(self._silence_timeout_s)
        self._waiters.wake()
        self._notify_state(ConnectionState.RECOVERED, server.uri)

    async def _log_on(self, server: Server) -> AioConnection:
        protocol = self._protocol

        def make() -> AioConnection:
            made = AioConnection(
                protocol,
                server.uri,
                self._waiters,
                lambda error: self._on_connection_end(made, error),
            )
            return made

        connection = await open_connection(make, server.uri, self._timeout, self._ssl_context)
        self._server = server.uri
        self._notify_state(ConnectionState.CONNECTED, server.uri)
        authenticator = server.authenticator or self._authenticator
        dialogue = LogonDialogue(
            protocol, self.name, server.uri, authenticator, self._logon_options
        )
        try:
            answer = await connection.log_on(dialogue, self._timeout)
        except ClientError as error:
            connection.end(error)
            raise
        except asyncio.CancelledError:
            connection.end(None)
            raise
        except Exception as failure:  # from the authenticator
            connection.end(ConnectionLostError(f"the authenticator has failed: {failure!r}"))
            raise
        self._notify_state(ConnectionState.LOGGED_ON, server.uri)
        protocol.begin_session(answer)
        self._connection = connection
        connection.write_output()
        return connection

    def _notify_state(
        self, state: ConnectionState, server: ServerUri | None, error: ClientError | None = None
    ) -> None:
        if self._on_state is None:
            return
        told = self._on_state(ConnectionEvent(state, server, error))
        if inspect.isawaitable(told):
            self._state_calls.add(lambda: told)
            if (telling := self._state_calls.start_calls(self._waiters.start_task)) is not None:
                telling.add_done_callback(self._close_if_failed)
                self._state_call_task = telling
