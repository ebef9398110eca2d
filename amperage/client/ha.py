"""A blocking client that stays connected: it reconnects, resubscribes and publishes again.

Its thread (`amperage.client.session_keeping`) makes the attempts, whatever the application does
meanwhile: commands that are given without a session wait for the next, within their timeout, and
messages that are published go into the publish store.
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
from amperage.client.commands import LogonOptions
from amperage.client.commands import logon_options as checked_logon_options
from amperage.client.errors import TimedOutError, again
from amperage.client.file_publish_store import check_client_name
from amperage.client.ha_arguments import check_ha_arguments
from amperage.client.limits import DEFAULT_HEARTBEAT, DEFAULT_TIMEOUT, HEARTBEATS_MISSED
from amperage.client.numbering import RefusalListener
from amperage.client.publish_store import PublishStorage, PublishStore, warn_of_unpersisted
from amperage.client.reconnection import Reconnection
from amperage.client.recovery import RecoveringProtocol
from amperage.client.servers import Server, ServerChooser
from amperage.client.session_keeping import SessionKeeper, SessionOptions
from amperage.client.states import StateListener
from amperage.client.store_claims import claim_stores, release_stores
from amperage.client.time_limit import TimeLimit
from amperage.client.uri import ServerUri


class HAClient(BlockingCommands):
    """A client of whichever of several servers can be reached.

    Any thread may give commands and iterate streams.

    Args:
        servers: URIs in order, or a chooser.
        name: the client name; it must be unique, and the same in every run of a program that wants
            the server to recognise its messages. One is made up if None.
        backoff: how long to wait between rounds of attempts, and when to give up.
        heartbeat: seconds between heartbeats; a server that is silent for two of them has gone.
            None for no heartbeats: a server that vanishes without closing the connection is then
            noticed when the operating system gives up, if ever.
        publish_store: keeps messages until they are persisted; None for one in memory. From
            `connect` to `close` no other client may use it, and `close` leaves it open.
        bookmark_store: keeps where bookmark subscriptions stand; None for one in memory. The same
            holds for it.
        on_state: called with a `ConnectionEvent` for each change of the connection's state.
        on_refused: called with each published message that the server refuses, a `StoredMessage`,
            and the error; None to have `flush` raise `MessagesRefusedError`. This and `on_state`
            are called by the client's thread and must not wait.
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
        heartbeat: int | None = DEFAULT_HEARTBEAT,
        publish_store: PublishStorage | None = None,
        bookmark_store: BookmarkStorage | None = None,
        on_state: StateListener | None = None,
        on_refused: RefusalListener | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        authenticator: Authenticator | None = None,
        ssl_context: ssl.SSLContext | None = None,
        logon_options: LogonOptions | None = None,
    ) -> None:
        super().__init__(timeout)
        handler("on_refused", on_refused)
        handler("on_state", on_state)
        check_ha_arguments(
            authenticator, ssl_context, backoff, heartbeat, publish_store, bookmark_store
        )
        self.name = check_client_name(name, publish_store)
        self.publish_store = PublishStore() if publish_store is None else publish_store
        self.bookmark_store = BookmarkStore() if bookmark_store is None else bookmark_store
        chooser = servers if isinstance(servers, ServerChooser) else ServerChooser(servers)
        self._plan = Reconnection(chooser, backoff or Backoff(), random.random)
        self._heartbeat = heartbeat
        self._on_refused = on_refused
        self._options = SessionOptions(
            name=self.name,
            timeout=timeout,
            authenticator=authenticator or PasswordAuthenticator(),
            ssl_context=ssl_context,
            logon_options=checked_logon_options(logon_options),
            on_state=on_state,
        )
        self._session: tuple[SessionKeeper, RecoveringProtocol] | None = None
        self._server: ServerUri | None = None
        self._forgetting: weakref.finalize[[], HAClient] | None = None

    def __repr__(self) -> str:
        state = "not connected"
        if self._session is not None and self._session[0].connection is not None:
            state = f"connected to {self.server}"
        return f"<{type(self).__name__} {self.name}: {state}>"

    # The connection

    def connect(self, *, timeout: float | None = None) -> None:
        """Connect to one of the servers and log on.

        Args:
            timeout: seconds for all attempts together.

        Raises:
            TimedOutError: no attempt has succeeded in time; they go on.
            GaveUpError: the back-off allows no more attempts.
        """
        self.close()
        claim_stores(self, publish_store=self.publish_store, bookmark_store=self.bookmark_store)
        protocol = RecoveringProtocol(self.publish_store, self.bookmark_store, self._on_refused)
        self._plan.restart()
        keeper = SessionKeeper(self._guard, protocol, self._plan, self._options)
        if self._heartbeat is not None:
            protocol.set_heartbeat(self._heartbeat)
            keeper.silence_allowed = float(self._heartbeat * HEARTBEATS_MISSED)
        self._session = keeper, protocol
        self._forgetting = weakref.finalize(self, keeper.forget)
        self._forgetting.atexit = False
        keeper.start()
        self._wait_until(
            lambda: keeper.connection is not None or protocol.is_closed,
            self._limit(timeout),
            "a session",
        )
        if protocol.is_closed:
            raise again(protocol.end_reason)

    def close(self) -> None:
        """Close the connection; streams end.

        What is in the publish store stays there. If there is something, the log says so
        (logger `amperage.client`): the messages are lost with a store in memory, unless another
        client is given it.
        """
        if self._session is None:
            return
        self._send_acks()
        (keeper, _), self._session = self._session, None
        self._server = keeper.server
        if self._forgetting is not None:
            self._forgetting.detach()
        keeper.stop()
        release_stores(self, self.publish_store, self.bookmark_store)
        warn_of_unpersisted(self.name, self.publish_store)

    @property
    def server(self) -> ServerUri | None:
        """The server that the client is, or was last, connected to."""
        return self._server if self._session is None else self._session[0].server

    # Publishing

    def publish_flush(self, timeout: float | None = None) -> None:
        """Wait until everything in the publish store is persisted or refused.

        Args:
            timeout: seconds to wait.

        Raises:
            TimedOutError: that took longer.
            MessagesRefusedError: as of `flush`.
        """
        protocol = self._protocol
        self._wait_for_store(protocol.messages, self._limit(timeout))
        if protocol.is_closed:
            raise again(protocol.end_reason)
        protocol.refusals.raise_if_any()

    # Staying connected

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
            raise limit.exceeded(what, self._plan.trouble) from None

    @property
    def _protocol(self) -> RecoveringProtocol:
        return self._sessions()[1]

    def _sessions(self) -> tuple[SessionKeeper, RecoveringProtocol]:
        if self._session is None:
            raise not_connected()
        return self._session

    def _write(self) -> int:
        connection = self._sessions()[0].connection
        return 0 if connection is None else connection.send_some()

    def _wait_to_write(self, mark: int) -> None:
        keeper = self._sessions()[0]
        if keeper.connection is not None:
            keeper.connection.wait_for_room(mark, self._timeout)

    def _notice_silence(self, allowed: float) -> None:
        self._sessions()[0].notice_silence(allowed)
