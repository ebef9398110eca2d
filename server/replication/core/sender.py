"""The source's side of replication to one destination.

    connected -> Begin ... Resume [Knowledge ...] -> batches, within a window ... Acks

A sender reads the log behind the destination's position. It asks for that position, and does not
guess: a destination that has a cursor in this log returns it. A destination without one, because it
or this log is new, lists the messages it has of each publisher, and is sent the entries that are
not in that list. In that case, entries that have passed through the destination are sent, too: it
may have lost them.

For each entry of the log, `has` decides whether the destination has it: it does if the entry does
not go there, or has been acknowledged. Entries that were sent and are not acknowledged are in
flight, see `lanes`. Of entries not read yet, nothing is known.

A sender stops in front of an entry that cannot be read (`blocked`), until it can be read, or is
given up: then it is owed, see `skipped_entries`.

A destination acknowledges twice. *Stored* is the part on its stable storage; the window follows
this, because it depends on nothing but the destination's disk. *Settled* is the part that is
stored, too, at the instances that acknowledge to it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from enum import Enum
from itertools import pairwise
from operator import itemgetter
from typing import Final, NamedTuple, Protocol

from server.replication.core.ack_order import InFlightEntries, lane_of
from server.replication.core.acknowledgement import EntryRoutingKey
from server.replication.core.columns import PackedBatch, by_client, compact_column
from server.replication.core.dedup_window import (
    DedupWindow,
    PublisherWindow,
    is_identity_made_by,
    make_peer_dedup_window,
)
from server.replication.core.forwarding_table import ForwardingTable, pack_passage
from server.replication.core.frames import (
    Ack,
    DedupState,
    PositionRequest,
    PositionResponse,
    SkippedRanges,
)
from server.replication.core.routes import LinkRoute, RouteFilter, Routes, filter_batch, hops
from server.replication.core.skipped_entries import SkippedEntries
from server.storage.journal import DamagedEntry, EntryBatch, JournalTopic, RawEntryRange
from server.storage.journal.format.layout import CLIENT, SEQUENCE, SOURCE_TXID, TXID
from server.storage.journal.runs import has_recorded

MAX_IN_FLIGHT_BYTES: Final = 16 << 20
"""Bytes that may be sent before the destination has stored any of them."""

_TXID: Final = itemgetter(TXID)
_MAX_ENTRIES: Final = 256  # are read and sent, or received, in about a millisecond
_MAX_BYTES: Final = 256 << 10
_MAX_WINDOW_IDENTITIES: Final = 4_000_000  # identities that a destination may list
_MAX_TRIED: Final = 64  # damaged entries that one call retries
_MIN_SKIPPED: Final = 512  # skipped entries after which the destination is told the position


class ReplicationProtocolError(Exception):
    """The peer violates the protocol; the link is to be closed. The text gives the violation."""


class PassageReader(Protocol):
    """Reads a log forward; the journal's `JournalCursor` does."""

    @property
    def position(self) -> int:
        """The txid up to which the log has been read."""

    def read_for_forwarding(self, most_entries: int, most_bytes: int) -> RawEntryRange:
        """Return the next entries; an empty passage does not mean the end of the log."""


class SourceLog(Protocol):
    """The log of this instance, as a sender uses it."""

    @property
    def first_txid(self) -> int:
        """The txid of the oldest entry in the log."""

    @property
    def durable_txid(self) -> int:
        """The txid of the last entry on stable storage."""

    def read_from(self, after: int, wanted: Callable[[JournalTopic], bool]) -> PassageReader:
        """Return a reader of the entries that change state (`EVENTS`) and are on stable storage.

        Args:
            after: the txid behind which to begin.
            wanted: returns whether a topic is wanted.
        """

    def is_lost(self, txid: int) -> bool:
        """Return whether an unreadable entry is not worth waiting for."""


