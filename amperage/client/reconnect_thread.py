"""The background thread of a blocking client that reconnects automatically.

It connects, logs on, reads until the session ends, and then begins again. Other threads send
commands and wait for them. `amperage.client.recovery` handles the commands, streams and messages
when a connection is lost; `amperage.client.reconnection` schedules the attempts to connect.

No lock is held while a function of the application is called. An exception in such a function ends
the client, because continuing without the effect of the function would be wrong.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from amperage.client.arguments import call_blocking_callback
from amperage.client.blocking_connection import BlockingConnection
from amperage.client.errors import ClientError, GaveUpError, NotConnectedError
from amperage.client.ha_arguments import SessionOptions
from amperage.client.logon import LogonDialogue
from amperage.client.reconnection import Reconnection
from amperage.client.recovery import RecoveringProtocol
from amperage.client.servers import Server
from amperage.client.state_lock import ClientLock
from amperage.client.states import ConnectionEvent, ConnectionState
from amperage.client.uri import ServerUri

_JOIN_TIMEOUT_S: Final = 1.0
"""Seconds to wait for the thread: it may connect, or its handler may wait for `stop`'s caller."""

_log: Final = logging.getLogger("amperage.client")


class ReconnectThread:
    """Maintains a session, in a background thread.

    Args:
        guard: the client's lock.
        protocol: the protocol that survives connections.
        reconnection: the schedule of the attempts to connect.
        options: the options for connecting and logging on.
        server: the server of the last connection; None if there was none.

    Attributes:
        connection: the connection of the session; None while there is no session.
        server: the server of the current or the last connection.
        silence_timeout_s: seconds of silence after which a connection is ended; None for no limit.
    """

    def __init__(
        self,
        guard: ClientLock,
        protocol: RecoveringProtocol,
        reconnection: Reconnection,
        options: SessionOptions,
        server: ServerUri | None,
    ) -> None:
        self.connection: BlockingConnection | None = None
        self.server = server
        self.silence_timeout_s: float | None = None
        self._guard = guard
        self._protocol = protocol
        self._reconnection = reconnection
        self._options = options
        self._opening_connection: BlockingConnection | None = None
        self._stop_event = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"amps {options.name}", daemon=True)

    def start(self) -> None:
        """Start the thread, which begins to connect."""
        self._guard.on_fork = self._abandon_after_fork
        self._thread.start()

    def stop(self) -> None:
        """Close the connection for good, and end the thread."""
        self._stop_event.set()
        with self._guard.exclusive():
            self._protocol.close()
            connection = self.connection or self._opening_connection
            if connection is not None:
                connection.end(None)
            self.connection = None
            self._guard.wake()
        if not self._guard.is_reader_thread:
            self._thread.join(_JOIN_TIMEOUT_S)

    def request_stop(self) -> None:
        """End soon, because the client was garbage-collected; takes no lock."""
        self._stop_event.set()
        for connection in (self.connection, self._opening_connection):
            if connection is not None:
                connection.request_end()

    def set_silence_timeout(self, allowed: float) -> None:
        """Start to end a connection after `allowed` seconds of silence."""
        with self._guard.exclusive():
            self.silence_timeout_s = allowed
            if self.connection is not None:
                self.connection.set_silence_timeout(allowed)

    def notify_state(
        self, state: ConnectionState, server: ServerUri | None, error: ClientError | None = None
    ) -> None:
        """Call the listener with a change of state."""
        if self._options.on_state is not None:
            event = ConnectionEvent(state, server, error)
            call_blocking_callback("on_state", self._options.on_state, event)

    # In the thread

    def _run(self) -> None:
        self._guard.register_reader()
        try:
            while not self._stop_event.is_set():
                self._run_session()
        except GaveUpError as error:
            self._close_permanently(error)
            self._notify_unless_stopped(ConnectionState.GAVE_UP, self.server, error)
        except Exception as failure:
            _log.exception("the client's thread has failed")
            self._close_permanently(_defect(failure))
        finally:
            self._protocol.handler_calls.call_all()  # reports of messages without an answer

    def _run_session(self) -> None:
        if self._stop_event.wait(self._reconnection.seconds_until_due(time.monotonic())):
            return
        server = self._reconnection.server
        try:
            connection = self._log_on(server)
        except ClientError as error:
            self._reconnection.record_failure(time.monotonic(), error)
            self._notify_unless_stopped(ConnectionState.DISCONNECTED, server.uri, error)
            return
        self._reconnection.record_success()
        self._protocol.traffic.sessions += 1
        self._notify_unless_stopped(ConnectionState.RECOVERED, server.uri)
        try:
            with self._guard.exclusive_first():
                if self._stop_event.is_set():
                    return
                self.connection = connection
                if self.silence_timeout_s is not None:
                    connection.set_silence_timeout(self.silence_timeout_s)
                self._guard.wake()
            connection.run_until(lambda: False)
        except ClientError as error:
            self.connection = None
            self._reconnection.record_session_end()
            self._notify_unless_stopped(ConnectionState.DISCONNECTED, server.uri, error)
        except Exception as failure:
            self._close_permanently(_defect(failure))
            raise
        finally:
            self.connection = None
            connection.close_sockets()

    def _log_on(self, server: Server) -> BlockingConnection:
        options, protocol = self._options, self._protocol
        connection = BlockingConnection(
            protocol, server.uri, self._guard, options.timeout, options.ssl_context
        )
        self._opening_connection = connection
        try:
            self.server = server.uri
            self._notify_unless_stopped(ConnectionState.CONNECTED, server.uri)
            dialogue = LogonDialogue(
                protocol,
                options.name,
                server.uri,
                server.authenticator or options.authenticator,
                options.logon_options,
            )
            while dialogue.answer is None:
                dialogue.prepare()
                with self._guard.exclusive_first():
                    request = dialogue.send_logon()
                connection.run_until(
                    lambda: request.is_done,  # noqa: B023 - called before the next round
                    options.timeout,
                    "the answer to logon",
                )
                dialogue.process_answer(request)
            self._notify_unless_stopped(ConnectionState.LOGGED_ON, server.uri)
            with self._guard.exclusive_first():
                protocol.begin_session(dialogue.answer)
        except BaseException as error:
            with self._guard.exclusive_first():
                failure = error if isinstance(error, ClientError) else NotConnectedError("closed")
                connection.end(None if self._stop_event.is_set() else failure)
            connection.close_sockets()
            raise
        finally:
            self._opening_connection = None
        return connection

    def _notify_unless_stopped(
        self, state: ConnectionState, server: ServerUri | None, error: ClientError | None = None
    ) -> None:
        if not self._stop_event.is_set():
            self.notify_state(state, server, error)

    def _close_permanently(self, error: GaveUpError) -> None:
        with self._guard.exclusive_first():
            self._protocol.close_permanently(error)
            self._guard.wake()

    def _abandon_after_fork(self) -> None:
        """Close the sockets in a forked child process; the session stays with the parent."""
        self._stop_event.set()
        for connection in (self.connection, self._opening_connection):
            if connection is not None:
                connection.abandon_after_fork()
        self.connection = None
        self._protocol.close_permanently(
            NotConnectedError("the client belongs to the process that forked this one")
        )


def _defect(failure: Exception) -> GaveUpError:
    error = GaveUpError(f"the client's thread has failed: {failure!r}")
    error.__cause__ = failure
    return error
