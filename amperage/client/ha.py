"""The blocking client that reconnects automatically, resubscribes and publishes again.

A background thread (`amperage.client.reconnect_thread`) reconnects, independently of the
application. Commands called without a session wait for the next one, within their timeout.
Published messages go into the publish store.
"""

from __future__ import annotations

import random
import ssl
import weakref
from collections.abc import Callable, Iterable

from amperage.client.arguments import handler
from amperage.client.authentication import (
    Authenticator,
    PasswordAuthenticator,
)
from amperage.client.backoff import Backoff
from amperage.client.blocking_commands import BlockingCommands
from amperage.client.bookmarks import BookmarkStorage, BookmarkStore
from amperage.client.command_shell import not_connected
from amperage.client.commands import LogonParameters
from amperage.client.commands import logon_options as checked_logon_options
from amperage.client.errors import TimedOutError, copy_error
from amperage.client.file_publish_store import check_client_name
from amperage.client.ha_arguments import SessionOptions, check_ha_arguments
from amperage.client.limits import DEFAULT_HEARTBEAT, DEFAULT_TIMEOUT, MAX_MISSED_HEARTBEATS
from amperage.client.publish_store import PublishStorage, PublishStore, warn_unpersisted_messages
from amperage.client.reconnect_thread import ReconnectThread
from amperage.client.reconnection import Reconnection
from amperage.client.recovery import RecoveringProtocol
from amperage.client.sequence_numbers import RefusalListener
from amperage.client.serialization import Decoder, Encoder
from amperage.client.servers import Server, ServerChooser
from amperage.client.states import ConnectionState, StateListener
from amperage.client.store_claims import claim_stores, release_stores
from amperage.client.time_limit import TimeLimit
from amperage.client.uri import ServerUri