class PeerInstance(NamedTuple):
    """The instance at the other end, as its `Hello` describes it.

    Attributes:
        name: its Name.
        group: its Group.
        log: identity of its transaction log.
        log_start_txid: the first txid that this log ever had.
        runs: the first txid and the number of each run that has recorded entries of it; empty if
            the peer does not send them.
    """

    name: str
    group: str
    log: str
    log_start_txid: int
    runs: Sequence[tuple[int, int]] = ()


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
        acknowledged: the txid up to which the destination had everything, as remembered from an
            earlier run; 0 if nothing is remembered.
        max_in_flight_bytes: bytes that may be sent before any of them is stored.

    Attributes:
        state: see `SenderState`.
        peer: the instance that is connected, or was last; None if there was none in this run.
        is_resynchronized: whether the destination has stored the log as it was when the destination
            connected; becomes true once for each connection.
        sent_entries: entries sent, ever.
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
        self._forwarding_table: ForwardingTable | None = (
            None  # of the names of the file that is being read
        )
        self._reader: PassageReader | None = None
        self._examined_txid = acknowledged  # up to here, the entries that go there are known
        self._in_flight_entries = InFlightEntries(acknowledged)
        self._unstored_batches: deque[tuple[int, int]] = (
            deque()
        )  # last txid, bytes: sent and not stored
        self._unstored_bytes = 0
        self._sent_txid = 0  # the last txid of the batch sent last
        self._deferred_batch: PackedBatch | None = (
            None  # built, and sent after the `SkippedRanges` frame for it
        )
        self._return_end_txid = 0  # up to here, it may have lost entries that passed through it
        self._resync_end_txid = 0  # the end of the log when the destination connected
        self._first_txid = 0  # and its first txid, which both ends use from then on
        self._peer_windows: list[PublisherWindow] = []
        self._missing_entries: _MissingEntries | None = (
            None  # while only the difference is sent, up to the goal
        )

    # The link.

    def begin_link(self, peer: PeerInstance) -> PositionRequest:
        """Take note that the destination has connected; return the frame to send."""
        self.peer = peer
        self.state = SenderState.AWAITING_POSITION
        self.is_resynchronized = False
        self._reset_reader()
        self._route = LinkRoute(self._routes, peer.name)
        self._resync_end_txid = self._log.durable_txid
        self._first_txid = self._log.first_txid
        return PositionRequest(self._stream, self._first_txid, self._resync_end_txid)

    def end_link(self) -> None:
        """Take note that the destination is gone. Entries in flight stay so."""
        self.state = SenderState.DISCONNECTED
        self._reset_reader()

    def _reset_reader(self) -> None:
        self._reader = self._missing_entries = self._forwarding_table = self._deferred_batch = None
        self.blocked_txid = 0
        self._peer_windows = []
        self._unstored_batches.clear()
        self._unstored_bytes = 0

    def resume(self, frame: PositionResponse) -> ResumePosition | None:
        """Take the destination's position; return None if more frames about it follow.

        Raises:
            ReplicationProtocolError: it was not asked, or the position is not in the log.
        """
        if self.state is not SenderState.AWAITING_POSITION:
            raise ReplicationProtocolError("says where it is, and was not asked")
        if frame.after is None:
            self.state = SenderState.AWAITING_DEDUP_STATE
            return None
        if frame.after > self._resync_end_txid:
            raise ReplicationProtocolError(
                f"claims to have entry {frame.after} of a log that ends with"
                f" {self._resync_end_txid}"
            )
        if frame.ack is not None:
            _check(frame.ack, frame.after)
            self._in_flight_entries.resume(frame.after, frame.ack)
        if any(first > last for first, last in frame.owed):
            raise ReplicationProtocolError("is owed ranges that are none")
        self.skipped_entries.restore(frame.owed)
        return self._start_sending(frame.after, by_difference=False)

    def process_dedup_state(self, frame: DedupState) -> ResumePosition | None:
        """Take a list of the messages that the destination has; return None if more frames follow.

        Raises:
            ReplicationProtocolError: it was not asked, or lists too many.
        """
        if self.state is not SenderState.AWAITING_DEDUP_STATE or self.peer is None:
            raise ReplicationProtocolError("tells what it has, and was not asked")
        self._peer_windows += frame.had
        if len(self._peer_windows) > _MAX_WINDOW_IDENTITIES:
            raise ReplicationProtocolError(
                f"tells of more than {_MAX_WINDOW_IDENTITIES} publishers"
            )
        if not frame.is_last:
            return None
        way = LinkRoute(self._routes, self.peer.name, is_return_allowed=True)
        self._missing_entries = _MissingEntries(
            self.peer, make_peer_dedup_window(self._peer_windows), way
        )
        self._return_end_txid = self._resync_end_txid
        self._peer_windows = []
        self.skipped_entries.clear()
        self._in_flight_entries = InFlightEntries(self._first_txid - 1)
        return self._start_sending(self._first_txid - 1, by_difference=True)

    def _start_sending(self, after: int, *, by_difference: bool) -> ResumePosition:
        first_txid = self._log.first_txid
        missing = (after + 1, first_txid - 1) if after + 1 < first_txid else None
        after = max(after, self._first_txid - 1)
        self._sent_txid = self._examined_txid = after
        if after >= self._resync_end_txid:
            self._missing_entries = None  # nothing to compare
        self._open_reader(after)
        self.state = SenderState.SENDING
        self._update_resynchronized()
        return ResumePosition(after, by_difference, missing)

    # Sending.

    @property
    def is_window_open(self) -> bool:
        """True if the window allows sending more."""
        return self._unstored_bytes < self._max_in_flight_bytes

    def next_frame(self, now: int, *, flush: bool = False) -> PackedBatch | SkippedRanges | None:
        """Return the next frame to send; None if there is none, or no room in the window.

        The caller polls this whenever the link has room and the log has grown.

        Args:
            now: microseconds since the Unix epoch.
            flush: tell the destination how far the log has been read even if none of it goes there;
                to be requested about once a second.

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
            before = reader.position
            passage = reader.read_for_forwarding(_MAX_ENTRIES, _MAX_BYTES)
            position = reader.position
            owed: Sequence[DamagedEntry] = ()
            try:
                if passage.damaged_entries:
                    owed, position = self._find_lost(passage.damaged_entries, position)
                    passage = passage.up_to(position)
                batch = self._pack_batch(passage, position, now)
            except BaseException:  # raised by a filter: read this passage again
                self._open_reader(self._sent_txid)
                raise
            if position < reader.position:
                self._open_reader(position)
            self._examined_txid = position
            if owed or self.skipped_entries.skipped_txids:
                self._record_skipped(owed, before + 1, position)
            is_news = flush or (
                self._missing_entries is not None and position >= self._resync_end_txid
            )
            if batch.entry_count or position - self._sent_txid >= (1 if is_news else _MIN_SKIPPED):
                self._record_sent(batch)
                return batch
            if position == before:
                self._update_resynchronized()
                return None
        return None

    def _open_reader(self, after: int) -> None:
        self._reader = self._log.read_from(after, self._routes.includes)

    def _pack_batch(self, passage: RawEntryRange, position: int, now: int) -> PackedBatch:
        """Return the entries of a passage that go to the destination."""
        is_chosen = self._missing_entries is not None or self._routes.has_filters
        if is_chosen:
            passage = passage.pick(self._selected_positions(passage))
        forwarding_table, definitions = self._forwarding_table, passage.definitions
        if (
            forwarding_table is None
            or forwarding_table.definitions is not definitions
            or forwarding_table.sends_all is not is_chosen
        ):
            forwarding_table = self._forwarding_table = ForwardingTable(
                definitions, self._route, sends_all=is_chosen
            )
        return pack_passage(self._sent_txid, position, passage, forwarding_table, now)

    def _selected_positions(self, passage: RawEntryRange) -> list[int]:
        """Return the positions of the entries that go to the destination, checked one by one."""
        runs = passage.to_entry_range().batches()
        going = {row[TXID] for run in runs for one in self._filter_parts(run) for row in one.rows}
        return _places(passage, going)

    def _filter_parts(self, run: EntryBatch) -> Iterator[EntryBatch]:
        """Return the entries of a run that go to the destination."""
        missing_entries, route = self._missing_entries, self._route
        if missing_entries is not None:
            known = bisect_right(run.rows, self._resync_end_txid, key=_TXID)
            if known:
                yield filter_batch(
                    missing_entries.select_missing(run.pick(range(known))), missing_entries.route
                )
            if known == len(run.rows):
                return
            run = run.pick(range(known, len(run.rows)))
        yield filter_batch(run, route)

    # Unreadable entries.

    def retry_damaged(self, mended: int = 0) -> None:
        """Retry, because an entry has been repaired, or has to be given up.

        Args:
            mended: its txid, if it can be read again.
        """
        self.blocked_txid = 0
        self.skipped_entries.mark_repaired(mended)

    def _find_lost(
        self, unread: Sequence[DamagedEntry], end: int
    ) -> tuple[Sequence[DamagedEntry], int]:
        """Return the unreadable entries that are given up, and the txid up to which that is all."""
        owed: list[DamagedEntry] = []
        for one in filter(self._may_be_sent, unread):
            if one.txid not in self.skipped_entries.skipped_txids and not self._log.is_lost(
                one.txid
            ):
                self.blocked_txid = one.txid
                return owed, one.txid - 1
            owed.append(one)
        return owed, end

    def _may_be_sent(self, unread: DamagedEntry) -> bool:
        """Return whether an unreadable entry may go to the destination, as far as that is known."""
        batch, route = unread.batch, self._route
        if batch is None:
            return True
        if self._missing_entries is not None and unread.txid <= self._resync_end_txid:
            route, batch = self._missing_entries.route, self._missing_entries.select_missing(batch)
        return len(batch.rows) > 0 and route.filters_for(batch.topic, batch.origin.path) is not None

    def _record_skipped(self, owed: Sequence[DamagedEntry], first: int, last: int) -> None:
        """Record the unreadable entries of a part of the log; the rest of it could be read."""
        skipped = self.skipped_entries
        self.unreported_skipped += [one for one in owed if one.txid not in skipped.skipped_txids]
        if owed or skipped.skipped_txids.overlaps(first, last):
            skipped.remove(first, last)
            skipped.add((one.txid, one.batch) for one in owed)

    def _next_late_batch(self, now: int) -> PackedBatch | None:
        """Return owed entries that can be read again; see `next_frame`."""
        skipped = self.skipped_entries
        for _ in range(_MAX_TRIED):
            next_retry_range = skipped.next_retry_range
            if next_retry_range is None or next_retry_range[1] > self._sent_txid:
                break
            first, last = next_retry_range
            reader = self._log.read_from(first - 1, self._routes.includes)
            passage = reader.read_for_forwarding(min(_MAX_ENTRIES, last - first + 1), _MAX_BYTES)
            end = min([reader.position, last, *(one.txid - 1 for one in passage.damaged_entries)])
            if end < first:
                skipped.mark_unreadable(first)
                continue
            way = LinkRoute(
                self._routes, self._route.peer, is_return_allowed=last <= self._return_end_txid
            )
            passage = passage.up_to(end)
            runs = (filter_batch(run, way) for run in passage.to_entry_range().batches())
            going = {row[TXID] for run in runs for row in run.rows}
            passage = passage.pick(_places(passage, going))
            skipped.remove(first, end)
            ways = ForwardingTable(passage.definitions, way, sends_all=True)
            batch = pack_passage(first - 1, end, passage, ways, now)._replace(is_late=True)
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

    # Acknowledgements.

    def process_ack(self, ack: Ack) -> None:
        """Process an acknowledgement of the destination.

        Raises:
            ReplicationProtocolError: it acknowledges entries that it cannot have.
        """
        if self.state is not SenderState.SENDING:
            raise ReplicationProtocolError("acknowledges, and has been sent nothing")
        _check(ack, self._sent_txid)
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
        """The txid up to which the destination has everything that goes there."""
        settled_txid = self._in_flight_entries.settled_txid
        return (
            self._examined_txid if settled_txid is None else min(settled_txid, self._examined_txid)
        )

    @property
    def reached_txid(self) -> int:
        """The txid up to which the destination has stored all that goes there, as far as is known.

        Instances behind the destination may not have it; `settled_txid` waits for these, too.
        """
        is_all_stored = self.state is SenderState.SENDING and not self._unstored_batches
        return max(self.stored_txid, self._examined_txid if is_all_stored else self.settled_txid)

    @property
    def bytes_in_flight(self) -> int:
        """Bytes sent on this connection that the destination has not acknowledged as stored."""
        return self._unstored_bytes

    def has_entries(self, last: int, kinds: Collection[EntryRoutingKey]) -> bool:
        """Return whether the destination has all entries up to a txid that go there.

        Args:
            last: the txid.
            kinds: each of the entries is of one of these.
        """
        return not any(
            (
                last > self._examined_txid
                or not self._in_flight_entries.has_lane_up_to(lane_of(kind.path), last)
            )
            and self._route.filters_for(kind.topic, kind.path) is not None
            for kind in kinds
        )

    def may_send_topic(self, topic: JournalTopic) -> bool:
        """Return whether entries published here to a topic may go to the destination."""
        return self._route.filters_for(topic, "") is not None

    def filters_for(self, topic: JournalTopic, path: str) -> tuple[RouteFilter, ...] | None:
        """Return the filters any of which a body has to match to go there.

        They are empty if all bodies go there, and None if none does. An entry that has passed
        through the destination may go there again.

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


