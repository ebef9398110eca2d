"""The destination's side of replication from one source.

    Begin -> Resume [Knowledge ...] ... batches -> entries to record ... acknowledge -> Acks

A receiver takes the part of a source's log that comes here, in order and without a hole: a batch
begins where the one before ended. New entries are handed to the recorder; duplicates are dropped,
and reported as conflicts where their bodies differ from the recorded ones.

The source announces the entries that it has skipped (`owe`), and may send them later, as a batch
that is late.

The receiver acknowledges the entries on stable storage here (`stored`), and, of the entries
recorded because of this source, those that the instances have that acknowledge to this one
(`settled`), for each of the `lanes` in which they came. A message that has come by another path
first waits for these instances, too, where that path is longer, or as long and this instance the
later one by name; else for the disk only. So no two instances wait for each other. The source
itself is not waited for: it has the entries that it sends, and takes care of its other
destinations.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from operator import lt
from typing import Final, NamedTuple, Protocol

from server.replication.core.ack_order import (
    MAX_ACK_UNITS,
    IsAcknowledged,
    UnacknowledgedEntries,
    lane_of,
)
from server.replication.core.acknowledgement import EntryRoutingKey
from server.replication.core.columns import (
    BatchColumns,
    ConstantColumn,
    EntryColumn,
    ReplicationBatch,
    SharedProperties,
    by_client,
    by_value,
    compact_column,
    distinct_values,
    rows,
)
from server.replication.core.dedup_window import DedupWindow, is_identity_made_by
from server.replication.core.frames import (
    Ack,
    DedupState,
    PositionRequest,
    PositionResponse,
    SkippedRanges,
)
from server.replication.core.lost_sequences import LostSequences
from server.replication.core.recent_entries import RecentEntries
from server.replication.core.routes import Hop, append_hop, hops
from server.replication.core.sender import PeerInstance, ReplicationProtocolError
from server.storage.journal import EVENTS, MESSAGES, JournalEntryKind, JournalOrigin, JournalTopic
from server.storage.journal.format.layout import crc32c
from server.storage.journal.runs import has_recorded, run_at
from server.util.ranges import Ranges

_MAX_STAGES: Final = 1024  # pairs of positions in both logs
_MAX_WINDOW_IDENTITIES: Final = 16_384  # identities in one frame
_MAX_CONFLICTS: Final = 100  # reported per batch
_ABOUT_MESSAGES: Final = frozenset((JournalEntryKind.QUEUE_EVENT, JournalEntryKind.MISSING))


class RecorderResult(NamedTuple):
    """The outcome of recording entries.

    Attributes:
        processed_count: number of entries that have been dealt with, from the front; if not all,
            the log accepts none at the moment.
        first_txid: of the first that was recorded; 0 if none was.
        last_txid: of the last.
    """

    processed_count: int
    first_txid: int = 0
    last_txid: int = 0


class EntryRecorder(Protocol):
    """The sink of new entries: the topics of this instance."""

    @property
    def last_txid(self) -> int:
        """The txid of the last entry appended to this instance's log."""

    def record(self, entries: BatchColumns, source: PeerInstance) -> RecorderResult:
        """Append entries to the log as they are, apply them, and deliver them, in their order.

        Their identities, numbers and origins stay. Entries that can never be recorded here are
        logged, and count as dealt with.

        Args:
            entries: the entries to record; all paths end with the source.
            source: the instance that they came from.
        """

    def report_duplicates(
        self, topic: JournalTopic, marks: Sequence[tuple[int, int]], publishers: tuple[str, str]
    ) -> None:
        """Report messages in the log that have been published at two instances.

        That happens when their publisher has moved before the first one had replicated them.

        Args:
            topic: the topic.
            marks: their identities and numbers.
            publishers: the names of the two instances.
        """

    def record_lost_sequences(self, client: int, sequences: Sequence[tuple[int, int]]) -> bool:
        """Record that sequence numbers are missing, although later ones come.

        Args:
            client: the publisher's identity.
            sequences: the first and the last number of ranges. Some of them may be here.

        Returns:
            Whether the log has accepted this.
        """

    def highest_sequences(self) -> Mapping[int, int]:
        """Return all identities in the log with their highest numbers."""


