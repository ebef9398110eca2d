"""The destination's side of replication from one source.

    Begin -> Resume [Knowledge ...] ... batches -> entries to record ... acknowledge -> Acks

A receiver processes the part of a source's log that is sent here, in order and without gaps: a
batch begins where the one before ended. New entries are passed to the recorder; duplicates are
dropped, and reported as conflicts where their bodies differ from the recorded ones.

The source announces the entries that it has skipped (`SkippedRanges`), and may send them later, as
a batch that is late.

The receiver acknowledges the entries on stable storage here (`stored`), and, of the entries
recorded because of this source, those that the instances have that acknowledge to this one
(`settled`), for each of the lanes in which they arrived (see ack_order.py). A message that has
arrived by another path first waits for these instances, too, where that path is longer, or as long
and this instance the later one by name; else for the disk only. So no two instances wait for each
other. An entry does not wait for the source itself: the source has the entries that it sends, and
waits for its other destinations.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final

from server.replication.core.ack_order import (
    MAX_ACK_UNITS,
    IsAcknowledged,
    UnacknowledgedEntries,
    lane_of,
)
from server.replication.core.acknowledgement import EntryRoutingKey
from server.replication.core.batch_counts import BatchCounts, DuplicateConflict
from server.replication.core.batch_validation import validate_batch
from server.replication.core.columns import (
    BatchColumns,
    ConstantColumn,
    EntryColumn,
    ReplicationBatch,
    SharedProperties,
    by_client,
    by_value,
    compact_column,
    rows,
)
from server.replication.core.dedup_window import DedupWindow, is_identity_made_by
from server.replication.core.entry_recorder import EntryRecorder, RecorderResult
from server.replication.core.frames import (
    Ack,
    DedupState,
    PositionRequest,
    PositionResponse,
    ReplicationProtocolError,
    SkippedRanges,
)
from server.replication.core.lost_sequences import LostSequences
from server.replication.core.peer_instance import PeerInstance
from server.replication.core.receive_cursor import WHOLE_LOG, LogBranch, ReceiveCursor, log_of
from server.replication.core.recent_entries import RecentEntries
from server.replication.core.routes import Hop, append_hop, hops
from server.storage.journal import MESSAGES, JournalEntryKind, JournalOrigin, JournalTopic
from server.storage.journal.runs import has_recorded, run_at
from server.util.ranges import Ranges

_MAX_POSITION_PAIRS: Final = 1024  # pairs of positions in both logs
_MAX_WINDOW_IDENTITIES: Final = 16_384  # identities in one frame
_MAX_CONFLICTS: Final = 100  # reported per batch
_NOTICE_KINDS: Final = frozenset((JournalEntryKind.QUEUE_EVENT, JournalEntryKind.MISSING))


class ReplicationReceiver:
    """Receives the entries of one source.

    Args:
        instance: name of this instance.
        log_start_txid: the first txid that its log ever had.
        dedup_window: the messages that it has of each publisher.
        recent_entries: the entries recorded last.
        recorder: the sink of new entries.
        cursor: its position after an earlier run; None if it is new to the source.
        start_txid: the last txid of this instance's log when this run began.
        max_units: parts of lanes that are kept apart while they wait for other instances.
    """

    def __init__(
        self,
        instance: str,
        log_start_txid: int,
        dedup_window: DedupWindow,
        recent_entries: RecentEntries,
        recorder: EntryRecorder,
        cursor: ReceiveCursor | None = None,
        start_txid: int = 0,
        max_units: int = MAX_ACK_UNITS,
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
        # used while no source has sent its runs
        self._cursor_run = None if cursor is None else cursor.run
        self._source_runs: Sequence[tuple[int, int]] = ()
        self._own_runs: Sequence[tuple[int, int]] = ()
        self._difference_end_txid = 0
        self._skipped_ranges = Ranges(() if cursor is None else cursor.owed)
        self._source: PeerInstance | None = None
        self._source_name = ""
        # the source's txid, and the txid here, of positions not on stable storage yet
        self._unsynced_txids: deque[tuple[int, int]] = deque()
        # txids here, and for each the txid of the source up to which all is here by then
        self._position_pairs: tuple[list[int], list[int]] = [0], [0]
        if cursor is not None:
            self._add_position_pair(start_txid)
        self._unacknowledged_entries = UnacknowledgedEntries(max_units)
        self._last_ack: Ack | None = None
        self._current_batch: ReplicationBatch | None = None
        self._remaining_entries: BatchColumns | None = None
        self._batch_counts = BatchCounts()
        self._lost_sequences = LostSequences(dedup_window, [*self._skipped_ranges])

    # link

    def begin_link(
        self,
        source: PeerInstance,
        frame: PositionRequest,
        settled_txid: int,
        branch: LogBranch = WHOLE_LOG,
        *,
        sends_all: bool = True,
    ) -> Iterator[PositionResponse | DedupState]:
        """Begin to receive from a source; return the frames with the position to resume from.

        Args:
            source: the requesting instance.
            frame: its request.
            settled_txid: the txid up to which everything here is settled.
            branch: which entries are gone from either's log.
            sends_all: whether the source may be sent the list of all publishers. If not, it is sent
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
        # up to there, entries that have passed through this instance are sent, too
        self._difference_end_txid = frame.last
        self._unsynced_txids.clear()
        self._skipped_ranges = Ranges()
        self._received_txid = self._stored_txid = self._settled_txid = frame.first - 1
        self._position_pairs = [0], [0]
        yield PositionResponse(None)
        if sends_all:
            yield from self._dedup_state_frames(source, settled_txid)
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

    def _dedup_state_frames(self, source: PeerInstance, settled_txid: int) -> Iterator[DedupState]:
        """Return the messages that this instance has of each publisher.

        Messages that arrived from this source and are not settled count as missing: they are sent
        again, are dropped as duplicates, and the source waits for the instances that lack them.
        """
        unsettled_gaps: dict[int, Ranges] = {}
        for client, sequences, origin in self._recent_entries.entries_after(settled_txid):
            path = hops(origin.path)
            if not path or path[-1].name != source.name:
                continue
            ranges = unsettled_gaps.setdefault(client, Ranges(self._dedup_window.gaps(client)))
            for sequence in sequences:
                ranges.add(sequence, sequence)
        summary = self._dedup_window.publisher_windows(self._recorder.highest_sequences())
        windows = (
            window._replace(gaps=tuple(unsettled_gaps[window.client]))
            if window.client in unsettled_gaps
            else window
            for window in summary
        )
        batch = list(islice(windows, _MAX_WINDOW_IDENTITIES))
        while next_batch := list(islice(windows, _MAX_WINDOW_IDENTITIES)):
            yield DedupState(batch, is_last=False)
            batch = next_batch
        yield DedupState(batch, is_last=True)

    def end_link(self) -> None:
        """End the link: reset its state; the source sends its unfinished entries again."""
        self._source = None
        self._last_ack = None
        self._current_batch = None
        self._remaining_entries = None

    @property
    def received_txid(self) -> int:
        """The txid of the source's log up to which everything has been processed here."""
        return self._received_txid

    @property
    def is_blocked(self) -> bool:
        """True if the log has not accepted all of a batch.

        Nothing more may be received before `resume_batch` has been called with success.
        """
        return self._current_batch is not None

    # batches

    def receive_batch(self, batch: ReplicationBatch) -> BatchCounts:
        """Process a batch: a part of the source's log.

        Returns:
            The counts of its entries; when the receiver `is_blocked` afterwards, of those processed
            so far.

        Raises:
            ReplicationProtocolError: it is not the expected next batch, or is invalid.
        """
        if self._source is None or self.is_blocked:
            raise ReplicationProtocolError(
                "unexpected batch: no position was requested, or the one before waits"
            )
        if batch.is_late:
            if batch.upto > self._received_txid:
                raise ReplicationProtocolError(
                    f"late batch with entry {batch.upto} before its turn"
                )
        elif batch.after != self._received_txid:
            raise ReplicationProtocolError(
                f"batch that follows entry {batch.after}; expected one that follows entry"
                f" {self._received_txid}"
            )
        validate_batch(batch)
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
            # send one even if nothing is new: the source's window waits for it
            self._last_ack = None
        else:
            self._advance_to(current_batch.upto)
        return self._batch_counts

    def record_skipped(self, frame: SkippedRanges) -> None:
        """Record the list of entries that the source has skipped.

        Raises:
            ReplicationProtocolError: it arrives in a wrong state, or is invalid.
        """
        if self._source is None or self.is_blocked:
            raise ReplicationProtocolError(
                "unexpected SkippedRanges: no position was requested, or a batch waits"
            )
        if any(first > last for first, last in frame.ranges):
            raise ReplicationProtocolError("invalid range in SkippedRanges")
        self._skipped_ranges = Ranges(frame.ranges)
        self._lost_sequences.add_skipped(frame.lost, frame.ranges, frame.unknown)

    def _advance_to(self, txid: int) -> None:
        """Record that everything of the source's log up to an entry has been processed."""
        self._received_txid = txid
        # Duplicates may have been recorded a moment ago, so they wait for the log's end, too.
        self._unsynced_txids.append((txid, self._recorder.last_txid))
        self._add_position_pair(self._recorder.last_txid)

    def _add_position_pair(self, own_txid: int) -> None:
        """Record the positions of both logs; beyond the limit, keep every second pair."""
        own_txids, source_txids = self._position_pairs
        if own_txids[-1] == own_txid:
            source_txids[-1] = self._received_txid
            return
        own_txids.append(own_txid)
        source_txids.append(self._received_txid)
        if len(own_txids) > _MAX_POSITION_PAIRS:
            self._position_pairs = [0, *own_txids[2::2]], [0, *source_txids[2::2]]

    def source_position(self, txid: int) -> tuple[str, int] | None:
        """Return a position in the source's log up to which this log is complete.

        Args:
            txid: an entry of this log. The result holds for this log up to there.

        Returns:
            The identity of the source's log, and the txid of its last entry before that position,
            as far as that is known; None if it is not known which log that is.
        """
        if self._stream is None:
            return None
        own_txids, source_txids = self._position_pairs
        return log_of(self._stream), source_txids[bisect_right(own_txids, txid) - 1]

    def _process_entries(self, entries: BatchColumns, source: PeerInstance) -> BatchColumns | None:
        """Record the new entries; return the entries that the log has not accepted."""
        count = len(entries.data)
        if self._current_batch is not None and not self._current_batch.is_late:
            self._lost_sequences.detect_gaps(entries, source.name)
        if not self._lost_sequences.record_pending(self._recorder.record_lost_sequences):
            return entries
        selected = self._new_positions(entries)
        if len(selected) < count:
            self._drop_duplicates(entries, sorted(set(range(count)).difference(selected)), source)
        if not selected:
            return None
        new_entries = entries.pick(selected)
        hop = Hop(source.name, source.group)
        new_entries = new_entries._replace(
            properties=[_append_source(name, hop) for name in new_entries.properties]
        )
        for start, end in _recordable_parts(new_entries.kinds):
            batch = new_entries.pick(range(start, end))
            recorded_count = start + self._record_new(batch, entries.properties, source)
            if recorded_count < end:
                return entries.pick(range(selected[recorded_count], count))
        return None

    def _record_new(
        self, new: BatchColumns, source_properties: Sequence[SharedProperties], source: PeerInstance
    ) -> int:
        """Record new entries, and mark them as known; return how many the log has accepted."""
        highest_before = {
            client: self._dedup_window.highest_sequence(client)
            for client, _ in by_client(new.clients)
        }
        result = self._recorder.record(new, source)
        if result.processed_count:
            recorded = new.pick(range(result.processed_count))
            self._mark_known(recorded, highest_before, result)
            self._batch_counts = self._batch_counts._replace(
                new=self._batch_counts.new + result.processed_count
            )
            if result.first_txid:
                self._track_unsettled_batch(recorded, source_properties, result)
        return result.processed_count

    def _new_positions(self, entries: BatchColumns) -> Sequence[int]:
        """Return the positions of the entries that are not known."""
        candidates = self._positions_not_in_log(entries)
        clients = entries.clients
        if len(candidates) == len(entries.data) and isinstance(clients, ConstantColumn):
            return self._dedup_window.new_positions(clients.value, entries.sequences)
        selected: list[int] = []
        for client, indexes in by_client([clients[candidate] for candidate in candidates]):
            client_positions = [candidates[index] for index in indexes]
            sequences = [entries.sequences[candidate] for candidate in client_positions]
            selected += [
                client_positions[position]
                for position in self._dedup_window.new_positions(client, sequences)
            ]
        return range(len(entries.data)) if len(selected) == len(entries.data) else sorted(selected)

    def _positions_not_in_log(self, entries: BatchColumns) -> Sequence[int]:
        """Return the positions of all entries except those published here that are in the log."""
        positions = range(len(entries.data))
        own_properties = {
            number
            for number, name in entries.used_properties().items()
            if name.origin.path and hops(name.origin.path)[0].name == self._instance
        }
        if not own_properties:
            return positions
        return [
            position
            for position in positions
            if not self._is_in_own_log(entries, position, own_properties)
        ]

    def _is_in_own_log(
        self, entries: BatchColumns, position: int, own_properties: Collection[int]
    ) -> bool:
        """Return whether this log has an entry, or had it; its name must be in `own_properties`."""
        return (
            entries.property_indexes[position] in own_properties
            and entries.sequences[position] >= self._log_start_txid
            and is_identity_made_by(
                self._instance, entries.clients[position], entries.source_txids[position]
            )
            and has_recorded(self._own_runs, entries.clients[position], entries.sequences[position])
        )

    def _drop_duplicates(
        self, entries: BatchColumns, positions: Sequence[int], source: PeerInstance
    ) -> None:
        """Drop duplicates: count them, compare their bodies, and wait until they are settled."""
        conflicts = list(self._batch_counts.conflicts)
        duplicates_by_publishers: dict[tuple[JournalTopic, str, str], list[tuple[int, int]]] = {}
        for position in positions:
            client, sequence = entries.clients[position], entries.sequences[position]
            recent = self._recent_entries.find(client, sequence)
            if recent is None:
                continue
            topic, origin, _ = entries.properties_of(position)
            kind = entries.kinds[position]
            differs = recent.checksum != entries.checksums[position]
            is_conflict = differs and kind == JournalEntryKind.PUBLISH
            if is_conflict and len(conflicts) < _MAX_CONFLICTS:
                conflicts.append(DuplicateConflict(client, sequence, topic))
            path, own_path = hops(origin.path), hops(recent.origin.path)
            publisher = path[0].name if path else source.name
            first_publisher = own_path[0].name if own_path else self._instance
            if publisher not in (first_publisher, self._instance) and kind in MESSAGES:
                duplicates_by_publishers.setdefault((topic, first_publisher, publisher), []).append(
                    (client, sequence)
                )
            if (len(own_path), self._instance) > (len(path), source.name):
                txid = entries.txids[position]
                routing_key = EntryRoutingKey(recent.topic, recent.origin.path)
                self._track_unsettled(
                    lane_of(origin.path), (txid, txid), recent.last_txid, {routing_key}
                )
        for (topic, *publishers), bookmarks in duplicates_by_publishers.items():
            self._recorder.report_duplicates(topic, bookmarks, (publishers[0], publishers[1]))
        duplicates = self._batch_counts.duplicates + len(positions)
        self._batch_counts = BatchCounts(self._batch_counts.new, duplicates, conflicts)

    def _mark_known(
        self, entries: BatchColumns, highest_before: dict[int, int], result: RecorderResult
    ) -> None:
        """Mark recorded entries as known."""
        count, txids = len(entries.data), (result.first_txid, result.last_txid)
        txid_range = range(txids[0], txids[1] + 1)
        topic_origins = {
            number: (topic, origin)
            for number, (topic, origin, _) in entries.used_properties().items()
        }
        for client, positions in by_client(entries.clients):
            client_entries = entries.pick(positions)
            self._dedup_window.record_sequences(
                client, highest_before[client], compact_column(client_entries.sequences)
            )
            if not txids[0]:
                continue
            if len(topic_origins) > 1:
                own_txids = (
                    [txid_range[position] for position in positions]
                    if len(txid_range) == count
                    else None
                )
                kinds = [topic_origins[number] for number in client_entries.property_indexes]
                self._recent_entries.add_mixed_batch(
                    client,
                    client_entries.sequences,
                    client_entries.checksums,
                    txids,
                    own_txids,
                    kinds,
                )
            else:
                (kind,) = topic_origins.values()
                self._recent_entries.add_batch(
                    client, client_entries.sequences, client_entries.checksums, txids, *kind
                )

    def _track_unsettled_batch(
        self,
        entries: BatchColumns,
        source_properties: Sequence[SharedProperties],
        result: RecorderResult,
    ) -> None:
        """Acknowledge entries that have been recorded when they are settled, lane by lane.

        Args:
            entries: the entries.
            source_properties: their properties at the source, by the same indexes.
            result: their txids here.
        """
        lanes: dict[int, int] = {}
        routing_keys: dict[int, set[EntryRoutingKey]] = {}
        for number, name in entries.used_properties().items():
            lane = lanes[number] = lane_of(source_properties[number].origin.path)
            routing_keys.setdefault(lane, set()).add(EntryRoutingKey(name.topic, name.origin.path))
        if len(routing_keys) == 1:
            self._track_unsettled(
                lane, (entries.txids[0], entries.txids[-1]), result.last_txid, routing_keys[lane]
            )
            return
        txid_range = range(result.first_txid, result.last_txid + 1)
        is_dense = len(txid_range) == len(entries.data)
        for lane, positions in by_value([lanes[number] for number in entries.property_indexes]):
            first, last = positions[0], positions[-1]
            own_last_txid = txid_range[last] if is_dense else result.last_txid
            self._track_unsettled(
                lane, (entries.txids[first], entries.txids[last]), own_last_txid, routing_keys[lane]
            )

    def _track_unsettled(
        self,
        lane: int,
        txids: tuple[int, int],
        own_last_txid: int,
        routing_keys: set[EntryRoutingKey],
    ) -> None:
        """Acknowledge entries of a lane when they are settled; see `UnacknowledgedEntries.add`."""
        # The source counts late entries as acknowledged already.
        if self._current_batch is not None and not self._current_batch.is_late:
            self._unacknowledged_entries.add(lane, txids, own_last_txid, routing_keys)

    # acknowledgements

    def make_ack(self, durable_txid: int, is_settled: IsAcknowledged) -> Ack | None:
        """Return the acknowledgement for the source; None if it has not changed.

        Args:
            durable_txid: the last txid on stable storage here.
            is_settled: see `IsAcknowledged`.
        """
        unsynced_txids = self._unsynced_txids
        while unsynced_txids and unsynced_txids[0][1] <= durable_txid:
            self._stored_txid = unsynced_txids.popleft()[0]
        self._unacknowledged_entries.release_settled(durable_txid, is_settled, self._source_name)
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

        None if there is none yet: a source that is sent a cursor sends only the entries behind it,
        and not those that this instance had once and has lost.
        """
        if self._stream is None or self._settled_txid < self._difference_end_txid:
            return None
        return ReceiveCursor(
            self._stream,
            self._settled_txid,
            tuple(self._skipped_ranges),
            self.run_at(self._settled_txid),
        )


@lru_cache(maxsize=4096)
def _append_source(name: SharedProperties, hop: Hop) -> SharedProperties:
    origin = name.origin
    return name._replace(origin=JournalOrigin(origin.auth_id, append_hop(origin.path, hop)))


def _recordable_parts(kinds: EntryColumn) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each range of entries to record, and then mark, together.

    The effect of notices of queues and instances about messages depends on which messages have
    arrived. So the messages before a notice must be known, and those behind it must not be recorded
    yet.
    """
    if isinstance(kinds, ConstantColumn) or _NOTICE_KINDS.isdisjoint(kinds):
        return iter([(0, len(kinds))])
    return rows(kind in _NOTICE_KINDS for kind in kinds)
