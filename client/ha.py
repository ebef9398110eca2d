"""A blocking client that stays connected: it reconnects, resubscribes and publishes again.

It has no thread either. While there is no session, calls that wait make the attempts to reconnect
and sleep in between, within their timeout; a publish makes an attempt if one is due, and otherwise
leaves its message in the publish store. `client.recovery` says what becomes of commands, streams
and messages, `client.reconnection` which server is tried when.
"""

from __future__ import annotations

import random
import ssl
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Unpack

from client.authentication import Authenticator, PasswordAuthenticator
from client.backoff import Backoff
from client.blocking_commands import BlockingCommands
from client.blocking_connection import BlockingConnection
from client.bookmarks import BookmarkStore
from client.commands import AckType, LogonOptions, PublishOptions, chunks
from client.errors import (
    ClientError,
    ConnectionLostError,
    GaveUpError,
    PublishStoreFullError,
    TimedOutError,
)
from client.limits import DEFAULT_TIMEOUT, HEARTBEATS_MISSED, MESSAGES_BETWEEN_READS
from client.logon import LogonDialogue
from client.publish_store import PublishStore
from client.reconnection import Reconnection
from client.recovery import RecoveringProtocol, RefusalListener
from client.servers import Server, ServerChooser
from client.states import ConnectionEvent, ConnectionState, StateListener
from client.uri import ServerUri
from server.wire.header import Header


