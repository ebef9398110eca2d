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
from amperage.wire.header import Header, decode_frame
from server.engine.commands.dispatch import AFTER_LOGON
from server.engine.commands.errors import CommandRefusedError
from server.engine.connection_context import ConnectionHandle
from server.engine.session import Session
from server.expressions import ContextKind, ExpressionError
from server.expressions.context_rules import check_tree
from server.expressions.filter_form import content_filter_of
from server.expressions.topic_names import select_topics
from server.security.permissions import Permission
from server.sql.client_log import note_input
from server.sql.query.errors import SqlError
from server.sql.sqlstate import FEATURE_NOT_SUPPORTED, INSUFFICIENT_PRIVILEGE, INTERNAL_ERROR
from server.topics.subscriptions.subscription import Subscription, SubscriptionTerms

if TYPE_CHECKING:
    from server.expressions.tree import Expr
    from server.security.permissions import Permit
    from server.topics.subscriptions.delivery.sink import MessageSink


class LiveSubscriber:
    """A client inside the server on behalf of a SQL session.

    Args:
        session: the SQL session.
        message_type: the name of the message type of its topic.

    Attributes:
        message_type: see above.
    """

    def __init__(self, session: Session, message_type: str) -> None:
        engine = session.engine
        connection = ConnectionHandle(
            session.address, send=self._read_output, close_after_flush=lambda: None
        )
        own = Session(
            engine,
            engine.allocate_internal_number(),
            session.connection_context,
            session.client_name,
            connection,
            FrameReader(),
        )
        own.user = session.user
        own.permissions = session.permissions
        own.log_on(session.client_name, message_type)
        self.message_type: Final = message_type
        self._session: Final = own
        self._reader: Final = FrameReader()
        self._on_failure: Callable[[SqlError], object] = lambda _: None
        self._is_ended: bool = False
        self._sub_id: Final = f"{session.connection_name}-live{-own.number}"

    def read_permit(self, topic: str) -> Permit:
        """Return the user's permit to read a topic.

        Raises:
            CommandRefusedError: the user may not read it.
        """
        return self._session.require_permission(Permission.READ_TOPIC, topic)

    def subscribe(
        self,
        topic: str,
        filter_: Expr | None,
        sink: MessageSink,
        on_failure: Callable[[SqlError], object],
        *,
        tracks_focus: bool,
    ) -> None:
        """Subscribe to one topic.

        Args:
            topic: the name of the topic.
            filter_: the filter of the messages, None for all.
            sink: takes the messages.
            on_failure: called if the subscription ends by a failure.
            tracks_focus: whether removals from the result are sent.

        Raises:
            CommandRefusedError: the user may not read the topic.
            SqlError: the user's permitted records cannot be followed.
        """
        session = self._session
        permit = session.require_permission(Permission.READ_TOPIC, topic)
        if tracks_focus and permit.filter is not None:
            functions = session.engine.settings.functions
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
        session.add_subscription(
            Subscription(
                session,
                self._sub_id,
                SubscriptionTerms(
                    select_topics(topic, literal=True),
                    tracks_focus=tracks_focus,
                    began_with_query=tracks_focus,
                    sink=sink,
                ),
                content_filter_of(filter_),
            )
        )
        session.log.emit(
            "14-0001",
            client=session.client_name,
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
            session = self._session
            if session.remove_subscription(self._sub_id) is not None:
                session.log.emit("14-0002", client=session.client_name, sub_id=self._sub_id)
            session.outbox.close()

    def publish(self, topic: str, body: bytes) -> None:
        """Publish a message.

        Raises:
            SqlError: it is refused.
        """
        session = self._session
        engine = session.engine
        note_input(session)
        engine.internal_publishes.add(1, len(body))
        try:
            AFTER_LOGON["publish"](session, Header(command="publish", topic=topic), body)
        except CommandRefusedError as error:
            raise SqlError(
                INSUFFICIENT_PRIVILEGE if error.reason == "not entitled" else FEATURE_NOT_SUPPORTED,
                f"the message was refused: {error.reason}",
                detail=str(error),
            ) from None
        engine.flush()

    def _read_output(self, data: bytes) -> None:
        """Report the failure of the subscription, the only output: messages go to the sink."""
        for header, body in self._reader.feed(data):
            ack, _ = decode_frame(header, body)
            self._on_failure(SqlError(INTERNAL_ERROR, f"the subscription has ended: {ack.detail}"))
