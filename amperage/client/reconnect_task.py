"""The task of an asyncio client that reconnects automatically.

It connects and logs on, and ends when the session begins. The event loop calls the connection
from then on; when the session ends, a new task begins. `amperage.client.reconnect_thread` is the
same for threads. `amperage.client.recovery` handles the commands, streams and messages when a
connection is lost; `amperage.client.reconnection` schedules the attempts to connect.

An exception in a function of the application ends the client, because continuing without the effect
of the function would be wrong.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable

from amperage.client.aio_connection import AioConnection, open_connection
from amperage.client.errors import ClientError, ConnectionLostError, GaveUpError
from amperage.client.ha_arguments import SessionOptions
from amperage.client.handler_calls import HandlerCalls
from amperage.client.logon import LogonDialogue
from amperage.client.reconnection import Reconnection
from amperage.client.recovery import RecoveringProtocol
from amperage.client.servers import Server
from amperage.client.states import AsyncStateListener, ConnectionEvent, ConnectionState
from amperage.client.uri import ServerUri
from amperage.client.waiters import Waiters


class StateCalls:
    """The calls of an asyncio client's listener for changes of state, one after the other.

    Args:
        listener: the listener; None calls nothing.
        waiters: the tasks of the client.

    Attributes:
        on_task_done: a callback for a task that has awaited calls of the listener.
    """

    def __init__(self, listener: AsyncStateListener | None, waiters: Waiters) -> None:
        self.on_task_done: Callable[[asyncio.Task[None]], None] | None = None
        self._listener = listener
        self._waiters = waiters
        self._calls = HandlerCalls()
        self._task: asyncio.Task[None] | None = None

    def call(self, event: ConnectionEvent) -> None:
        """Call the listener, and await its result, if it is awaitable, in a task."""
        if self._listener is None:
            return
        result = self._listener(event)
        if inspect.isawaitable(result):
            self._calls.add("on_state", lambda: result)
            if (task := self._calls.start_calls(self._waiters.start_task)) is not None:
                task.add_done_callback(self._handle_task_end)
                self._task = task

    async def wait_until_done(self) -> None:
        """Wait until all calls have returned, unless one of them waits here itself."""
        task = self._task
        if task is not None and not task.done() and task is not asyncio.current_task():
            await task

    def _handle_task_end(self, task: asyncio.Task[None]) -> None:
        if self.on_task_done is not None:
            self.on_task_done(task)


class ReconnectTask:
    """Maintains a session, in tasks of the event loop.

    Args:
        waiters: the tasks of the client.
        protocol: the protocol that survives connections.
        reconnection: the schedule of the attempts to connect.
        options: the options for connecting and logging on.
        server: the server of the last connection; None if there was none.
        state_calls: the calls of the listener for changes of state.

    Attributes:
        connection: the connection of the session; None while there is no session.
        server: the server of the current or the last connection.
        silence_timeout_s: seconds of silence after which a connection is ended; None for no limit.
    """

    def __init__(
        self,
        waiters: Waiters,
        protocol: RecoveringProtocol,
        reconnection: Reconnection,
        options: SessionOptions,
        server: ServerUri | None,
        state_calls: StateCalls,
    ) -> None:
        self.connection: AioConnection | None = None
        self.server = server
        self.silence_timeout_s: float | None = None
        self._waiters = waiters
        self._protocol = protocol
        self._reconnection = reconnection
        self._options = options
        self._state_calls = state_calls
        self._is_stopped = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start a task, which begins to connect."""
        self._state_calls.on_task_done = self._close_if_failed
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._close_if_failed)

    def stop(self) -> None:
        """Close the connection for good, and end the task."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()
        self._protocol.close()
        self._protocol.handler_calls.start_calls(self._waiters.start_task)
        if self.connection is not None:
            self.connection.end(None)
            self.connection = None
        self._waiters.wake()

    def set_silence_timeout(self, allowed: float) -> None:
        """Start to end a connection after `allowed` seconds of silence."""
        self.silence_timeout_s = allowed
        if self.connection is not None:
            self.connection.set_silence_timeout(allowed)

    def notify_state(
        self, state: ConnectionState, server: ServerUri | None, error: ClientError | None = None
    ) -> None:
        """Call the listener with a change of state."""
        self._state_calls.call(ConnectionEvent(state, server, error))

    # In the task

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self.connection is None:
            try:
                await asyncio.sleep(self._reconnection.seconds_until_due(loop.time()))
            except GaveUpError as error:
                self._close_permanently(error)
                self.notify_state(ConnectionState.GAVE_UP, self.server, error)
                return
            await self._begin_session()

    async def _begin_session(self) -> None:
        server = self._reconnection.server
        try:
            connection = await self._log_on(server)
        except ClientError as error:
            self._reconnection.record_failure(asyncio.get_running_loop().time(), error)
            self.notify_state(ConnectionState.DISCONNECTED, server.uri, error)
            return
        self._reconnection.record_success()
        self._protocol.traffic.sessions += 1
        if self.silence_timeout_s is not None:
            connection.set_silence_timeout(self.silence_timeout_s)
        self._waiters.wake()
        self.notify_state(ConnectionState.RECOVERED, server.uri)

    async def _log_on(self, server: Server) -> AioConnection:
        options, protocol = self._options, self._protocol

        def make() -> AioConnection:
            connection = AioConnection(
                protocol,
                server.uri,
                self._waiters,
                lambda error: self._on_connection_end(connection, error),
            )
            return connection

        connection = await open_connection(make, server.uri, options.timeout, options.ssl_context)
        self.server = server.uri
        self.notify_state(ConnectionState.CONNECTED, server.uri)
        dialogue = LogonDialogue(
            protocol,
            options.name,
            server.uri,
            server.authenticator or options.authenticator,
            options.logon_options,
        )
        try:
            answer = await connection.log_on(dialogue, options.timeout)
        except ClientError as error:
            connection.end(error)
            raise
        except asyncio.CancelledError:
            connection.end(None)
            raise
        except Exception as failure:  # from the authenticator
            connection.end(ConnectionLostError(f"the authenticator has failed: {failure!r}"))
            raise
        self.notify_state(ConnectionState.LOGGED_ON, server.uri)
        protocol.begin_session(answer)
        self.connection = connection
        connection.write_output()
        return connection

    # Ending

    def _on_connection_end(self, connection: AioConnection, error: ClientError) -> None:
        if self.connection is not connection:  # an attempt: `_begin_session` handles its end
            return
        self.connection = None
        self._reconnection.record_session_end()
        self.notify_state(ConnectionState.DISCONNECTED, self.server, error)
        if not self._is_stopped:
            self.start()

    def _close_if_failed(self, task: asyncio.Task[None]) -> None:
        """Give up if a listener or an authenticator has raised an exception, for calls to raise."""
        failure = None if task.cancelled() else task.exception()
        if failure is not None and not self._is_stopped:
            error = GaveUpError(f"reconnecting failed: {failure!r}")
            error.__cause__ = failure
            self._close_permanently(error)

    def _close_permanently(self, error: GaveUpError) -> None:
        self._protocol.close_permanently(error)
        self._protocol.handler_calls.start_calls(self._waiters.start_task)
        self._waiters.wake()