class ReceiveCursor(NamedTuple):
    """The position up to which a source's log has been received.

    Attributes:
        stream: the stream that it is a position in; see `PositionRequest`.
        txid: everything up to this is on stable storage here, and settled.
        owed: entries up to there that the source could not read; it sends them should it be able
            to.
        run: the number of the run of the source that has recorded the entry; None if the source
            does not send it.
    """

    stream: str
    txid: int
    owed: tuple[tuple[int, int], ...] = ()
    run: int | None = None


class LogBranch(NamedTuple):
    """The entries that are gone from the log of a source, or of its destination.

    Attributes:
        runs: the first txid and the number of each run of the source, in order; empty if it does
            not send them.
        has_lost_entries: whether the destination has lost entries that the source has got from it.
        own_runs: the runs of the destination.
    """

    runs: Sequence[tuple[int, int]] = ()
    has_lost_entries: bool = False
    own_runs: Sequence[tuple[int, int]] = ()


WHOLE_LOG: Final = LogBranch()


class DuplicateConflict(NamedTuple):
    """A message with the name of another message and a different body."""

    client: int
    sequence: int
    topic: JournalTopic


class BatchCounts(NamedTuple):
    """The counts of new and duplicate entries of a batch.

    Attributes:
        new: entries that have been recorded.
        duplicates: entries that were known.
        conflicts: the first of the duplicates that differ from the recorded message.
    """

    new: int = 0
    duplicates: int = 0
    conflicts: Sequence[DuplicateConflict] = ()


