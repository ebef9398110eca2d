"""The source's side of replication to one destination.

    connected -> Begin ... Resume [Knowledge ...] -> batches, within a window ... Acks

A sender reads the log behind the destination's position. It requests that position: a destination
that has a cursor in this log returns it. A destination without one, because it or this log is new,
lists the messages it has of each publisher, and is sent the entries that are not in that list. In
that case, entries that have passed through the destination are sent, too: it may have lost them.

For each entry of the log, `has_entries` decides whether the destination has it: it does if the
entry is not for the destination, or has been acknowledged. Entries that were sent and are not
acknowledged are in flight, see ack_order.py. Of entries not read yet, nothing is known.

A sender stops in front of an entry that cannot be read (`blocked_txid`), until it can be read, or
is given up: then it is owed, see skipped_entries.py.

A destination acknowledges twice. *Stored* is the part on its stable storage; the window follows
this, because it depends on nothing but the destination's disk. *Settled* is the part that is
stored, too, at the instances that acknowledge to it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Container, Iterator, Sequence
from enum import Enum
from itertools import pairwise
from operator import itemgetter
from typing import Final, NamedTuple

from server.replication.core.ack_order import InFlightEntries, lane_of
from server.replication.core.acknowledgement import EntryRoutingKey
from server.replication.core.columns import PackedBatch
from server.replication.core.dedup_window import (
    PublisherWindow,
    make_peer_dedup_window,
)
from server.replication.core.forwarding_table import ForwardingTable, pack_range
from server.replication.core.frames import (
    Ack,
    DedupState,
    PositionRequest,
    PositionResponse,
    ReplicationProtocolError,
    SkippedRanges,
)
from server.replication.core.missing_entries import MissingEntries
from server.replication.core.peer_instance import PeerInstance
from server.replication.core.routes import LinkRoute, RouteFilter, Routes, filter_batch
from server.replication.core.skipped_entries import SkippedEntries
from server.replication.core.source_log import SourceLog, SourceLogReader
from server.storage.journal import DamagedEntry, EntryBatch, JournalTopic, RawEntryRange
from server.storage.journal.format.layout import TXID

MAX_IN_FLIGHT_BYTES: Final = 16 << 20
"""Bytes that may be sent before the destination has stored any of them."""

_TXID: Final = itemgetter(TXID)
_MAX_ENTRIES: Final = 256  # are read and sent, or received, in about a millisecond
_MAX_BYTES: Final = 256 << 10
_MAX_WINDOW_IDENTITIES: Final = 4_000_000  # identities that a destination may list
_MAX_RETRIES: Final = 64  # damaged entries that one call retries
_MIN_SKIPPED: Final = 512  # skipped entries after which the position is sent to the destination


class SenderState(Enum):
    """The event that a sender waits for."""

    DISCONNECTED = "apart"  # a connection
    AWAITING_POSITION = "asking"  # the position to resume from
    AWAITING_DEDUP_STATE = "learning"  # the rest of the destination's `DedupState`
    SENDING = "sending"


class ResumePosition(NamedTuple):
    """The position that a destination has returned.

    Attributes:
        after_txid: the txid behind which it is sent entries.
        is_by_difference: it has no cursor, and is sent the entries that it lacks.
        missing_range: the first and the last txid of the entries that it lacks and that the log
            lacks, too, because journals have been removed; None if there are none.
    """

    after_txid: int
    is_by_difference: bool
    missing_range: tuple[int, int] | None


class ReplicationSender:
    """Sends to one destination.

    Args:
        log: this instance's log.
        stream: identifies that log, and the part of it that is replicated to this destination.
        routes: that part.
        acknowledged: the txid up to which the destination had everything, as stored in an earlier
            run; 0 if that is not known.
        max_in_flight_bytes: bytes that may be sent before any of them is stored.

    Attributes:
        state: see `SenderState`.
        peer: the instance that is connected, or was last; None if there was none in this run.
        is_resynchronized: whether the destination has stored the log as it was when the destination
            connected; becomes true once for each connection.
        sent_entries: total of entries sent.
        skipped_entries: the entries that the destination is owed.
        blocked_txid: the txid of the unreadable entry that the sender waits for; 0 if there is
            none.
        unreported_skipped: the entries that have been given up; the consumer reports them, and
            empties this.
    """

    def __init__(
        self,
        log: SourceLog,
        stream: str,
        routes: Routes,
        acknowledged: int = 0,
        max_in_flight_bytes: int = MAX_IN_FLIGHT_BYTES,
    ) -> None:
        self.state = SenderState.DISCONNECTED
        self.peer: PeerInstance | None = None
        self.is_resynchronized = False
        self.sent_entries = 0
        self.skipped_entries = SkippedEntries()
        self.blocked_txid = 0
        self.unreported_skipped: list[DamagedEntry] = []
        self._log = log
        self._stream = stream
        self._routes = routes
        self._max_in_flight_bytes = max_in_flight_bytes
        self._route = LinkRoute(routes, "")
        # for the topics and origins of the file that is being read
        self._forwarding_table: ForwardingTable | None = None
        self._reader: SourceLogReader | None = None
        self._examined_txid = acknowledged  # up to here, the entries that are sent are known
        self._in_flight_entries = InFlightEntries(acknowledged)
        # last txid and bytes of batches that are sent and not stored
        self._unstored_batches: deque[tuple[int, int]] = deque()
        self._unstored_bytes = 0
        self._sent_txid = 0  # the last txid of the batch sent last
        # built, and sent after the `SkippedRanges` frame for it
        self._deferred_batch: PackedBatch | None = None
        self._return_end_txid = 0  # up to here, it may have lost entries that passed through it
        self._resync_end_txid = 0  # the end of the log when the destination connected
        self._first_txid = 0  # and its first txid, which both ends use from then on
        self._peer_windows: list[PublisherWindow] = []
        # while only the difference is sent, up to `_resync_end_txid`
        self._missing_entries: MissingEntries | None = None

    # link

    def begin_link(self, peer: PeerInstance) -> PositionRequest:
        """Begin a link with the destination; return the frame to send."""
        self.peer = peer
        self.state = SenderState.AWAITING_POSITION
        self.is_resynchronized = False
        self._reset_reader()
        self._route = LinkRoute(self._routes, peer.name)
        self._resync_end_txid = self._log.durable_txid
        self._first_txid = self._log.first_txid
        return PositionRequest(self._stream, self._first_txid, self._resync_end_txid)

    def end_link(self) -> None:
        """End the link with the destination; entries in flight stay in flight."""
        self.state = SenderState.DISCONNECTED
        self._reset_reader()

    def _reset_reader(self) -> None:
        self._reader = self._missing_entries = self._forwarding_table = self._deferred_batch = None
        self.blocked_txid = 0
        self._peer_windows = []
        self._unstored_batches.clear()
        self._unstored_bytes = 0

    def resume(self, frame: PositionResponse) -> ResumePosition | None:
        """Process the destination's position; return None if more frames about it follow.

        Raises:
            ReplicationProtocolError: it was not requested, or the position is not in the log.
        """
        if self.state is not SenderState.AWAITING_POSITION:
            raise ReplicationProtocolError("PositionResponse without a request")
        if frame.after is None:
            self.state = SenderState.AWAITING_DEDUP_STATE
            return None
        if frame.after > self._resync_end_txid:
            raise ReplicationProtocolError(
                f"PositionResponse with entry {frame.after}, but the log ends with"
                f" {self._resync_end_txid}"
            )
        if frame.ack is not None:
            _validate_ack(frame.ack, frame.after)
            self._in_flight_entries.resume(frame.after, frame.ack)
        if any(first > last for first, last in frame.owed):
            raise ReplicationProtocolError("invalid skipped range in PositionResponse")
        self.skipped_entries.restore(frame.owed)
        return self._start_sending(frame.after, by_difference=False)

    def process_dedup_state(self, frame: DedupState) -> ResumePosition | None:
        """Process a part of the destination's dedup state; return None if more frames follow.

        Raises:
            ReplicationProtocolError: it was not requested, or lists too many.
        """
        if self.state is not SenderState.AWAITING_DEDUP_STATE or self.peer is None:
            raise ReplicationProtocolError("DedupState without a request")
        self._peer_windows += frame.windows
        if len(self._peer_windows) > _MAX_WINDOW_IDENTITIES:
            raise ReplicationProtocolError(
                f"DedupState with more than {_MAX_WINDOW_IDENTITIES} publishers"
            )
        if not frame.is_last:
            return None
        route = LinkRoute(self._routes, self.peer.name, is_return_allowed=True)
        self._missing_entries = MissingEntries(
            self.peer, make_peer_dedup_window(self._peer_windows), route
        )
        self._return_end_txid = self._resync_end_txid
        self._peer_windows = []
        self.skipped_entries.clear()
        self._in_flight_entries = InFlightEntries(self._first_txid - 1)
        return self._start_sending(self._first_txid - 1, by_difference=True)

    def _start_sending(self, after_txid: int, *, by_difference: bool) -> ResumePosition:
        first_txid = self._log.first_txid
        missing = (after_txid + 1, first_txid - 1) if after_txid + 1 < first_txid else None
        after_txid = max(after_txid, self._first_txid - 1)
        self._sent_txid = self._examined_txid = after_txid
        if after_txid >= self._resync_end_txid:
            self._missing_entries = None  # nothing to compare
        self._open_reader(after_txid)
        self.state = SenderState.SENDING
        self._update_resynchronized()
        return ResumePosition(after_txid, by_difference, missing)

    # sending

    @property
    def is_window_open(self) -> bool:
        """True if the window allows sending more."""
        return self._unstored_bytes < self._max_in_flight_bytes

    def next_frame(self, now: int, *, flush: bool = False) -> PackedBatch | SkippedRanges | None:
        """Return the next frame to send; None if there is none, or no room in the window.

        The caller polls this whenever the link has room and the log has grown.

        Args:
            now: microseconds since the Unix epoch.
            flush: send the destination the position in the log even if no entry is for it; to be
                requested about once a second.

        Raises:
            JournalUnreadableError: the log cannot be read at the moment; nothing has changed.
        """
        if self._reader is None:
            return None
        if self.skipped_entries.is_frame_due:
            return self.skipped_entries.make_frame()
        batch, self._deferred_batch = self._deferred_batch, None
        if batch is not None:
            return batch
        if not self.is_window_open:
            return None
        batch = self._next_late_batch(now) or self._next_log_batch(now, flush=flush)
        if batch is not None and self.skipped_entries.is_frame_due:
            self._deferred_batch = batch
            return self.skipped_entries.make_frame()
        return batch

    def _next_log_batch(self, now: int, *, flush: bool) -> PackedBatch | None:
        """Return the next part of the log; see `next_frame`."""
        if self.blocked_txid and not flush:
            return None
        self.blocked_txid = 0
        while (reader := self._reader) is not None:
            previous_position = reader.position
            raw_range = reader.read_for_forwarding(_MAX_ENTRIES, _MAX_BYTES)
            position = reader.position
            skipped_entries: Sequence[DamagedEntry] = ()
            try:
                if raw_range.damaged_entries:
                    skipped_entries, position = self._find_lost(raw_range.damaged_entries, position)
                    raw_range = raw_range.up_to(position)
                batch = self._pack_batch(raw_range, position, now)
            except BaseException:  # raised by a filter: read this range again
                self._open_reader(self._sent_txid)
                raise
            if position < reader.position:
                self._open_reader(position)
            self._examined_txid = position
            if skipped_entries or self.skipped_entries.skipped_txids:
                self._record_skipped(skipped_entries, previous_position + 1, position)
            must_report = flush or (
                self._missing_entries is not None and position >= self._resync_end_txid
            )
            if batch.entry_count or position - self._sent_txid >= (
                1 if must_report else _MIN_SKIPPED
            ):
                self._record_sent(batch)
                return batch
            if position == previous_position:
                self._update_resynchronized()
                return None
        return None

    def _open_reader(self, after: int) -> None:
        self._reader = self._log.read_from(after, self._routes.includes)

    def _pack_batch(self, raw_range: RawEntryRange, position: int, now: int) -> PackedBatch:
        """Return the entries of a range that are sent to the destination."""
        is_selected = self._missing_entries is not None or self._routes.has_filters
        if is_selected:
            raw_range = raw_range.pick(self._selected_positions(raw_range))
        forwarding_table, definitions = self._forwarding_table, raw_range.definitions
        if (
            forwarding_table is None
            or forwarding_table.definitions is not definitions
            or forwarding_table.sends_all is not is_selected
        ):
            forwarding_table = self._forwarding_table = ForwardingTable(
                definitions, self._route, sends_all=is_selected
            )
        return pack_range(self._sent_txid, position, raw_range, forwarding_table, now)

    def _selected_positions(self, raw_range: RawEntryRange) -> list[int]:
        """Return the positions of the entries that are sent to the destination, one by one."""
        batches = raw_range.to_entry_range().batches()
        txids = {
            row[TXID]
            for batch in batches
            for part in self._filter_parts(batch)
            for row in part.rows
        }
        return _positions_of(raw_range, txids)

    def _filter_parts(self, batch: EntryBatch) -> Iterator[EntryBatch]:
        """Return the entries of a batch that are sent to the destination."""
        missing_entries, route = self._missing_entries, self._route
        if missing_entries is not None:
            known_count = bisect_right(batch.rows, self._resync_end_txid, key=_TXID)
            if known_count:
                yield filter_batch(
                    missing_entries.select_missing(batch.pick(range(known_count))),
                    missing_entries.route,
                )
            if known_count == len(batch.rows):
                return
            batch = batch.pick(range(known_count, len(batch.rows)))
        yield filter_batch(batch, route)

    # unreadable entries

    def retry_damaged(self, repaired_txid: int = 0) -> None:
        """Retry, because an entry has been repaired, or has to be given up.

        Args:
            repaired_txid: its txid, if it can be read again.
        """
        self.blocked_txid = 0
        self.skipped_entries.mark_repaired(repaired_txid)

    def _find_lost(
        self, damaged_entries: Sequence[DamagedEntry], end: int
    ) -> tuple[Sequence[DamagedEntry], int]:
        """Return the unreadable entries that are given up, and the txid up to which that is all."""
        lost: list[DamagedEntry] = []
        for damaged in filter(self._may_be_sent, damaged_entries):
            if damaged.txid not in self.skipped_entries.skipped_txids and not self._log.is_lost(
                damaged.txid
            ):
                self.blocked_txid = damaged.txid
                return lost, damaged.txid - 1
            lost.append(damaged)
        return lost, end

    def _may_be_sent(self, damaged: DamagedEntry) -> bool:
        """Return whether an unreadable entry may be for the destination, as far as is known."""
        batch, route = damaged.batch, self._route
        if batch is None:
            return True
        if self._missing_entries is not None and damaged.txid <= self._resync_end_txid:
            route, batch = self._missing_entries.route, self._missing_entries.select_missing(batch)
        return len(batch.rows) > 0 and route.filters_for(batch.topic, batch.origin.path) is not None

    def _record_skipped(self, lost: Sequence[DamagedEntry], first: int, last: int) -> None:
        """Record the unreadable entries of a part of the log; the rest of it could be read."""
        skipped = self.skipped_entries
        self.unreported_skipped += [
            damaged for damaged in lost if damaged.txid not in skipped.skipped_txids
        ]
        if lost or skipped.skipped_txids.overlaps(first, last):
            skipped.remove(first, last)
            skipped.add((damaged.txid, damaged.batch) for damaged in lost)

    def _next_late_batch(self, now: int) -> PackedBatch | None:
        """Return owed entries that can be read again; see `next_frame`."""
        skipped = self.skipped_entries
        for _ in range(_MAX_RETRIES):
            next_retry_range = skipped.next_retry_range
            if next_retry_range is None or next_retry_range[1] > self._sent_txid:
                break
            first, last = next_retry_range
            reader = self._log.read_from(first - 1, self._routes.includes)
            raw_range = reader.read_for_forwarding(min(_MAX_ENTRIES, last - first + 1), _MAX_BYTES)
            readable_ends = (damaged.txid - 1 for damaged in raw_range.damaged_entries)
            end = min([reader.position, last, *readable_ends])
            if end < first:
                skipped.mark_unreadable(first)
                continue
            route = LinkRoute(
                self._routes, self._route.peer, is_return_allowed=last <= self._return_end_txid
            )
            raw_range = raw_range.up_to(end)
            batches = (filter_batch(part, route) for part in raw_range.to_entry_range().batches())
            txids = {row[TXID] for part in batches for row in part.rows}
            raw_range = raw_range.pick(_positions_of(raw_range, txids))
            skipped.remove(first, end)
            forwarding_table = ForwardingTable(raw_range.definitions, route, sends_all=True)
            batch = pack_range(first - 1, end, raw_range, forwarding_table, now)._replace(
                is_late=True
            )
            self._charge_window(batch)
            return batch
        return None

    def _record_sent(self, batch: PackedBatch) -> None:
        in_flight_entries = self._in_flight_entries
        in_flight_entries.record_sent(
            {lane_of(origin.path) for _, origin in batch.names}, batch.upto
        )
        if self._missing_entries is not None:
            # Entries that the destination has may not be on its stable storage yet.
            in_flight_entries.require_all(batch.upto)
            if batch.upto >= self._resync_end_txid:
                self._missing_entries = None  # from now on, its own entries are not sent back
        self._sent_txid = batch.upto
        self._charge_window(batch)

    def _charge_window(self, batch: PackedBatch) -> None:
        """Charge a batch to the window."""
        size = len(batch.data) + 64 * batch.entry_count
        self.sent_entries += batch.entry_count
        self._unstored_batches.append((self._sent_txid, size))
        self._unstored_bytes += size

    # acknowledgements

    def process_ack(self, ack: Ack) -> None:
        """Process an acknowledgement of the destination.

        Raises:
            ReplicationProtocolError: it acknowledges entries that it cannot have.
        """
        if self.state is not SenderState.SENDING:
            raise ReplicationProtocolError("ack before any batch")
        _validate_ack(ack, self._sent_txid)
        while self._unstored_batches and self._unstored_batches[0][0] <= ack.stored:
            self._unstored_bytes -= self._unstored_batches.popleft()[1]
        self._in_flight_entries.process_ack(ack)
        self._update_resynchronized()

    def _update_resynchronized(self) -> None:
        """Set `is_resynchronized` if the destination has the log as of the link's beginning."""
        if (
            self.state is SenderState.SENDING
            and self._missing_entries is None
            and self._examined_txid >= self._resync_end_txid
            and (not self._unstored_batches or self.stored_txid >= self._resync_end_txid)
        ):
            self.is_resynchronized = True

    @property
    def stored_txid(self) -> int:
        """The txid up to which the destination has everything on stable storage."""
        return self._in_flight_entries.stored_txid

    @property
    def settled_txid(self) -> int:
        """The txid up to which the destination has everything that is sent there."""
        settled_txid = self._in_flight_entries.settled_txid
        return (
            self._examined_txid if settled_txid is None else min(settled_txid, self._examined_txid)
        )

    @property
    def reached_txid(self) -> int:
        """The txid up to which the destination has stored everything for it, as far as is known.

        Instances behind the destination may not have it; `settled_txid` waits for these, too.
        """
        is_all_stored = self.state is SenderState.SENDING and not self._unstored_batches
        return max(self.stored_txid, self._examined_txid if is_all_stored else self.settled_txid)

    @property
    def bytes_in_flight(self) -> int:
        """Bytes sent on this connection that the destination has not acknowledged as stored."""
        return self._unstored_bytes

    def has_entries(self, last: int, routing_keys: Collection[EntryRoutingKey]) -> bool:
        """Return whether the destination has all entries up to a txid that are sent there.

        Args:
            last: the txid.
            routing_keys: each of the entries has one of these.
        """
        return not any(
            (
                last > self._examined_txid
                or not self._in_flight_entries.has_lane_up_to(lane_of(key.path), last)
            )
            and self._route.filters_for(key.topic, key.path) is not None
            for key in routing_keys
        )

    def may_send_topic(self, topic: JournalTopic) -> bool:
        """Return whether entries published here to a topic may be sent to the destination."""
        return self._route.filters_for(topic, "") is not None

    def filters_for(self, topic: JournalTopic, path: str) -> tuple[RouteFilter, ...] | None:
        """Return the filters any of which a body has to match to be sent there.

        They are empty if all bodies are sent, and None if none is. An entry that has passed through
        the destination may be sent there again.

        Args:
            topic: the topic of an entry.
            path: the instances that it has passed through.
        """
        peer = "" if self.peer is None else self.peer.name
        return LinkRoute(self._routes, peer, is_return_allowed=True).filters_for(topic, path)

    def is_peer(self, instance: str) -> bool:
        """Return whether the peer, present or last, is the instance of that name."""
        return self.peer is not None and self.peer.name == instance

    @property
    def first_needed_txid(self) -> int:
        """The txid from which on the log is needed for this destination."""
        return min(self.settled_txid, self.stored_txid) + 1


def _validate_ack(ack: Ack, max_txid: int) -> None:
    """Validate an acknowledgement.

    Raises:
        ReplicationProtocolError: it is invalid.
    """
    if ack.stored > max_txid:
        raise ReplicationProtocolError(
            f"ack of entry {ack.stored}, but none after {max_txid} was sent"
        )
    if any(lane[0] >= next_lane[0] for lane, next_lane in pairwise(ack.lanes)):
        raise ReplicationProtocolError("ack with lanes out of order")
    if any(txid >= ack.stored for _, txid in ack.lanes):
        raise ReplicationProtocolError("ack of settled entries that are not stored")


def _positions_of(raw_range: RawEntryRange, txids: Container[int]) -> list[int]:
    """Return the positions of the entries with these txids."""
    return [position for position in range(len(raw_range)) if raw_range.txid_at(position) in txids]
