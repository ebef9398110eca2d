"""The past of a SUBSCRIBE AS OF: changes of the transaction log, and the hand-over to live ones.

    the log:     1 2 3 | 4 5 6 7 8 | 9 10 11 ...
                 past    replayed    live
                       |           |
             the moment            the end of the log when the subscription is placed

It is read on the worker thread, no faster than the client takes the rows, so that nothing has to
wait in memory. Near its end, the subscription is placed, and the records that are present are read
as of that step of the engine. The rest of the log up to there is read, then the records of both
sides are compared, and live changes follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from server.expressions.regex.budget import TooCostlyError
from server.sql.live.past_records import PastRecords, to_seconds
from server.sql.tables.errors import InvalidFilterError, ScanError
from server.sql.tables.history_stream import wait_until_durable
from server.storage.journal import MESSAGES, JournalEntryKind, JournalUnreadableError, LogSpan
from server.storage.sow.records import Record

if TYPE_CHECKING:
    from server.sql.live.feed import Change, LiveFeed
    from server.sql.live.log_position import LogPosition
    from server.sql.query.cancellation import Cancellation
    from server.sql.tables.history_rows import EntryFilter
    from server.sql.tables.row_chunk import RowChunk
    from server.storage.journal import JournalCursor, JournalEntry, JournalTopic
    from server.topics.transaction_log import TransactionLog

_BATCH_ENTRIES: Final = 256
_BATCH_BYTES: Final = 256 * 1024
"""Entries, and bytes of bodies, that are read at once."""

_HANDOVER_ENTRIES: Final = 1000
"""Entries of the log, of any topics, that may be left when the subscription is placed."""

_KINDS: Final = MESSAGES | {JournalEntryKind.SOW_DELETE}


class LiveStart(NamedTuple):
    """The step of the engine in which the subscription was placed.

    Attributes:
        last_txid: the last entry before the live changes.
        is_durable: completed when that entry can be read.
        time_s: the time, in seconds since 1970.
        present: the records that are present; none of topics without records.
    """

    last_txid: int
    is_durable: Future[None]
    time_s: float
    present: Sequence[RowChunk] = ()


def live_start(log: TransactionLog, feed: LiveFeed, last_s: float) -> LiveStart:
    """Return the step of the engine in which a subscription has been placed; in that step."""
    feed.advance_time(last_s)
    last_txid = log.last_txid
    is_durable: Future[None] = Future()
    if log.journal.write_error is None:
        log.when_durable(lambda: is_durable.set_result(None))
    else:  # entries that are not on stable storage never will be
        last_txid = log.durable_txid
        is_durable.set_result(None)
    return LiveStart(last_txid, is_durable, feed.read_time())


class PastTopic(Protocol):
    """A topic as the log has it."""

    def apply(self, entry: JournalEntry, time_us: int) -> Iterator[Change]:
        """Yield the changes that an entry makes."""

    def expire(self, time_us: int) -> Iterator[Change]:
        """Yield the expirations up to a time, in microseconds since 1970."""

    def reconcile(self, present: Sequence[RowChunk], time_s: float) -> Iterator[Sequence[Change]]:
        """Yield the differences from the rows that are present."""


class PastMessages:
    """The messages of a topic without records.

    Args:
        entry_filter: tests which messages the user may see.
        redact: removes the fields that the user may not see from a body.
    """

    def __init__(self, entry_filter: EntryFilter, redact: Callable[[bytes], bytes] | None) -> None:
        self._filter: Final = entry_filter
        self._redact: Final = redact

    def apply(self, entry: JournalEntry, time_us: int) -> Iterator[Change]:
        """See `PastTopic.apply`.

        Raises:
            InvalidFilterError: the filter takes too many steps.
        """
        try:
            is_included = entry.kind in MESSAGES and self._filter.matches(entry)
        except TooCostlyError as error:
            raise InvalidFilterError(str(error)) from None
        if is_included:
            body = entry.body if self._redact is None else self._redact(entry.body)
            yield to_seconds(time_us), 1, Record("", body, entry.topic.name)

    def expire(self, time_us: int) -> Iterator[Change]:  # noqa: ARG002 - see `PastTopic`
        """Yield nothing: messages do not expire."""
        return iter(())

    def reconcile(self, present: Sequence[RowChunk], time_s: float) -> Iterator[Sequence[Change]]:  # noqa: ARG002 - see `PastTopic`
        """Yield nothing: no messages are present."""
        return iter(())


class LogReplay:
    """Reads the log for one SUBSCRIBE; used by one worker thread at a time.

    Args:
        log: the transaction log.
        topic: the topic.
        position: where the changes begin.
        past: the topic, as the log has it.
        cancellation: ends it.
        on_handed_over: called when the log is not needed any more.
    """

    def __init__(
        self,
        log: TransactionLog,
        topic: JournalTopic,
        position: LogPosition,
        past: PastTopic,
        cancellation: Cancellation,
        on_handed_over: Callable[[], None],
    ) -> None:
        self._on_handed_over: Final = on_handed_over
        self._log: Final = log
        self._topic: Final = topic
        self._position: Final = position
        self._past: Final = past
        self._cancellation: Final = cancellation
        self._last_s = to_seconds(position.timestamp_us)

    def read_past(self, after_txid: int) -> None:
        """Read the entries up to the moment, from behind a place at which the records are known.

        Raises:
            ScanError: the log cannot be read, or the records take too much memory.
        """
        position = self._position
        cursor = self._cursor(LogSpan(after_txid, last_txid=max(position.after_txid, after_txid)))
        for _ in self._read(cursor, lambda: False):
            pass  # only the state after all changes counts
        for _ in self._past.expire(position.timestamp_us):
            pass

    def changes(self, hand_over: Callable[[], LiveStart]) -> Iterator[Sequence[Change]]:
        """Yield the changes from the moment to the live ones.

        Args:
            hand_over: places the subscription.

        Raises:
            ScanError: the log cannot be read, or the records take too much memory.
        """
        log = self._log
        cursor = self._cursor(LogSpan(self._position.after_txid))
        yield from self._read(
            cursor, lambda: log.journal.last_txid - cursor.position <= _HANDOVER_ENTRIES
        )
        live = hand_over()
        wait_until_durable(live.is_durable, lambda: self._cancellation.is_cancelled)
        self._cancellation.check()
        rest = self._cursor(LogSpan(cursor.position, last_txid=live.last_txid))
        for changes in self._read(rest, lambda: False):
            yield [(min(time_s, live.time_s), diff, record) for time_s, diff, record in changes]
        self._on_handed_over()
        for changes in self._past.reconcile(live.present, live.time_s):
            if changes:
                yield changes

    @property
    def last_s(self) -> float:
        """The time of the last change, in seconds since 1970."""
        return self._last_s

    def _cursor(self, span: LogSpan) -> JournalCursor:
        return self._log.journal.replay(span, self._topic.__eq__, _KINDS)

    def _read(
        self, cursor: JournalCursor, is_enough: Callable[[], bool]
    ) -> Iterator[Sequence[Change]]:
        """Yield changes until the end of the cursor's span, or of the entries on stable storage."""
        correction = self._log.journal.clock_steps.correction
        while not cursor.is_caught_up and not is_enough():
            self._cancellation.check()
            before = cursor.position
            try:
                entries = cursor.read(_BATCH_ENTRIES, _BATCH_BYTES)
            except JournalUnreadableError as error:
                raise ScanError(f"the transaction log cannot be read: {error}") from None
            if not entries and cursor.position == before:
                return
            changes: list[Change] = []
            for entry in entries:
                for time_s, diff, record in self._past.apply(
                    entry, entry.timestamp + correction(entry.txid)
                ):
                    self._last_s = max(self._last_s, time_s)
                    changes.append((self._last_s, diff, record))
            self._position.hold.after_txid = max(cursor.position, self._position.hold.after_txid)
            if changes:
                yield changes


def snapshot_changes(past: PastRecords, position: LogPosition) -> Sequence[Change]:
    """Return the records at the moment, as changes."""
    return [(to_seconds(position.timestamp_us), 1, record) for record in past.records]
