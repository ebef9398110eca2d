"""The subscriber behind a SUBSCRIBE or a LISTEN: a session of its own for one subscription.

A SQL session sees topics of several message types, a subscriber has one; and messages for several
subscriptions of one session are framed together, while each of these has a sink of its own. So each
gets a session inside the server, with user and permissions of the client. It is not listed among
the sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from amperage.wire.framing import FrameReader
from amperage.wire.header import Header
from server.engine.commands.dispatch import AFTER_LOGON
from server.engine.commands.errors import CommandRefusedError
from server.engine.connection_context import ConnectionHandle
from server.engine.session import Session
from server.expressions import ContextKind, ExpressionError
from server.expressions.context_rules import check_tree
from server.expressions.topic_names import select_topics
from server.security.permissions import Permission
from server.sql.query.errors import (
    FEATURE_NOT_SUPPORTED,
    INSUFFICIENT_PRIVILEGE,
    INTERNAL_ERROR,
    SqlError,
)
from server.topics.subscriptions.subscription import Subscription

if TYPE_CHECKING:
    from server.expressions.tree import Expr
    from server.topics.subscriptions.delivery.sink import MessageSink


class LiveSubscriber(Session):
    """A client inside the server on behalf of a SQL session.

    Args:
        session: the SQL session.
        message_type: the name of the message type of its topic.
    """

    def __init__(self, session: Session, message_type: str) -> None:
        engine = session.engine
        connection = ConnectionHandle(
            session.address, send=lambda _: None, close_after_flush=lambda: None
        )
        super().__init__(
            engine,
            engine.allocate_internal_number(),
            session.connection_context,
            session.client_name,
            connection,
            FrameReader(),
        )
        self.user = session.user
        self.permissions = session.permissions
        self.log_on(session.client_name, message_type)
        self._on_failure: Callable[[SqlError], None] = lambda _: None
        self._is_ended: bool = False
        self._sub_id: Final = f"{session.connection_name}-live{-self.number}"

    def subscribe(
        self,
        topic: str,
        filter_: Expr | None,
        sink: MessageSink,
        on_failure: Callable[[SqlError], None],
        *,
        tracks_focus: bool,
    ) -> None:
        """Subscribe to one topic.

        Args:
            topic: the name of the topic.
            filter_: the filter of the messages, None for all.
            sink: takes the messages.
            on_failure: called if the subscription ends by a failure.
            tracks_focus: whether records that match no more are told.

        Raises:
            CommandRefusedError: the user may not read the topic.
            SqlError: the user's permitted records cannot be followed.
        """
        permit = self.require_permission(Permission.READ_TOPIC, topic)
        if tracks_focus and permit.filter is not None:
            functions = self.engine.settings.functions
            try:
                check_tree(permit.filter, ContextKind.STABLE_FILTER, functions, permit.filter_text)
            except ExpressionError:
                raise SqlError(
                    FEATURE_NOT_SUPPORTED,
                    f'the records of "{topic}" that the user may see do not depend on the records'
                    " alone, so they cannot be followed",
                    hint="Query the topic from time to time.",
                ) from None
        self._on_failure = on_failure
        self.add_subscription(
            Subscription(
                self,
                self._sub_id,
                select_topics(topic, literal=True),
                filter_,
                tracks_focus=tracks_focus,
                began_with_query=tracks_focus,
                sink=sink,
            )
        )
        self.log.emit(
            "14-0001",
            client=self.client_name,
            command="sql subscribe",
            sub_id=self._sub_id,
            topic=topic,
            filter=None,
            options=None,
        )

    def end(self) -> None:
        """End the subscription; harmless if it has ended."""
        if not self._is_ended:
            self._is_ended = True
            if self.remove_subscription(self._sub_id) is not None:
                self.log.emit("14-0002", client=self.client_name, sub_id=self._sub_id)
            self.outbox.close()

    def publish(self, topic: str, body: bytes) -> None:
        """Publish a message.

        Raises:
            SqlError: it is refused.
        """
        engine = self.engine
        self.last_input_s = engine.clock.now()
        self.last_input_steady_s = engine.clock.steady_unpaused()
        engine.internal_publishes.add(1, len(body))
        try:
            AFTER_LOGON["publish"](self, Header(command="publish", topic=topic), body)
        except CommandRefusedError as error:
            raise SqlError(
                INSUFFICIENT_PRIVILEGE if error.reason == "not entitled" else FEATURE_NOT_SUPPORTED,
                f"the message was refused: {error.reason}",
                detail=str(error),
            ) from None
        engine.flush()

    def report_subscription_failure(self, sub_id: str, topic: str, error: Exception) -> None:
        """See `Session.report_subscription_failure`; the statement fails, too."""
        super().report_subscription_failure(sub_id, topic, error)
        self._on_failure(SqlError(INTERNAL_ERROR, f"the subscription has ended: {error}"))