class HAClient(BlockingCommands):
    """A client of whichever of several servers can be reached, for one thread.

    Args:
        servers: URIs in order, or a chooser.
        name: the client name; it must be unique, and the same in every run of a program that wants
            the server to recognise its messages. One is made up if None.
        backoff: how long to wait between rounds of attempts, and when to give up.
        heartbeat: seconds between signs of life; None to notice only what the system notices.
        publish_store: keeps messages until they are persisted; None for one in memory.
        bookmark_store: keeps where bookmark subscriptions stand; None for one in memory.
        on_state: told about the connection's changes of state.
        on_refused: told about each published message that the server refuses.
        timeout: seconds that a call waits for its answer unless it says otherwise.
        authenticator: makes the credentials for servers that have none of their own.
        ssl_context: for tcps and wss.
        logon_options: options of each logon.

    Calls raise as those of `Client` do, but for `ConnectionLostError`: that comes from a query or a
    deletion only, which cannot be repeated; and `GaveUpError` when the back-off allows no more
    attempts.
    """

    def __init__(
        self,
        servers: ServerChooser | Iterable[str | ServerUri | Server],
        name: str | None = None,
        *,
        backoff: Backoff | None = None,
        heartbeat: int | None = None,
        publish_store: PublishStore | None = None,
        bookmark_store: BookmarkStore | None = None,
        on_state: StateListener | None = None,
        on_refused: RefusalListener | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        authenticator: Authenticator | None = None,
        ssl_context: ssl.SSLContext | None = None,
        logon_options: LogonOptions | None = None,
    ) -> None:
        super().__init__(timeout)
        self.name = name or f"client-{uuid.uuid4().hex[:12]}"
        self.publish_store = PublishStore() if publish_store is None else publish_store
        self.bookmark_store = bookmark_store or BookmarkStore()
        chooser = servers if isinstance(servers, ServerChooser) else ServerChooser(servers)
        self._plan = Reconnection(chooser, backoff or Backoff(), random.random)
        self._heartbeat = heartbeat
        self._on_state = on_state
        self._on_refused = on_refused
        self._authenticator = authenticator or PasswordAuthenticator()
        self._ssl_context = ssl_context
        self._logon_options = logon_options or {}
        self._recovering: RecoveringProtocol | None = None
        self._connection: BlockingConnection | None = None
        self._server: ServerUri | None = None
        self._silence_allowed: float | None = None
        self._unread = 0

    # The connection

    def connect(self, *, timeout: float | None = None) -> None:
        """Connect to one of the servers and log on.

        Args:
            timeout: seconds for all attempts together.

        Raises:
            TimedOutError: no attempt has succeeded in time; the next call goes on trying.
            GaveUpError: the back-off allows no more attempts.
        """
        self.close()
        protocol = RecoveringProtocol(self.publish_store, self.bookmark_store, self._on_refused)
        self._recovering = protocol
        self._plan.restart()
        if self._heartbeat is not None:
            protocol.set_heartbeat(self._heartbeat)
            self._silence_allowed = float(self._heartbeat * HEARTBEATS_MISSED)
        self.wait_until(lambda: protocol.is_online, self._timeout_or(timeout), "a session")

    def close(self) -> None:
        """Close the connection; streams end. What is in the publish store stays there."""
        if self._recovering is None:
            return
        protocol, self._recovering = self._recovering, None
        protocol.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._tell(ConnectionState.CLOSED, self._server)

    @property
    def server(self) -> ServerUri | None:
        """The server that the client is, or was last, connected to."""
        return self._server

    # Publishing

    def publish(
        self, topic: str, body: bytes, *, delta: bool = False, **options: Unpack[PublishOptions]
    ) -> None:
        """Publish a message. It is kept and sent again until the server has persisted it.

        Raises:
            PublishStoreFullError: too many messages wait for that, and none was in time.
        """
        self._wait_for_room()
        super().publish(topic, body, delta=delta, **options)

    def publish_all(self, topic: str, bodies: Iterable[bytes], *, delta: bool = False) -> None:
        """Publish many messages, with few writes."""
        for chunk in chunks(bodies):
            self._wait_for_room()
            super().publish_all(topic, chunk, delta=delta)

    def confirmed_publish(
        self,
        topic: str,
        body: bytes,
        ack: AckType = "persisted",
        *,
        delta: bool = False,
        timeout: float | None = None,
        **options: Unpack[PublishOptions],
    ) -> Header:
        """Publish a message and wait until the server acknowledges it."""
        self._wait_for_room()
        return super().confirmed_publish(topic, body, ack, delta=delta, timeout=timeout, **options)

    def flush(self, *, timeout: float | None = None) -> None:
        """Wait until all messages are persisted or refused, and all commands processed."""
        store, last = self.publish_store, self.publish_store.last_sequence
        deadline = time.monotonic() + self._timeout_or(timeout)
        self.wait_until(
            lambda: not store.holds_up_to(last),
            self._timeout_or(timeout),
            f"the acknowledgement of message {last}",
        )
        super().flush(timeout=max(0.0, deadline - time.monotonic()))

    def _wait_for_room(self) -> None:
        store = self.publish_store
        if not store.is_full:
            return
        try:
            self.wait_until(lambda: not store.is_full, self._timeout, "room")
        except TimedOutError:
            raise PublishStoreFullError(
                f"no room in the publish store within {self._timeout:g} seconds:"
                f" {len(store)} messages are not known to be persisted"
            ) from None

    # Staying connected

    def wait_until(self, arrived: Callable[[], bool], timeout: float | None, what: str) -> None:
        """Read, write and reconnect until something has arrived.

        Raises:
            TimedOutError: it has not arrived in time.
            GaveUpError: the back-off allows no more attempts.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not arrived():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if self._connection is None:
                self._reconnect(left, what)
                continue
            try:
                self._connection.wait_until(arrived, left, what)
            except ConnectionLostError as error:
                self._take_loss(error)

    @property
    def _protocol(self) -> RecoveringProtocol:
        if self._recovering is None:
            raise ConnectionLostError("not connected")
        return self._recovering

    def _write(self) -> None:
        if self._connection is None and self._due_in() <= 0:
            self._attempt(self._timeout)
        if self._connection is None:
            return
        try:
            self._connection.write(self._timeout)
            self._unread += 1
            if self._unread >= MESSAGES_BETWEEN_READS:
                self._unread = 0
                self._connection.receive_some()
        except ConnectionLostError as error:
            self._take_loss(error)

    def _notice_silence(self, allowed: float) -> None:
        self._silence_allowed = allowed
        if self._connection is not None:
            self._connection.notice_silence(allowed)

    def _take_loss(self, error: ConnectionLostError) -> None:
        if self._connection is not None:
            self._connection = None
            self._plan.lost()
            self._tell(ConnectionState.DISCONNECTED, self._server, error)

    def _reconnect(self, left: float | None, what: str) -> None:
        """Wait for the next attempt, and make it.

        Args:
            left: seconds that the caller has.
            what: what the caller waits for.
        """
        delay = self._due_in()
        if left is not None and delay >= left:
            time.sleep(left)
            raise TimedOutError(f"{what} did not come in time: {self._plan.trouble}")
        time.sleep(delay)
        self._attempt(self._timeout if left is None else min(self._timeout, left - delay))

    def _due_in(self) -> float:
        protocol = self._protocol
        try:
            return self._plan.due_in(time.monotonic())
        except GaveUpError as error:
            if not protocol.is_closed:
                protocol.give_up(error)
                self._tell(ConnectionState.GAVE_UP, self._server, error)
            raise

    def _attempt(self, timeout: float) -> None:
        server = self._plan.server
        try:
            connection = self._log_on(server, timeout)
        except ClientError as error:
            self._plan.failed(time.monotonic(), error)
            self._tell(ConnectionState.DISCONNECTED, server.uri, error)
            return
        self._plan.succeeded()
        self._connection = connection
        if self._silence_allowed is not None:
            connection.notice_silence(self._silence_allowed)
        self._tell(ConnectionState.RECOVERED, server.uri)

    def _log_on(self, server: Server, timeout: float) -> BlockingConnection:
        protocol = self._protocol
        connection = BlockingConnection(protocol, server.uri, timeout, self._ssl_context)
        self._server = server.uri
        self._tell(ConnectionState.CONNECTED, server.uri)
        authenticator = server.authenticator or self._authenticator
        dialogue = LogonDialogue(
            protocol, self.name, server.uri, authenticator, self._logon_options
        )
        try:
            answer = connection.log_on(dialogue, timeout)
        except ClientError as error:
            connection.close(error)
            raise
        self._tell(ConnectionState.LOGGED_ON, server.uri)
        protocol.logged_on(answer)
        return connection

    def _tell(
        self, state: ConnectionState, server: ServerUri | None, error: ClientError | None = None
    ) -> None:
        if self._on_state is not None:
            self._on_state(ConnectionEvent(state, server, error))
