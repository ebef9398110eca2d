"""The live statements of one connection: SUBSCRIBE, LISTEN, UNLISTEN and NOTIFY.

They are called on worker threads, and do their work on the engine's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from server.engine.commands.errors import CommandRefusedError
from server.sql.live.channels import MAX_CHANNELS, ChannelSink
from server.sql.live.converter import ChangeConverter, EvaluatedConverter
from server.sql.live.feed import LiveFeed
from server.sql.live.rows import LiveRows
from server.sql.live.subscriber import LiveSubscriber
from server.sql.query.errors import (
    FEATURE_NOT_SUPPORTED,
    QUERY_CANCELED,
    UNDEFINED_TABLE,
    SqlError,
)
from server.sql.query.statement import StatementKind
from server.sql.tables.catalogue import is_configured
from server.sql.tables.columns import Metadata, body_column
from server.sql.tables.errors import ColumnsWidenedError, ScanError
from server.sql.tables.record_test import make_record_test
from server.sql.tables.row_conversion import MisfitError
from server.util.limits import MAX_TOPIC_NAME_LENGTH

if TYPE_CHECKING:
    import pyarrow as pa

    from server.engine.session import Session
    from server.expressions.tree import Expr
    from server.message_types.base import MessageType
    from server.sql.query.cancellation import Cancellation
    from server.sql.query.live_terms import LivePlan, LiveTerms, TopicName
    from server.sql.query.statement import Statement
    from server.sql.tables.catalogue import SessionTables
    from server.sql.tables.scan import ScanPlan

_ResultT = TypeVar("_ResultT")

_CALL_TIMEOUT_S: Final = 30.0
"""Time limit for a call on the engine's thread."""

_TOO_MANY_CHANNELS: Final = "53400"
_DEFAULT_TYPE: Final = "json"
"""The message type of topics that are not in use yet, if their names say none."""

_SNAPSHOT_BATCH_SIZE: Final = 2048