class ReplicationReceiver:
    """Receives the entries of one source.

    Args:
        instance: name of this instance.
        log_start_txid: the first txid that its log ever had.
        dedup_window: the messages that it has of each publisher.
        recent_entries: the entries recorded last.
        recorder: the sink of new entries.
        cursor: its position after an earlier run; None if it is new to the source.
        started: the last txid of this instance's log when this run began.
        most_units: parts of lanes that are kept apart while they wait for other instances.

    Attributes:
        is_stalled: the log has not accepted all of a batch; nothing more may be received before
            `resume_batch` has been called with success.
    """

    def __init__(
        self,
        instance: str,
        log_start_txid: int,
        dedup_window: DedupWindow,
        recent_entries: RecentEntries,
        recorder: EntryRecorder,
        cursor: ReceiveCursor | None = None,
        started: int = 0,
        most_units: int = MAX_ACK_UNITS,
    ) -> None:
        self._instance = instance
        self._log_start_txid = log_start_txid
        self._dedup_window = dedup_window
        self._recent_entries = recent_entries
        self._recorder = recorder
        self._stream = None if cursor is None else cursor.stream
        self._received_txid = self._stored_txid = self._settled_txid = (
            0 if cursor is None else cursor.txid
        )
        self._cursor_run = (
            None if cursor is None else cursor.run
        )  # while no source has sent its runs
        self._source_runs: Sequence[tuple[int, int]] = ()
        self._own_runs: Sequence[tuple[int, int]] = ()
        self._difference_end_txid = 0
        self._skipped_ranges = Ranges(() if cursor is None else cursor.owed)
        self._source: PeerInstance | None = None
        self._source_name = ""
        self._unsynced_txids: deque[tuple[int, int]] = (
            deque()
        )  # txid there, and here: not stable yet
        # Txids here, and for each the txid of the source up to which all is here by then.
        self._position_pairs: tuple[list[int], list[int]] = [0], [0]
        if cursor is not None:
            self._add_position_pair(started)
        self._unacknowledged_entries = UnacknowledgedEntries(most_units)
        self._last_ack: Ack | None = None
        self._current_batch: ReplicationBatch | None = None
        self._remaining_entries: BatchColumns | None = None
        self._batch_counts = BatchCounts()
        self._lost_sequences = LostSequences(dedup_window, [*self._skipped_ranges])

    # The link.

    def begin_link(
        self,
        source: PeerInstance,
        frame: PositionRequest,
        settled: int,
        branch: LogBranch = WHOLE_LOG,
        *,
        tells_all: bool = True,
    ) -> Iterator[PositionResponse | DedupState]:
        """Begin to receive from a source; return the frames that tell it where to resume.

        Args:
            source: the instance that asks.
            frame: its request.
            settled: the txid up to which everything here is settled.
            branch: which entries are gone from either's log.
            tells_all: whether the source may be sent the list of all publishers. If not, it is sent
                an empty list: it then sends entries that are here as well, and they are dropped.
        """
        self.end_link()
        self._source = source
        self._source_name = source.name
        is_known = self._stream == frame.stream and not branch.has_lost_entries
        is_known = is_known and not self.has_diverged(frame, branch)
        self._source_runs, self._own_runs = branch.runs, branch.own_runs
        if is_known and self._difference_end_txid <= self._received_txid <= frame.last:
            yield PositionResponse(
                self._received_txid, self._current_ack(), [*self._skipped_ranges]
            )
            self._advance_to(max(self._received_txid, frame.first - 1))
            return
        if not is_known:
            self._unacknowledged_entries.clear()
        self._stream = frame.stream
        self._difference_end_txid = (
            frame.last
        )  # up to there, entries that passed through here come, too
        self._unsynced_txids.clear()
        self._skipped_ranges = Ranges()
        self._received_txid = self._stored_txid = self._settled_txid = frame.first - 1
        self._position_pairs = [0], [0]
        yield PositionResponse(None)
        if tells_all:
            yield from self._dedup_state_frames(source, settled)
        else:
            yield DedupState([], is_last=True)

    def has_diverged(self, frame: PositionRequest, branch: LogBranch) -> bool:
        """Return whether the source's log is the one that was read, and has lost some of that."""
        run = self.run_at(self._received_txid)
        if run is None or not branch.runs or frame.stream != self._stream:
            return False
        return run_at(branch.runs, self._received_txid) != run

    def run_at(self, txid: int) -> int | None:
        """Return the number of the source's run that has recorded an entry; None if not known."""
        return run_at(self._source_runs, txid) if self._source_runs else self._cursor_run

    def _dedup_state_frames(self, source: PeerInstance, settled: int) -> Iterator[DedupState]:
        """Return the messages that this instance has of each publisher.

        Messages that came from this source and are not settled count as missing: they come again,
        are dropped as duplicates, and the source waits for the instances that lack them.
        """
        again: dict[int, Ranges] = {}
        for client, sequences, origin in self._recent_entries.entries_after(settled):
            path = hops(origin.path)
            if not path or path[-1].name != source.name:
                continue
            ranges = again.setdefault(client, Ranges(self._dedup_window.gaps(client)))
            for sequence in sequences:
                ranges.add(sequence, sequence)
        summary = self._dedup_window.publisher_windows(self._recorder.highest_sequences())
        had = (
            one._replace(gaps=tuple(again[one.client])) if one.client in again else one
            for one in summary
        )
        part = list(islice(had, _MAX_WINDOW_IDENTITIES))
        while following := list(islice(had, _MAX_WINDOW_IDENTITIES)):
            yield DedupState(part, is_last=False)
            part = following
        yield DedupState(part, is_last=True)

    def end_link(self) -> None:
        """Forget the source, which is gone; it sends its unfinished entries again."""
        self._source = None
        self._last_ack = None
        self._current_batch = None
        self._remaining_entries = None

    @property
    def received_txid(self) -> int:
        """The txid of the source's log up to which everything has been dealt with here."""
        return self._received_txid

    @property
    def is_stalled(self) -> bool:
        """True if the log has not accepted all of a batch: `resume_batch` must be called next."""
        return self._current_batch is not None

    # Batches.

    def receive_batch(self, batch: ReplicationBatch) -> BatchCounts:
        """Process a batch: a part of the source's log.

        Returns:
            The counts of its entries; when the receiver `is_stalled` afterwards, of those processed
            so far.

        Raises:
            ReplicationProtocolError: it is not the batch that has to come next, or is invalid.
        """
        if self._source is None or self.is_stalled:
            raise ReplicationProtocolError("sends entries out of turn")
        if batch.is_late:
            if batch.upto > self._received_txid:
                raise ReplicationProtocolError(f"sends entry {batch.upto} late before its time")
        elif batch.after != self._received_txid:
            raise ReplicationProtocolError(
                f"sends what follows entry {batch.after}, and has to go on after"
                f" {self._received_txid}"
            )
        _check(batch)
        self._current_batch = batch
        self._remaining_entries = batch.columns
        return self.resume_batch()

    def resume_batch(self) -> BatchCounts:
        """Record the rest of the current batch; see `receive_batch`."""
        source, current_batch = self._source, self._current_batch
        if source is None or current_batch is None:
            return BatchCounts()
        self._batch_counts = BatchCounts()
        if self._remaining_entries is not None:
            self._remaining_entries = self._process_entries(self._remaining_entries, source)
            if self._remaining_entries is not None:
                return self._batch_counts
        self._current_batch = None
        if current_batch.is_late:
            self._skipped_ranges.remove(current_batch.after + 1, current_batch.upto)
            self._last_ack = (
                None  # send one even if nothing is new: the source's window waits for it
            )
        else:
            self._advance_to(current_batch.upto)
        return self._batch_counts

    def record_skipped(self, frame: SkippedRanges) -> None:
        """Take the list of entries that the source has skipped.

        Raises:
            ReplicationProtocolError: it comes out of turn, or is invalid.
        """
        if self._source is None or self.is_stalled:
            raise ReplicationProtocolError("says what it owes out of turn")
        if any(first > last for first, last in frame.ranges):
            raise ReplicationProtocolError("owes ranges that are none")
        self._skipped_ranges = Ranges(frame.ranges)
        self._lost_sequences.add_skipped(frame.lost, frame.ranges, frame.unknown)

    def _advance_to(self, txid: int) -> None:
        """Note that everything of the source's log up to an entry has been dealt with."""
        self._received_txid = txid
        # Duplicates may have been recorded a moment ago, so they wait for the log's end, too.
        self._unsynced_txids.append((txid, self._recorder.last_txid))
        self._add_position_pair(self._recorder.last_txid)

    def _add_position_pair(self, own: int) -> None:
        """Note the positions of both logs; beyond the limit, keep every second pair."""
        here, there = self._position_pairs
        if here[-1] == own:
            there[-1] = self._received_txid
            return
        here.append(own)
        there.append(self._received_txid)
        if len(here) > _MAX_STAGES:
            self._position_pairs = [0, *here[2::2]], [0, *there[2::2]]

    def source_position(self, txid: int) -> tuple[str, int] | None:
        """Return a position in the source's log before which this log lacks nothing.

        Args:
            txid: an entry of this log. The answer holds for this log up to there.

        Returns:
            The identity of the source's log, and the txid of its last entry before that position,
            as far as that is known; None if it is not known which log that is.
        """
        if self._stream is None:
            return None
        here, there = self._position_pairs
        return log_of(self._stream), there[bisect_right(here, txid) - 1]

    def _process_entries(self, entries: BatchColumns, source: PeerInstance) -> BatchColumns | None:
        """Record the new entries; return those that the log has not accepted."""
        count = len(entries.data)
        if self._current_batch is not None and not self._current_batch.is_late:
            self._lost_sequences.detect_gaps(entries, source.name)
        if not self._lost_sequences.record_pending(self._recorder.record_lost_sequences):
            return entries
        chosen = self._new_positions(entries)
        if len(chosen) < count:
            self._drop_duplicates(entries, sorted(set(range(count)).difference(chosen)), source)
        if not chosen:
            return None
        new = entries.pick(chosen)
        hop = Hop(source.name, source.group)
        new = new._replace(properties=[_sent_by(name, hop) for name in new.properties])
        for start, end in _parts(new.kinds):
            part = new.pick(range(start, end))
            done = start + self._record_new(part, entries.properties, source)
            if done < end:
                return entries.pick(range(chosen[done], count))
        return None

    def _record_new(
        self, new: BatchColumns, names: Sequence[SharedProperties], source: PeerInstance
    ) -> int:
        """Record new entries, and mark them as known; return how many the log has accepted."""
        before = {
            client: self._dedup_window.highest_sequence(client)
            for client, _ in by_client(new.clients)
        }
        recorded = self._recorder.record(new, source)
        if recorded.processed_count:
            done = new.pick(range(recorded.processed_count))
            self._mark_known(done, before, recorded)
            self._batch_counts = self._batch_counts._replace(
                new=self._batch_counts.new + recorded.processed_count
            )
            if recorded.first_txid:
                self._track_unsettled_batch(done, names, recorded)
        return recorded.processed_count

    def _new_positions(self, entries: BatchColumns) -> Sequence[int]:
        """Return the positions of the entries that are not known."""
        places = self._positions_not_in_log(entries)
        clients = entries.clients
        if len(places) == len(entries.data) and isinstance(clients, ConstantColumn):
            return self._dedup_window.new_positions(clients.value, entries.sequences)
        chosen: list[int] = []
        for client, indexes in by_client([clients[place] for place in places]):
            own = [places[index] for index in indexes]
            sequences = [entries.sequences[place] for place in own]
            chosen += [
                own[position] for position in self._dedup_window.new_positions(client, sequences)
            ]
        return range(len(entries.data)) if len(chosen) == len(entries.data) else sorted(chosen)

    def _positions_not_in_log(self, entries: BatchColumns) -> Sequence[int]:
        """Return the positions of all entries except those published here that are in the log."""
        every = range(len(entries.data))
        ours = {
            number
            for number, name in entries.used_properties().items()
            if name.origin.path and hops(name.origin.path)[0].name == self._instance
        }
        if not ours:
            return every
        return [place for place in every if not self._is_in_own_log(entries, place, ours)]

    def _is_in_own_log(self, entries: BatchColumns, place: int, ours: Collection[int]) -> bool:
        """Return whether an entry's name is in `ours`, and this log has the entry, or had it."""
        return (
            entries.property_indexes[place] in ours
            and entries.sequences[place] >= self._log_start_txid
            and is_identity_made_by(
                self._instance, entries.clients[place], entries.source_txids[place]
            )
            and has_recorded(self._own_runs, entries.clients[place], entries.sequences[place])
        )

    def _drop_duplicates(
        self, entries: BatchColumns, places: Sequence[int], source: PeerInstance
    ) -> None:
        """Drop duplicates, check that their bodies are equal, and wait until they are settled."""
        conflicts = list(self._batch_counts.conflicts)
        twice: dict[tuple[JournalTopic, str, str], list[tuple[int, int]]] = {}
        for place in places:
            client, sequence = entries.clients[place], entries.sequences[place]
            found = self._recent_entries.find(client, sequence)
            if found is None:
                continue
            topic, origin, _ = entries.properties_of(place)
            kind = entries.kinds[place]
            differs = (
                found.checksum != entries.checksums[place] and kind == JournalEntryKind.PUBLISH
            )
            if differs and len(conflicts) < _MAX_CONFLICTS:
                conflicts.append(DuplicateConflict(client, sequence, topic))
            path, ours = hops(origin.path), hops(found.origin.path)
            publisher = path[0].name if path else source.name
            first = ours[0].name if ours else self._instance
            if publisher not in (first, self._instance) and kind in MESSAGES:
                twice.setdefault((topic, first, publisher), []).append((client, sequence))
            if (len(ours), self._instance) > (len(path), source.name):
                txid, kept = entries.txids[place], EntryRoutingKey(found.topic, found.origin.path)
                self._track_unsettled(lane_of(origin.path), (txid, txid), found.last_txid, {kept})
        for (topic, *publishers), marks in twice.items():
            self._recorder.report_duplicates(topic, marks, (publishers[0], publishers[1]))
        duplicates = self._batch_counts.duplicates + len(places)
        self._batch_counts = BatchCounts(self._batch_counts.new, duplicates, conflicts)

    def _mark_known(
        self, entries: BatchColumns, before: dict[int, int], recorded: RecorderResult
    ) -> None:
        """Mark recorded entries as known."""
        count, txids = len(entries.data), (recorded.first_txid, recorded.last_txid)
        own = range(txids[0], txids[1] + 1)
        used = {
            number: (topic, origin)
            for number, (topic, origin, _) in entries.used_properties().items()
        }
        for client, places in by_client(entries.clients):
            mine = entries.pick(places)
            self._dedup_window.record_sequences(
                client, before[client], compact_column(mine.sequences)
            )
            if not txids[0]:
                continue
            if len(used) > 1:
                own_txids = [own[place] for place in places] if len(own) == count else None
                kinds = [used[number] for number in mine.property_indexes]
                self._recent_entries.add_mixed_batch(
                    client, mine.sequences, mine.checksums, txids, own_txids, kinds
                )
            else:
                (kind,) = used.values()
                self._recent_entries.add_batch(client, mine.sequences, mine.checksums, txids, *kind)

    def _track_unsettled_batch(
        self, done: BatchColumns, names: Sequence[SharedProperties], recorded: RecorderResult
    ) -> None:
        """Acknowledge entries that have been recorded when they are settled, lane by lane.

        Args:
            done: the entries.
            names: the same names as the source has them.
            recorded: their txids here.
        """
        lanes: dict[int, int] = {}
        kinds: dict[int, set[EntryRoutingKey]] = {}
        for number, name in done.used_properties().items():
            lane = lanes[number] = lane_of(names[number].origin.path)
            kinds.setdefault(lane, set()).add(EntryRoutingKey(name.topic, name.origin.path))
        if len(kinds) == 1:
            self._track_unsettled(
                lane, (done.txids[0], done.txids[-1]), recorded.last_txid, kinds[lane]
            )
            return
        own = range(recorded.first_txid, recorded.last_txid + 1)
        is_dense = len(own) == len(done.data)
        for lane, places in by_value([lanes[number] for number in done.property_indexes]):
            first, last = places[0], places[-1]
            own_last = own[last] if is_dense else recorded.last_txid
            self._track_unsettled(
                lane, (done.txids[first], done.txids[last]), own_last, kinds[lane]
            )

    def _track_unsettled(
        self, lane: int, txids: tuple[int, int], own_last: int, kinds: set[EntryRoutingKey]
    ) -> None:
        """Acknowledge entries of a lane when they are settled; see `UnacknowledgedEntries.add`."""
        # The source counts late entries as acknowledged already.
        if self._current_batch is not None and not self._current_batch.is_late:
            self._unacknowledged_entries.add(lane, txids, own_last, kinds)

    # Acknowledgements.

    def make_ack(self, durable: int, is_settled: IsAcknowledged) -> Ack | None:
        """Return the acknowledgement for the source; None if it would say nothing new.

        Args:
            durable: the last txid on stable storage here.
            is_settled: see `IsAcknowledged`.
        """
        unsynced_txids = self._unsynced_txids
        while unsynced_txids and unsynced_txids[0][1] <= durable:
            self._stored_txid = unsynced_txids.popleft()[0]
        self._unacknowledged_entries.release_settled(durable, is_settled, self._source_name)
        ack = self._current_ack()
        self._settled_txid = ack.settled_txid
        if ack == self._last_ack or self._source is None:
            return None
        self._last_ack = ack
        return ack

    def _current_ack(self) -> Ack:
        return Ack(self._stored_txid, self._unacknowledged_entries.pending_lanes(self._stored_txid))

    @property
    def cursor(self) -> ReceiveCursor | None:
        """The cursor to store for the source's log.

        None if there is none yet: given a cursor, a source sends only the entries behind it, and
        not those that this instance had once and has lost.
        """
        if self._stream is None or self._settled_txid < self._difference_end_txid:
            return None
        return ReceiveCursor(
            self._stream,
            self._settled_txid,
            tuple(self._skipped_ranges),
            self.run_at(self._settled_txid),
        )