class HAClient(BlockingCommands):
    """A client that connects to one of several servers, and reconnects automatically.

    Any thread can send commands and iterate streams.

    Args:
        servers: URIs in order of preference, or a chooser.
        name: the client name; it must be unique, and the same in every run of a program, so that
            the server recognises the program's messages. None generates one.
        backoff: the delays between rounds of attempts, and the limits of attempts.
        heartbeat: seconds between heartbeats; a server is considered gone after two intervals of
            silence. None for no heartbeats: if a server fails without closing the connection, only
            a timeout of the operating system detects it, if ever.
        publish_store: stores messages until they are persisted; None for a store in memory. From
            `connect` to `close` no other client may use it. `close` leaves it open.
        bookmark_store: stores the progress of bookmark subscriptions; None for a store in memory.
            The same rules apply.
        on_state: a callback for each change of the connection's state, called with a
            `ConnectionEvent`.
        on_refused: a callback for each published message that the server refuses, called with the
            message, a `StoredMessage`, and the error; None makes `flush` raise
            `MessagesRefusedError`. This and `on_state` are called in the client's thread, and must
            not block.
        timeout: default timeout of a call, in seconds.
        authenticator: provides the credentials for servers without their own authenticator.
        ssl_context: for tcps and wss.
        logon_options: options of each logon.
        encoder: encodes published values that are neither bytes nor text: "json", or a function
            that returns bytes or text. None refuses them.
        decoder: decodes received bodies for `message.value`: "json", a type for JSON bodies, or a
            function of the bytes. None leaves them as they are.

    Calls raise the errors of those of `Client`, with two differences: only queries and deletions,
    which cannot be repeated, raise `ConnectionLostError`; all raise `GaveUpError` when the back-off
    allows no more attempts.
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
        on_state: StateListener | None = None,
        on_refused: RefusalListener | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        authenticator: Authenticator | None = None,
        ssl_context: ssl.SSLContext | None = None,
        logon_options: LogonParameters | None = None,
        encoder: Encoder | None = None,
        decoder: Decoder | None = None,
    ) -> None:
        super().__init__(timeout, encoder, decoder)
        handler("on_refused", on_refused)
        handler("on_state", on_state)
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
        self._session: tuple[ReconnectThread, RecoveringProtocol] | None = None
        self._server: ServerUri | None = None
        self._finalizer: weakref.finalize[[], HAClient] | None = None

    def __repr__(self) -> str:
        state = f"connected to {self.server}" if self.is_connected else "not connected"
        return f"<{type(self).__name__} {self.name}: {state}>"

    # The connection

    @property
    def is_connected(self) -> bool:
        """Whether there is a session: the client is connected and logged on."""
        return self._session is not None and self._session[0].connection is not None

    def connect(self, *, timeout: float | None = None) -> None:
        """Connect to one of the servers and log on.

        Args:
            timeout: seconds to wait for all attempts together.

        Raises:
            TimedOutError: no attempt has succeeded in time; the attempts continue.
            GaveUpError: the back-off allows no more attempts.
        """
        self.close()
        claim_stores(self, publish_store=self.publish_store, bookmark_store=self.bookmark_store)
        protocol = RecoveringProtocol(self.publish_store, self.bookmark_store, self._on_refused)
        protocol.traffic = self._traffic
        self._reconnection.restart()
        reconnect_thread = ReconnectThread(
            self._guard, protocol, self._reconnection, self._session_options, self._server
        )
        if self._heartbeat is not None:
            protocol.set_heartbeat(self._heartbeat)
            reconnect_thread.silence_timeout_s = float(self._heartbeat * MAX_MISSED_HEARTBEATS)
        self._session = reconnect_thread, protocol
        self._finalizer = weakref.finalize(self, reconnect_thread.request_stop)
        self._finalizer.atexit = False
        reconnect_thread.start()
        self._wait_until(
            lambda: reconnect_thread.connection is not None or protocol.is_closed,
            self._time_limit(timeout),
            "a session",
        )
        if protocol.is_closed:
            raise copy_error(protocol.end_reason_error)

    def close(self) -> None:
        """Close the connection and end all streams.

        Messages in the publish store stay there. If there are any, a warning is logged (logger
        `amperage.client`): with a store in memory, the messages are lost, unless another client
        uses the store.
        """
        if self._session is None:
            return
        self._send_acks()
        (reconnect_thread, _), self._session = self._session, None
        self._server = reconnect_thread.server
        if self._finalizer is not None:
            self._finalizer.detach()
        reconnect_thread.stop()
        release_stores(self, self.publish_store, self.bookmark_store)
        reconnect_thread.notify_state(ConnectionState.CLOSED, self._server)
        warn_unpersisted_messages(self.name, self.publish_store)

    @property
    def server(self) -> ServerUri | None:
        """The server of the current or the last connection."""
        return self._server if self._session is None else self._session[0].server

    # Publishing

    def publish_flush(self, timeout: float | None = None) -> None:
        """Wait until all messages in the publish store are persisted or refused.

        Args:
            timeout: seconds to wait.

        Raises:
            TimedOutError: the timeout has passed.
            MessagesRefusedError: as for `flush`.
        """
        protocol = self._protocol
        self._wait_for_store(protocol.publish_sequence, self._time_limit(timeout))
        if protocol.is_closed:
            raise copy_error(protocol.end_reason_error)
        protocol.refusals.raise_if_any()

    # Reconnection

    def _wait_until(
        self,
        arrived: Callable[[], bool],
        limit: TimeLimit,
        what: str,
        *,
        is_urgent: bool = True,
    ) -> None:
        try:
            super()._wait_until(arrived, limit, what, is_urgent=is_urgent)
        except TimedOutError:
            if self._session is None or self._session[0].connection is not None:
                raise
            raise limit.timeout_error(what, self._reconnection.failure_text) from None

    @property
    def _protocol(self) -> RecoveringProtocol:
        return self._current_session()[1]

    def _current_session(self) -> tuple[ReconnectThread, RecoveringProtocol]:
        if self._session is None:
            raise not_connected()
        return self._session

    def _write(self) -> int:
        connection = self._current_session()[0].connection
        return 0 if connection is None else connection.write_output()

    def _wait_until_written(self, position: int) -> None:
        reconnect_thread = self._current_session()[0]
        if reconnect_thread.connection is not None:
            reconnect_thread.connection.wait_until_written(position, self._timeout)

    def _set_silence_timeout(self, allowed: float) -> None:
        self._current_session()[0].set_silence_timeout(allowed)