class LiveStatements:
    """The live statements of a connection.

    Args:
        tables: the tables of the client's user.
        session: the client's session.
        post: schedules a call on the engine's thread.
        notify: takes notifications, on the engine's thread.
    """

    def __init__(
        self,
        tables: SessionTables,
        session: Session,
        post: Callable[[Callable[[], None]], None],
        notify: Callable[[bytes], None],
    ) -> None:
        self._tables: Final = tables
        self._session: Final = session
        self._engine: Final = session.engine
        self._post: Final = post
        self._notify: Final = notify
        self._subscribers: set[LiveSubscriber] = set()  # of SUBSCRIBE
        self._channels: dict[tuple[str, str], LiveSubscriber] = {}
        self._publishers: dict[str, LiveSubscriber] = {}
        self._is_closed = False

    # ---- on worker threads

    def subscribe(
        self, terms: LiveTerms, plan: LivePlan | None, cancellation: Cancellation
    ) -> LiveRows:
        """Begin a SUBSCRIBE.

        Args:
            terms: its terms.
            plan: its plan; None if its topic is no table.
            cancellation: ends it.

        Raises:
            ColumnsWidenedError: records have values that their columns do not hold; those of a
                new plan do.
            SqlError: it cannot begin.
        """
        clock, charge = self._engine.clock, self._session.charge_memory
        subscribers: list[LiveSubscriber] = []
        end = partial(self._end, subscribers)
        feed = LiveFeed(clock, charge, end)
        close = partial(self._close_feed, feed, subscribers)
        if plan is None:
            assert terms.topic is not None  # noqa: S101 - without a plan there is no query
            topic = terms.topic
            output = self._call(lambda: self._follow_messages(topic, feed, subscribers))
            messages = ChangeConverter(
                self._message_type(subscribers[0]),
                (output,),
                (output.value.name,),
                has_progress=terms.has_progress,
            )
            return LiveRows(
                feed,
                messages,
                (),
                cancellation,
                lambda _: None,
                partial(self._post, close),
                has_progress=terms.has_progress,
            )
        began_s: list[float] = []

        def on_begin(scan_plan: ScanPlan, requested: Expr | None) -> None:
            self._follow_records(scan_plan, requested, feed, subscribers)
            began_s.append(feed.read_time())

        try:
            scan_plan, chunks = self._tables.scan_live(
                plan.request, on_begin, has_snapshot=terms.has_snapshot
            )
            by_name = dict(zip(plan.request.columns, scan_plan.outputs, strict=True))
            source = ChangeConverter(
                scan_plan.source.table.message_type,
                [by_name[column.source] for column in plan.columns],
                [column.name for column in plan.columns],
                has_progress=terms.has_progress and plan.evaluation is None,
            )
            converter = (
                source
                if plan.evaluation is None
                else EvaluatedConverter(
                    source, plan.evaluation, cancellation, has_progress=terms.has_progress
                )
            )
            snapshot: list[pa.RecordBatch] = []
            for chunk in chunks:
                cancellation.check()
                batch = converter.convert_snapshot(chunk, began_s[0])
                snapshot += (
                    batch.slice(start, _SNAPSHOT_BATCH_SIZE)
                    for start in range(0, batch.num_rows, _SNAPSHOT_BATCH_SIZE)
                )
        except MisfitError as misfit:
            self._post(close)
            self._tables.widen(scan_plan.topic_columns, misfit)
            raise ColumnsWidenedError("columns have got values of another type meanwhile") from None
        except BaseException:
            self._post(close)
            raise
        return LiveRows(
            feed,
            converter,
            snapshot,
            cancellation,
            partial(self._tables.widen, scan_plan.topic_columns),
            partial(self._post, close),
            has_progress=terms.has_progress,
        )

    def execute(self, statement: Statement) -> None:
        """Execute LISTEN, UNLISTEN or NOTIFY.

        Raises:
            SqlError: there is no such topic for the user, there are too many channels, or the
                message is refused.
        """
        topic = statement.topic
        if statement.kind is StatementKind.UNLISTEN or topic is None:
            self.unlisten(topic)
        elif statement.kind is StatementKind.LISTEN:
            self._call(lambda: self._listen(topic))
        else:
            body = (statement.value or "").encode()
            self._call(lambda: self._publish(topic, body))

    def unlisten(self, topic: TopicName | None) -> None:
        """Notify the client of the messages of a topic no more; None for all topics."""
        self._call(lambda: self._unlisten(topic))

    def _call(self, call: Callable[[], _ResultT]) -> _ResultT:
        """Call a function on the engine's thread."""
        result: Future[_ResultT] = Future()

        def run() -> None:
            try:
                result.set_result(call())
            except Exception as error:
                result.set_exception(error)

        try:
            self._post(run)
        except RuntimeError:
            raise ScanError("the instance is stopping") from None
        try:
            return result.result(_CALL_TIMEOUT_S)
        except TimeoutError:
            raise ScanError("the engine is busy: no answer in time") from None

    # ---- on the engine's thread

    def close(self) -> None:
        """End everything: the connection has ended."""
        self._is_closed = True
        for subscriber in [
            *self._subscribers,
            *self._channels.values(),
            *self._publishers.values(),
        ]:
            subscriber.end()
        self._subscribers.clear()
        self._channels.clear()
        self._publishers.clear()

    def _end(self, subscribers: list[LiveSubscriber]) -> None:
        for subscriber in subscribers:
            subscriber.end()
            self._subscribers.discard(subscriber)

    def _close_feed(self, feed: LiveFeed, subscribers: list[LiveSubscriber]) -> None:
        feed.close()
        self._end(subscribers)

    def _message_type(self, subscriber: LiveSubscriber) -> MessageType:
        return self._engine.settings.message_types[subscriber.message_type]

    def _make_subscriber(self, message_type: str) -> LiveSubscriber:
        if self._is_closed:
            raise SqlError(QUERY_CANCELED, "the connection was closed")
        return LiveSubscriber(self._session, message_type)

    def _follow_records(
        self,
        plan: ScanPlan,
        requested: Expr | None,
        feed: LiveFeed,
        subscribers: list[LiveSubscriber],
    ) -> None:
        source = plan.source
        if source.is_container:
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                f'"{source.name}" has records of many topics, which are not followed together',
                hint="Subscribe with a client of the amps protocol.",
            )
        if plan.filter is not None:
            feed.matches = make_record_test(source.table, plan.filter)
        if plan.permitted is not None:
            feed.redact = plan.permitted.apply
        subscriber = self._make_subscriber(source.type_name)
        subscribers.append(subscriber)
        self._subscribers.add(subscriber)
        try:
            subscriber.subscribe(source.name, requested, feed, feed.fail, tracks_focus=True)
        except CommandRefusedError:
            raise _missing_topic(source.name) from None

    def _follow_messages(
        self, topic: TopicName, feed: LiveFeed, subscribers: list[LiveSubscriber]
    ) -> Metadata:
        message_type, name = self._find_topic(topic)
        self._refuse_queue(message_type, topic)
        if self._engine.sow_registry.find(message_type, name) is not None:
            raise _missing_topic(str(topic), topic.position)
        subscriber = self._make_subscriber(message_type)
        subscribers.append(subscriber)
        self._subscribers.add(subscriber)
        try:
            subscriber.subscribe(name, None, feed, feed.fail, tracks_focus=False)
        except CommandRefusedError:
            raise _missing_topic(str(topic), topic.position) from None
        return body_column(self._engine.settings.message_types[message_type])

    def _listen(self, topic: TopicName) -> None:
        message_type, name = self._find_topic(topic)
        if (message_type, name) in self._channels:
            return
        if len(self._channels) >= MAX_CHANNELS:
            raise SqlError(
                _TOO_MANY_CHANNELS, f"a session listens on at most {MAX_CHANNELS} channels"
            )
        self._refuse_queue(message_type, topic)
        body = body_column(self._engine.settings.message_types[message_type])
        sink = ChannelSink(str(topic), self._notify, is_text=body is Metadata.BODY)
        subscriber = self._make_subscriber(message_type)
        try:
            subscriber.subscribe(
                name,
                None,
                sink,
                lambda _: self._forget_channel(message_type, name),
                tracks_focus=False,
            )
        except CommandRefusedError:
            raise _missing_topic(str(topic), topic.position) from None
        self._channels[message_type, name] = subscriber

    def _forget_channel(self, message_type: str, name: str) -> None:
        self._channels.pop((message_type, name), None)

    def _unlisten(self, topic: TopicName | None) -> None:
        if topic is None:
            ended = list(self._channels)
        else:
            ended = [
                channel
                for channel in self._channels
                if channel[1] == topic.name and topic.schema in ("", "amps", channel[0])
            ]
        for channel in ended:
            self._channels.pop(channel).end()

    def _publish(self, topic: TopicName, body: bytes) -> None:
        message_type, name = self._find_topic(topic)
        publisher = self._publishers.get(message_type)
        if publisher is None:
            publisher = self._publishers[message_type] = self._make_subscriber(message_type)
        publisher.publish(name, body)

    def _find_topic(self, topic: TopicName) -> tuple[str, str]:
        """Return the message type and the name of a topic.

        Without a schema it is the transport's type; or the only type that has such a topic; or json
        if no type has one.

        Raises:
            SqlError: the name is not valid, or of several types.
        """
        engine, own = self._engine, self._session.connection_context.message_type
        types = engine.settings.message_types
        if not topic.name or len(topic.name) > MAX_TOPIC_NAME_LENGTH:
            raise _missing_topic(str(topic), topic.position)
        if topic.schema not in ("", "amps"):
            if topic.schema not in types or own not in (None, topic.schema):
                raise _missing_topic(str(topic), topic.position)
            return topic.schema, topic.name
        if own is not None:
            return own, topic.name
        found = [name for name in types if self._is_known(name, topic.name)]
        if not found and _DEFAULT_TYPE in types:
            found = [_DEFAULT_TYPE]
        if len(found) != 1:
            raise SqlError(
                UNDEFINED_TABLE,
                f'"{topic}" may be a topic of several message types',
                hint=f'Name it: {(found or list(types))[0]}."{topic.name}".',
                position=topic.position,
            )
        return found[0], topic.name

    def _is_known(self, message_type: str, name: str) -> bool:
        engine = self._engine
        return engine.topics.is_in_use(message_type, name) or is_configured(
            engine, message_type, name
        )

    def _refuse_queue(self, message_type: str, topic: TopicName) -> None:
        queues = self._engine.topics.queues
        if queues is not None and queues.find(message_type, topic.name) is not None:
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                f'"{topic}" is a queue, whose messages go to one consumer each',
                hint="Consume it with a client of the amps protocol.",
                position=topic.position,
            )


def _missing_topic(name: str, position: int | None = None) -> SqlError:
    return SqlError(UNDEFINED_TABLE, f'relation "{name}" does not exist', position=position)
