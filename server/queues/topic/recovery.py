"""Recovers queues from the transaction log: their messages and events.

The state of a queue is the fold of the log: the messages of the topics that feed it, and its own
events, in one order. They are applied by the same calls as when they were recorded.

The fold begins at the txid in the cache (checkpoints.py): all earlier messages have left the queue.
If the cache does not have the queue, or has it with another RecoveryPoint, the fold begins at the
RecoveryPoint. If the cache refers to entries beyond the end of the log, it is used only for the
txid where a queue's messages begin.

Source: AMPS User Guide, Startup and Recovery for Queues; RecoveryPoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from server.queues.core import decode_with_domain
from server.storage.journal import EVENTS, MESSAGES, JournalEntryKind, LogSpan, parse_bookmark
from server.storage.journal.format.layout import CLIENT, KIND, SOURCE, TIMESTAMP, TXID
from server.storage.journal.publisher_table import publisher_part

if TYPE_CHECKING:
    from server.queues.topic.queue_table import QueueTable
    from server.queues.topic.queue_topic import QueueTopic
    from server.storage.journal import EntryBatch, Journal, JournalTopic
    from server.storage.journal.queue_points import QueuePoint
    from server.util.log_protocol import ServerLog

_BATCH_SIZE: Final = 4096
"""Entries read per batch."""

_STEP_SIZE: Final = 512
"""Entries read in one step while clients are served."""

END_RECOVERY_POINTS: Final = frozenset({"now", "creation"})
"""The RecoveryPoints at which a queue begins with no message."""


class _Start(NamedTuple):
    """The start of the fold for a queue.

    Attributes:
        first_message_txid: the txid of the first message that may be for it.
        first_event_txid: the txid of the first event that is applied.
    """

    first_message_txid: int
    first_event_txid: int


def recover_queues(
    queues: QueueTable, journal: Journal, check: Callable[[], None], events: ServerLog
) -> dict[QueueTopic, int]:
    """Recover the state of queues from the log.

    Args:
        queues: the queues, which are empty.
        journal: the log.
        check: called between entries; an exception that it raises ends the recovery.
        events: the server's log, for messages lost and entries that cannot be read.

    Returns:
        For each queue, the txid before which there are no messages for it.

    Raises:
        JournalUnreadableError: the log cannot be read.
    """
    begins: dict[QueueTopic, int] = {}
    starts = _find_starts(queues, journal, begins)
    first = min((min(start) for start in starts.values()), default=journal.last_txid + 1)
    if journal.has_unknown_removals:
        _log_lost_messages(starts, journal.first_txid, events)
    fold = _Fold(starts, events)
    cursor = journal.replay(LogSpan(first - 1), kinds=EVENTS)
    while not cursor.is_caught_up:
        for batch in cursor.read_entry_range(_BATCH_SIZE, 4 << 20).batches():
            check()
            fold.apply_entries(batch)
    for queue in queues:
        queue.finish_recovery()
    return begins


class QueueFill:
    """Fills a new queue from the log, step by step, while the log is appended to.

    Args:
        queue: the queue; topics do not feed it yet. The log may have events of it, from a time
            when it was in the configuration before.
        journal: the log.
        events: the server's log, for entries that cannot be read.

    Attributes:
        queue: see above.
        begin_txid: the txid before which there are no messages for it.
    """

    def __init__(self, queue: QueueTopic, journal: Journal, events: ServerLog) -> None:
        self.queue: Final = queue
        self.begin_txid: Final = configured_start(queue.spec.recovery_point, journal)
        self._fold = _Fold({queue: _Start(self.begin_txid, self.begin_txid)}, events)
        self._cursor = journal.replay(
            LogSpan(self.begin_txid - 1), partial(_concerns, queue), EVENTS
        )

    @property
    def position(self) -> int:
        """The txid up to which the log has been read."""
        return self._cursor.position

    def step(self) -> bool:
        """Apply some entries; return whether more of them are on stable storage.

        Raises:
            JournalUnreadableError: the log cannot be read at the moment.
        """
        for batch in self._cursor.read_entry_range(_STEP_SIZE, 1 << 20).batches():
            self._fold.apply_entries(batch)
        return not self._cursor.is_caught_up


def _concerns(queue: QueueTopic, topic: JournalTopic) -> bool:
    """Return whether a topic has messages for a queue, its events, or its dead letters."""
    if topic.message_type != queue.message_type.name:
        return False
    return topic.name in (queue.name, queue.spec.dead_letter_topic) or queue.is_fed_by(topic)


def _log_lost_messages(
    starts: dict[QueueTopic, _Start], first_txid: int, events: ServerLog
) -> None:
    """Log which queues had messages in journals that are gone."""
    for queue, start in starts.items():
        if (
            queue.spec.recovery_point not in END_RECOVERY_POINTS
            and start.first_message_txid < first_txid
        ):
            events.emit(
                "1D-0041", queue=queue.name, begin=start.first_message_txid, first_txid=first_txid
            )


def _find_starts(
    queues: QueueTable, journal: Journal, begins: dict[QueueTopic, int]
) -> dict[QueueTopic, _Start]:
    cache = journal.read_queue_points()
    points = (
        {}
        if cache is None
        else {
            (stored_point.message_type, stored_point.name): stored_point
            for stored_point in cache.points
        }
    )
    is_ahead = cache is not None and cache.txid > journal.last_txid
    starts: dict[QueueTopic, _Start] = {}
    for queue in queues:
        point = points.get((queue.message_type.name, queue.name))
        if point is not None:
            queue.core.restore_early_acks(point.early_acks)
        begins[queue], starts[queue] = _start_of(queue, point, journal, is_ahead=is_ahead)
    return starts


def _start_of(
    queue: QueueTopic, point: QueuePoint | None, journal: Journal, *, is_ahead: bool
) -> tuple[int, _Start]:
    """Return the txid before which there are no messages for a queue, and the start of its fold."""
    recovery_point = queue.spec.recovery_point
    if point is None or point.recovery_point != recovery_point:
        begin = configured_start(recovery_point, journal)
        # Acknowledgements of messages that have not arrived may be older than `begin`.
        return begin, _Start(begin, begin if point is None else min(begin, point.needed_from_txid))
    if is_ahead:
        return point.begin_txid, _Start(point.begin_txid, 1)
    return point.begin_txid, _Start(
        max(point.begin_txid, point.needed_from_txid), point.needed_from_txid
    )


def configured_start(recovery_point: str, journal: Journal) -> int:
    """Return the txid of a RecoveryPoint; the message at a bookmark is part of the queue."""
    if recovery_point in END_RECOVERY_POINTS:
        return journal.last_txid + 1
    if recovery_point == "epoch":
        return 1
    request = replace(parse_bookmark(recovery_point), includes_start=True)
    return journal.resolve_bookmark(request, "epoch").after_txid + 1


class _Fold:
    """Applies the log to queues, batch by batch.

    Args:
        starts: the start of the fold for each queue.
        events: the server's log, for entries that cannot be read.
    """

    def __init__(self, starts: dict[QueueTopic, _Start], events: ServerLog) -> None:
        self._starts = starts
        self._queues = {(queue.message_type.name, queue.name): queue for queue in starts}
        self._events = events
        self._queues_by_topic: dict[JournalTopic, list[QueueTopic]] = {}
        self._dead_letters_by_part = {
            queue.dead_letters.publisher_part: queue.dead_letters for queue in starts
        }

    def apply_entries(self, batch: EntryBatch) -> None:
        """Apply entries of one topic."""
        start = 0
        for kind, rows in groupby(batch.rows, _kind):
            end = start + sum(1 for _ in rows)
            part = batch.pick(range(start, end)) if end - start < len(batch.rows) else batch
            if kind in MESSAGES:
                self._recover_messages(part)
            elif kind == JournalEntryKind.QUEUE_EVENT:
                self._replay(part)
            start = end

    def _recover_messages(self, batch: EntryBatch) -> None:
        queues = self._queues_by_topic.get(batch.topic)
        if queues is None:
            queues = [queue for queue in self._starts if queue.is_fed_by(batch.topic)]
            self._queues_by_topic[batch.topic] = queues
        for queue in queues:
            part = _from(batch, self._starts[queue].first_message_txid)
            if part.rows:
                queue.recover_messages(part)
        if batch.has_extras:
            for author in self._dead_letters_by_part.keys() & set(
                map(publisher_part, batch.column(CLIENT))
            ):
                self._dead_letters_by_part[author].recover_letters(batch)

    def _replay(self, batch: EntryBatch) -> None:
        queue = self._queues.get((batch.topic.message_type, batch.topic.name))
        if queue is None:
            return  # it is no longer in the configuration
        batch = _from(batch, self._starts[queue].first_event_txid)
        for row, body in zip(batch.rows, batch.data, strict=True):
            try:
                domain_event = decode_with_domain(body)
            except msgspec.MsgspecError as problem:
                self._events.emit("1D-0017", queue=queue.name, txid=row[TXID], problem=problem)
            else:
                queue.replay(domain_event, row[TXID], row[TIMESTAMP] if row[SOURCE] else None)


def _kind(row: tuple[int, ...]) -> int:
    return row[KIND]


def _from(batch: EntryBatch, txid: int) -> EntryBatch:
    """Return the entries of a batch from a txid on."""
    rows = batch.rows
    if rows[0][TXID] >= txid:
        return batch
    return batch.pick([position for position, row in enumerate(rows) if row[TXID] >= txid])