def _check(ack: Ack, most: int) -> None:
    """Validate an acknowledgement.

    Raises:
        ReplicationProtocolError: it is invalid.
    """
    if ack.stored > most:
        raise ReplicationProtocolError(
            f"acknowledges entry {ack.stored}, and was sent none behind {most}"
        )
    if any(one[0] >= other[0] for one, other in pairwise(ack.lanes)):
        raise ReplicationProtocolError("acknowledges lanes that are in no order")
    if any(txid >= ack.stored for _, txid in ack.lanes):
        raise ReplicationProtocolError("acknowledges what it has not stored")


class _MissingEntries:
    """The entries that a destination lacks, according to its `DedupState`.

    Args:
        peer: the connected instance.
        peer_dedup_window: the messages that it has of each publisher.
        route: the entries that go there, including those that passed through it.
    """

    def __init__(
        self, peer: PeerInstance, peer_dedup_window: DedupWindow, route: LinkRoute
    ) -> None:
        self.route = route
        self._peer = peer
        self._peer_dedup_window = peer_dedup_window

    def select_missing(self, run: EntryBatch) -> EntryBatch:
        """Return the entries of a run that it lacks."""
        rows, peer = run.rows, self._peer
        places: Sequence[int] = range(len(rows))
        path = hops(run.origin.path)
        if path and path[0].name == peer.name:
            # The peer has the entries that it numbered itself, if they are in its present log.
            places = [
                place
                for place in places
                if rows[place][SEQUENCE] < peer.log_start_txid
                or not is_identity_made_by(peer.name, rows[place][CLIENT], rows[place][SOURCE_TXID])
                or not has_recorded(peer.runs, rows[place][CLIENT], rows[place][SEQUENCE])
            ]
        if not places:
            return run.pick(())
        chosen: list[int] = []
        for client, indexes in by_client(compact_column([rows[place][CLIENT] for place in places])):
            sequences = compact_column([rows[places[index]][SEQUENCE] for index in indexes])
            new = self._peer_dedup_window.new_positions(client, sequences)
            chosen += [places[indexes[position]] for position in new]
        return run if len(chosen) == len(rows) else run.pick(sorted(chosen))


def _places(passage: RawEntryRange, txids: Container[int]) -> list[int]:
    """Return the positions of the entries with these txids."""
    return [place for place in range(len(passage)) if passage.txid_at(place) in txids]
