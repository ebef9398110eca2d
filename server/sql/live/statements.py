"""The live statements of one connection: SUBSCRIBE, LISTEN, UNLISTEN and NOTIFY.

They are called on worker threads, and do their work on the engine's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from server.engine.commands.errors import CommandRefusedError
from server.sql.engine_thread import Post, call_engine
from server.sql.live.channels import MAX_CHANNELS, ChannelSink
from server.sql.live.converter import convert_all, make_converter, message_converter
from server.sql.live.feed import LiveFeed
from server.sql.live.log_position import find_log_position, find_past_start
from server.sql.live.log_replay import LogReplay, PastMessages, live_start, snapshot_changes
from server.sql.live.past_records import RECORD_METADATA, PastRecords, records_of
from server.sql.live.rows import LiveRows
from server.sql.live.subscriber import LiveSubscriber
from server.sql.query.errors import SqlError
from server.sql.query.statement import StatementKind
from server.sql.sqlstate import (
    CONFIGURATION_LIMIT_EXCEEDED,
    FEATURE_NOT_SUPPORTED,
    QUERY_CANCELED,
    UNDEFINED_TABLE,
)
from server.sql.tables.catalogue import is_configured
from server.sql.tables.columns import Metadata, body_column
from server.sql.tables.errors import ColumnsWidenedError, MisfitError
from server.sql.tables.history_rows import EntryFilter
from server.sql.tables.record_test import make_record_test
from server.storage.journal import JournalTopic
from server.storage.sow.topic_records import SowTopicRecords
from server.topics.subscriptions.delivery.presentation import SelectList
from server.util.limits import MAX_TOPIC_NAME_LENGTH

if TYPE_CHECKING:
    import pyarrow as pa

    from server.engine.session import Session
    from server.expressions.tree import Expr
    from server.security.permissions import Permit
    from server.sql.live.converter import ChangeConverter, EvaluatedConverter
    from server.sql.live.feed import Change
    from server.sql.live.log_position import LogHold, LogPosition
    from server.sql.live.log_replay import LiveStart
    from server.sql.query.cancellation import Cancellation
    from server.sql.query.live_terms import LivePlan, LiveTerms, TopicName
    from server.sql.query.statement import Statement
    from server.sql.query.tables import AsOf, Table
    from server.sql.tables.catalogue import SessionTables
    from server.sql.tables.scan import ScanPlan
    from server.storage.sow.history import HistoryPoint
    from server.topics.transaction_log import TransactionLog

_DEFAULT_TYPE: Final = "json"
"""The message type of topics that are not in use yet, if their names say none."""

_SNAPSHOT_BATCH_SIZE: Final = 2048


class _PastRequest(NamedTuple):
    """A SUBSCRIBE AS OF, with its feed, subscribers and holds, which end with it.

    Attributes:
        release: releases the holds, from any thread.
    """

    terms: LiveTerms
    as_of: AsOf
    cancellation: Cancellation
    log: TransactionLog
    feed: LiveFeed
    subscribers: list[LiveSubscriber]
    holds: list[LogHold]
    release: Callable[[], None]


class _PastBegin(NamedTuple):
    """The beginning of a SUBSCRIBE AS OF: see `LiveRows` for the others.

    Attributes:
        changes: the changes from the moment to the live ones.
    """

    converter: ChangeConverter | EvaluatedConverter
    snapshot: Sequence[pa.RecordBatch]
    changes: Iterator[Sequence[Change]]
    on_misfit: Callable[[MisfitError], None]


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
        post: Post,
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
        self._holds: set[LogHold] = set()
        self._is_closed = False

    # ---- on worker threads

    def subscribe(
        self,
        terms: LiveTerms,
        plan: LivePlan | None,
        cancellation: Cancellation,
        as_of: AsOf | None = None,
    ) -> LiveRows:
        """Begin a SUBSCRIBE.

        Args:
            terms: its terms.
            plan: its plan; None if its topic is no table.
            cancellation: ends it.
            as_of: the moment of the past at which it begins; None for now.

        Raises:
            ColumnsWidenedError: records have values that their columns do not hold; those of a
                new plan do.
            SqlError: it cannot begin.
        """
        if as_of is not None:
            return self._subscribe_as_of(terms, plan, cancellation, as_of)
        feed, subscribers, close = self._make_feed()
        if plan is None:
            assert terms.topic is not None  # noqa: S101 - without a plan there is no query
            topic = terms.topic
            output = call_engine(
                self._post, lambda: self._follow_messages(topic, feed, subscribers)
            )
            message_type = self._engine.settings.message_types[subscribers[0].message_type]
            messages = message_converter(message_type, output, terms)
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
            converter = make_converter(plan, scan_plan, terms, cancellation)
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

    def _make_feed(self) -> tuple[LiveFeed, list[LiveSubscriber], Callable[[], None]]:
        """Return a feed, a list for its subscribers, and a function that ends both."""
        subscribers: list[LiveSubscriber] = []
        feed = LiveFeed(
            self._engine.clock, self._session.charge_memory, partial(self._end, subscribers)
        )
        return feed, subscribers, partial(self._close_feed, feed, subscribers)

    # ---- on worker threads: SUBSCRIBE AS OF

    def _subscribe_as_of(
        self, terms: LiveTerms, plan: LivePlan | None, cancellation: Cancellation, as_of: AsOf
    ) -> LiveRows:
        """Begin a SUBSCRIBE at a moment of the past; see `subscribe`."""
        log = self._engine.transaction_log
        if log is None:
            raise SqlError(FEATURE_NOT_SUPPORTED, "there is no transaction log to begin from")
        feed, subscribers, close_feed = self._make_feed()
        holds: list[LogHold] = []

        def close() -> None:
            close_feed()
            self._release(holds)

        try:
            begin = self._begin_messages if plan is None else partial(self._begin_records, plan)
            begun = begin(
                _PastRequest(
                    terms,
                    as_of,
                    cancellation,
                    log,
                    feed,
                    subscribers,
                    holds,
                    partial(self._post, lambda: self._release(holds)),
                )
            )
        except BaseException:
            self._post(close)
            raise
        return LiveRows(
            feed,
            begun.converter,
            begun.snapshot,
            cancellation,
            begun.on_misfit,
            partial(self._post, close),
            convert_all(begun.converter, begun.changes),
            has_progress=terms.has_progress,
        )

    def _begin_records(self, plan: LivePlan, request: _PastRequest) -> _PastBegin:
        """Begin with the records of a topic at a moment."""
        log, cancellation, clock = request.log, request.cancellation, self._engine.clock
        call_engine(self._post, lambda: self._require_recorded(plan.request.table, request.log))
        position = self._find_position(request)
        starts: list[tuple[int, HistoryPoint | None]] = []
        scan_plan, _ = self._tables.scan_live(
            plan.request,
            lambda found, _: starts.append(
                find_past_start(found.source, position, log, clock.now())
            ),
            has_snapshot=False,
        )
        ((after_txid, point),) = starts
        source, functions = scan_plan.source, self._engine.settings.functions
        assert isinstance(source, SowTopicRecords)  # noqa: S101 - see _require_recorded
        past = PastRecords(
            source,
            EntryFilter(scan_plan.filter, source.table.message_type, functions),
            None if scan_plan.permitted is None else scan_plan.permitted.apply,
            self._tables.max_bytes,
            shows_expiry=Metadata.EXPIRES in scan_plan.outputs,
        )
        if point is not None:
            _, chunks = self._tables.scan_live(
                plan.request._replace(as_of=request.as_of),
                lambda *_: None,
                has_snapshot=True,
                metadata=RECORD_METADATA,
                point=point,
            )
            for chunk in chunks:
                for record in records_of(chunk, source.name):
                    past.put(record)
        topic = JournalTopic(source.type_name, source.name)
        replay = LogReplay(log, topic, position, past, cancellation, request.release)
        replay.read_past(after_txid)
        converter = make_converter(plan, scan_plan, request.terms, cancellation)
        on_misfit = partial(self._tables.widen, scan_plan.topic_columns)
        shown = snapshot_changes(past, position) if request.terms.has_snapshot else ()
        try:
            snapshot = list(convert_all(converter, [shown]))
        except MisfitError as misfit:
            on_misfit(misfit)
            raise ColumnsWidenedError("columns have values of other types now") from None

        def hand_over() -> LiveStart:
            starts: list[LiveStart] = []

            def on_begin(scan_plan: ScanPlan, requested: Expr | None) -> None:
                self._follow_records(scan_plan, requested, request.feed, request.subscribers)
                starts.append(live_start(log, request.feed, replay.last_s))

            _, present = self._tables.scan_live(
                plan.request, on_begin, has_snapshot=True, metadata=RECORD_METADATA
            )
            return starts[0]._replace(present=present)

        return _PastBegin(converter, snapshot, replay.changes(hand_over), on_misfit)

    def _begin_messages(self, request: _PastRequest) -> _PastBegin:
        """Begin with the messages of a topic without records after a moment."""
        terms, log = request.terms, request.log
        assert terms.topic is not None  # noqa: S101 - without a plan there is no query
        name = terms.topic
        topic, permit = call_engine(self._post, lambda: self._find_past_messages(name, request))
        message_type = self._engine.settings.message_types[topic.message_type]
        position = self._find_position(request)
        functions = self._engine.settings.functions
        redact = None
        if permit.select is not None:
            redact = SelectList(
                permit.select_text, permit.select, message_type, is_entitlement=True
            ).apply
        past = PastMessages(EntryFilter(permit.filter, message_type, functions), redact)
        replay = LogReplay(log, topic, position, past, request.cancellation, request.release)

        def begin() -> LiveStart:
            self._follow_messages(name, request.feed, request.subscribers)
            return live_start(log, request.feed, replay.last_s)

        converter = message_converter(message_type, body_column(message_type), terms)
        return _PastBegin(
            converter, (), replay.changes(lambda: call_engine(self._post, begin)), lambda _: None
        )

    def _find_position(self, request: _PastRequest) -> LogPosition:
        """Find the moment in the log, which is retained from there on."""

        def on_hold(hold: LogHold) -> None:
            if self._is_closed:
                raise SqlError(QUERY_CANCELED, "the connection was closed")
            request.holds.append(hold)
            self._holds.add(hold)

        return find_log_position(self._session, request.log, request.as_of, self._post, on_hold)

    # ---- on worker threads: LISTEN, UNLISTEN and NOTIFY

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
            call_engine(self._post, lambda: self._listen(topic))
        else:
            body = (statement.value or "").encode()
            call_engine(self._post, lambda: self._publish(topic, body))

    def unlisten(self, topic: TopicName | None) -> None:
        """Notify the client of the messages of a topic no more; None for all topics."""
        call_engine(self._post, lambda: self._unlisten(topic))

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
        self._release(list(self._holds))
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

    def _release(self, holds: Sequence[LogHold]) -> None:
        for hold in holds:
            hold.release()
            self._holds.discard(hold)

    def _require_recorded(self, table: Table, log: TransactionLog) -> None:
        """Check that the records of a table are made from messages of the log.

        Raises:
            SqlError: they are not.
        """
        topic = self._tables.find_topic(table)
        source = None if topic is None else topic.source
        if source is None:
            raise _missing_topic(table.name)
        if (
            not isinstance(source, SowTopicRecords)
            or source.is_container
            or not log.is_recorded(source.type_name, source.name)
        ):
            raise _not_recorded(table.name)

    def _find_past_messages(
        self, topic: TopicName, request: _PastRequest
    ) -> tuple[JournalTopic, Permit]:
        message_type, name = self._check_messages(topic)
        subscriber = self._make_subscriber(message_type)
        try:
            permit = subscriber.read_permit(name)
        except CommandRefusedError:
            raise _missing_topic(str(topic), topic.position) from None
        finally:
            subscriber.end()
        if not request.log.is_recorded(message_type, name):
            raise _not_recorded(str(topic), topic.position)
        return JournalTopic(message_type, name), permit

    def _check_messages(self, topic: TopicName) -> tuple[str, str]:
        """Return the message type and the name of a topic without records.

        Raises:
            SqlError: it is a queue, or has records that the user may not read.
        """
        message_type, name = self._find_topic(topic)
        self._refuse_queue(message_type, topic)
        if self._engine.sow_registry.find(message_type, name) is not None:
            raise _missing_topic(str(topic), topic.position)
        return message_type, name

    def _make_subscriber(self, message_type: str) -> LiveSubscriber:
        if self._is_closed:
            raise SqlError(QUERY_CANCELED, "the connection was closed")
        return LiveSubscriber(self._session, message_type)

    def _add_subscriber(
        self, message_type: str, subscribers: list[LiveSubscriber]
    ) -> LiveSubscriber:
        """Make the subscriber of a SUBSCRIBE, which ends with the others of the feed."""
        subscriber = self._make_subscriber(message_type)
        subscribers.append(subscriber)
        self._subscribers.add(subscriber)
        return subscriber

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
        subscriber = self._add_subscriber(source.type_name, subscribers)
        try:
            subscriber.subscribe(source.name, requested, feed, feed.fail, tracks_focus=True)
        except CommandRefusedError:
            raise _missing_topic(source.name) from None

    def _follow_messages(
        self, topic: TopicName, feed: LiveFeed, subscribers: list[LiveSubscriber]
    ) -> Metadata:
        message_type, name = self._check_messages(topic)
        subscriber = self._add_subscriber(message_type, subscribers)
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
                CONFIGURATION_LIMIT_EXCEEDED,
                f"a session listens on at most {MAX_CHANNELS} channels",
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
                lambda _: self._channels.pop((message_type, name), None),
                tracks_focus=False,
            )
        except CommandRefusedError:
            raise _missing_topic(str(topic), topic.position) from None
        self._channels[message_type, name] = subscriber

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


def _not_recorded(name: str, position: int | None = None) -> SqlError:
    return SqlError(
        FEATURE_NOT_SUPPORTED,
        f'the messages of "{name}" are not in the transaction log, so SUBSCRIBE begins with the'
        " present",
        hint="AS OF is for topics in the transaction log, not for views and conflated topics.",
        position=position,
    )