def log_of(stream: str) -> str:
    """Return the identity of the log that a stream belongs to; see `PositionRequest`."""
    return stream.rpartition("/")[0]


@lru_cache(maxsize=4096)
def _sent_by(name: SharedProperties, hop: Hop) -> SharedProperties:
    origin = name.origin
    return name._replace(origin=JournalOrigin(origin.auth_id, append_hop(origin.path, hop)))


def _parts(kinds: EntryColumn) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each range of entries to record, and then mark, together.

    Notices of queues and instances about messages depend on which messages have come, and which are
    still to come. So the messages before a notice must be known, and those behind it must not be
    there yet.
    """
    if isinstance(kinds, ConstantColumn) or _ABOUT_MESSAGES.isdisjoint(kinds):
        return iter([(0, len(kinds))])
    return rows(kind in _ABOUT_MESSAGES for kind in kinds)


def _check(batch: ReplicationBatch) -> None:
    """Validate a batch and its checksums.

    Raises:
        ReplicationProtocolError: it is invalid or damaged.
    """
    entries = batch.columns
    if entries is None:
        return
    first, last = entries.txids[0], entries.txids[-1]
    if not first > batch.after or not (isinstance(entries.txids, range) or _ascend(entries.txids)):
        raise ReplicationProtocolError("sends entries that are in no order")
    if not EVENTS.issuperset(set(entries.kinds)):
        raise ReplicationProtocolError("sends entries of a kind that is not replicated")
    if min(distinct_values(entries.sequences)) < 1:
        raise ReplicationProtocolError("sends entries without a number")
    if list(map(crc32c, entries.data)) != list(entries.checksums):
        raise ReplicationProtocolError(f"sends entries from {first} to {last} that are damaged")
    if last > batch.upto:
        raise ReplicationProtocolError("sends entries behind the end of the batch")


def _ascend(numbers: EntryColumn) -> bool:
    return all(map(lt, numbers, islice(numbers, 1, None)))
