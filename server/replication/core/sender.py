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
given up: then it is owed, see `arrears`.

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

    def read_passage(self, most_entries: int, most_bytes: int) -> RawEntryRange:
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
        began: the first txid that this log ever had.
        runs: the first txid and the number of each run that has recorded entries of it; empty if
            the peer does not send them.
    """

    name: str
    group: str
    log: str
    began: int
    runs: Sequence[tuple[int, int]] = ()


class SenderState(Enum):
    """The event that a sender waits for."""

    APART = "apart"  # a connection
    ASKING = "asking"  # the position to resume from
    LEARNING = "learning"  # the rest of the destination's `DedupState`
    SENDING = "sending"


class ResumePosition(NamedTuple):
    """The position that a destination has returned.

    Attributes:
        after: the txid behind which it is sent entries.
        by_difference: it has no cursor, and is sent the entries that it lacks.
        missing: the first and the last txid of the entries that it lacks and that the log lacks,
            too, because journals have been removed; None if there are none.
    """

    after: int
    by_difference: bool
    missing: tuple[int, int] | None


class ReplicationSender:
    """Sends to one destination.

    Args:
        log: this instance's log.
        stream: identifies that log, and the part of it that is replicated to this destination.
        routes: that part.
        acknowledged: the txid up to which the destination had everything, as remembered from an
            earlier run; 0 if nothing is remembered.
        most_under_way: bytes that may be sent before any of them is stored.

    Attributes:
        state: see `SenderState`.
        peer: the instance that is connected, or was last; None if there was none in this run.
        resynchronized: whether the destination has stored the log as it was when the destination
            connected; becomes true once for each connection.
        sent: entries sent, ever.
        arrears: the entries that the destination is owed.
        blocked: the txid of the unreadable entry that the sender waits for; 0 if there is none.
        left_out: the entries that have been given up; the consumer reports them, and empties this.
    """

    def __init__(
        self,
        log: SourceLog,
        stream: str,
        routes: Routes,
        acknowledged: int = 0,
        most_under_way: int = MAX_IN_FLIGHT_BYTES,
    ) -> None:
        self.state = SenderState.APART
        self.peer: PeerInstance | None = None
        self.resynchronized = False
        self.sent = 0
        self.arrears = SkippedEntries()
        self.blocked = 0
        self.left_out: list[DamagedEntry] = []
        self._log = log
        self._stream = stream
        self._routes = routes
        self._most_under_way = most_under_way
        self._way = LinkRoute(routes, "")
        self._ways: ForwardingTable | None = None  # of the names of the file that is being read
        self._reader: PassageReader | None = None
        self._looked_at = acknowledged  # up to here, the entries that go there are known
        self._under_way = InFlightEntries(acknowledged)
        self._batches: deque[tuple[int, int]] = deque()  # last txid, bytes: sent and not stored
        self._bytes = 0
        self._told = 0  # the last txid of the batch sent last
        self._next: PackedBatch | None = (
            None  # built, and sent after the `SkippedRanges` frame for it
        )
        self._returns_to = 0  # up to here, it may have lost entries that passed through it
        self._goal = 0  # the end of the log when the destination connected
        self._first = 0  # and its first txid, which both ends use from then on
        self._had: list[PublisherWindow] = []
        self._lacks: _MissingEntries | None = (
            None  # while only the difference is sent, up to the goal
        )

    # The link.

    def connected(self, peer: PeerInstance) -> PositionRequest:
        """Take note that the destination has connected; return the frame to send."""
        self.peer = peer
        self.state = SenderState.ASKING
        self.resynchronized = False
        self._drop_reading()
        self._way = LinkRoute(self._routes, peer.name)
        self._goal = self._log.durable_txid
        self._first = self._log.first_txid
        return PositionRequest(self._stream, self._first, self._goal)

    def disconnected(self) -> None:
        """Take note that the destination is gone. Entries in flight stay so."""
        self.state = SenderState.APART
        self._drop_reading()

    def _drop_reading(self) -> None:
        self._reader = self._lacks = self._ways = self._next = None
        self.blocked = 0
        self._had = []
        self._batches.clear()
        self._bytes = 0

    def resume(self, frame: PositionResponse) -> ResumePosition | None:
        """Take the destination's position; return None if more frames about it follow.

        Raises:
            ReplicationProtocolError: it was not asked, or the position is not in the log.
        """
        if self.state is not SenderState.ASKING:
            raise ReplicationProtocolError("says where it is, and was not asked")
        if frame.after is None:
            self.state = SenderState.LEARNING
            return None
        if frame.after > self._goal:
            raise ReplicationProtocolError(
                f"claims to have entry {frame.after} of a log that ends with {self._goal}"
            )
        if frame.ack is not None:
            _check(frame.ack, frame.after)
            self._under_way.resume(frame.after, frame.ack)
        if any(first > last for first, last in frame.owed):
            raise ReplicationProtocolError("is owed ranges that are none")
        self.arrears.restate(frame.owed)
        return self._begin(frame.after, by_difference=False)

    def learn(self, frame: DedupState) -> ResumePosition | None:
        """Take a list of the messages that the destination has; return None if more frames follow.

        Raises:
            ReplicationProtocolError: it was not asked, or lists too many.
        """
        if self.state is not SenderState.LEARNING or self.peer is None:
            raise ReplicationProtocolError("tells what it has, and was not asked")
        self._had += frame.had
        if len(self._had) > _MAX_WINDOW_IDENTITIES:
            raise ReplicationProtocolError(
                f"tells of more than {_MAX_WINDOW_IDENTITIES} publishers"
            )
        if not frame.is_last:
            return None
        way = LinkRoute(self._routes, self.peer.name, returns=True)
        self._lacks = _MissingEntries(self.peer, make_peer_dedup_window(self._had), way)
        self._returns_to = self._goal
        self._had = []
        self.arrears.clear()
        self._under_way = InFlightEntries(self._first - 1)
        return self._begin(self._first - 1, by_difference=True)

    def _begin(self, after: int, *, by_difference: bool) -> ResumePosition:
        first = self._log.first_txid
        missing = (after + 1, first - 1) if after + 1 < first else None
        after = max(after, self._first - 1)
        self._told = self._looked_at = after
        if after >= self._goal:
            self._lacks = None  # nothing to compare
        self._read_from(after)
        self.state = SenderState.SENDING
        self._find_out()
        return ResumePosition(after, by_difference, missing)

    # Sending.

    @property
    def has_room(self) -> bool:
        """True if the window allows sending more."""
        return self._bytes < self._most_under_way

    def pull(self, now: int, *, flush: bool = False) -> PackedBatch | SkippedRanges | None:
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
        if self.arrears.is_news:
            return self.arrears.frame()
        batch, self._next = self._next, None
        if batch is not None:
            return batch
        if not self.has_room:
            return None
        batch = self._pull_late(now) or self._pull_on(now, flush=flush)
        if batch is not None and self.arrears.is_news:
            self._next = batch
            return self.arrears.frame()
        return batch

    def _pull_on(self, now: int, *, flush: bool) -> PackedBatch | None:
        """Return the next part of the log; see `pull`."""
        if self.blocked and not flush:
            return None
        self.blocked = 0
        while (reader := self._reader) is not None:
            before = reader.position
            passage = reader.read_passage(_MAX_ENTRIES, _MAX_BYTES)
            position = reader.position
            owed: Sequence[DamagedEntry] = ()
            try:
                if passage.unread:
                    owed, position = self._owed(passage.unread, position)
                    passage = passage.up_to(position)
                batch = self._batch(passage, position, now)
            except BaseException:  # raised by a filter: read this passage again
                self._read_from(self._told)
                raise
            if position < reader.position:
                self._read_from(position)
            self._looked_at = position
            if owed or self.arrears.owed:
                self._leave_out(owed, before + 1, position)
            is_news = flush or (self._lacks is not None and position >= self._goal)
            if batch.entries or position - self._told >= (1 if is_news else _MIN_SKIPPED):
                self._take_note(batch)
                return batch
            if position == before:
                self._find_out()
                return None
        return None

    def _read_from(self, after: int) -> None:
        self._reader = self._log.read_from(after, self._routes.takes)

    def _batch(self, passage: RawEntryRange, position: int, now: int) -> PackedBatch:
        """Return the entries of a passage that go to the destination."""
        is_chosen = self._lacks is not None or self._routes.have_filters
        if is_chosen:
            passage = passage.pick(self._chosen(passage))
        ways, names = self._ways, passage.names
        if ways is None or ways.names is not names or ways.all_go is not is_chosen:
            ways = self._ways = ForwardingTable(names, self._way, all_go=is_chosen)
        return pack_passage(self._told, position, passage, ways, now)

    def _chosen(self, passage: RawEntryRange) -> list[int]:
        """Return the positions of the entries that go to the destination, checked one by one."""
        runs = passage.stretch().runs()
        going = {row[TXID] for run in runs for one in self._parts(run) for row in one.rows}
        return _places(passage, going)

    def _parts(self, run: EntryBatch) -> Iterator[EntryBatch]:
        """Return the entries of a run that go to the destination."""
        lacks, way = self._lacks, self._way
        if lacks is not None:
            known = bisect_right(run.rows, self._goal, key=_TXID)
            if known:
                yield filter_batch(lacks.of(run.pick(range(known))), lacks.way)
            if known == len(run.rows):
                return
            run = run.pick(range(known, len(run.rows)))
        yield filter_batch(run, way)

    # Unreadable entries.

    def look_again(self, mended: int = 0) -> None:
        """Retry, because an entry has been repaired, or has to be given up.

        Args:
            mended: its txid, if it can be read again.
        """
        self.blocked = 0
        self.arrears.mended(mended)

    def _owed(self, unread: Sequence[DamagedEntry], end: int) -> tuple[Sequence[DamagedEntry], int]:
        """Return the unreadable entries that are given up, and the txid up to which that is all."""
        owed: list[DamagedEntry] = []
        for one in filter(self._may_go, unread):
            if one.txid not in self.arrears.owed and not self._log.is_lost(one.txid):
                self.blocked = one.txid
                return owed, one.txid - 1
            owed.append(one)
        return owed, end

    def _may_go(self, unread: DamagedEntry) -> bool:
        """Return whether an unreadable entry may go to the destination, as far as that is known."""
        run, way = unread.run, self._way
        if run is None:
            return True
        if self._lacks is not None and unread.txid <= self._goal:
            way, run = self._lacks.way, self._lacks.of(run)
        return len(run.rows) > 0 and way.goes(run.topic, run.origin.path) is not None

    def _leave_out(self, owed: Sequence[DamagedEntry], first: int, last: int) -> None:
        """Record the unreadable entries of a part of the log; the rest of it could be read."""
        arrears = self.arrears
        self.left_out += [one for one in owed if one.txid not in arrears.owed]
        if owed or arrears.owed.meets(first, last):
            arrears.settle(first, last)
            arrears.add((one.txid, one.run) for one in owed)

    def _pull_late(self, now: int) -> PackedBatch | None:
        """Return owed entries that can be read again; see `pull`."""
        arrears = self.arrears
        for _ in range(_MAX_TRIED):
            ready = arrears.ready
            if ready is None or ready[1] > self._told:
                break
            first, last = ready
            reader = self._log.read_from(first - 1, self._routes.takes)
            passage = reader.read_passage(min(_MAX_ENTRIES, last - first + 1), _MAX_BYTES)
            end = min([reader.position, last, *(one.txid - 1 for one in passage.unread)])
            if end < first:
                arrears.tried(first)
                continue
            way = LinkRoute(self._routes, self._way.peer, returns=last <= self._returns_to)
            passage = passage.up_to(end)
            runs = (filter_batch(run, way) for run in passage.stretch().runs())
            going = {row[TXID] for run in runs for row in run.rows}
            passage = passage.pick(_places(passage, going))
            arrears.settle(first, end)
            ways = ForwardingTable(passage.names, way, all_go=True)
            batch = pack_passage(first - 1, end, passage, ways, now)._replace(is_late=True)
            self._count(batch)
            return batch
        return None

    def _take_note(self, batch: PackedBatch) -> None:
        under_way = self._under_way
        under_way.send({lane_of(origin.path) for _, origin in batch.names}, batch.upto)
        if self._lacks is not None:
            # Entries that the destination has may not be on its stable storage yet.
            under_way.send_any(batch.upto)
            if batch.upto >= self._goal:
                self._lacks = None  # from now on, its own entries are not sent back
        self._told = batch.upto
        self._count(batch)

    def _count(self, batch: PackedBatch) -> None:
        """Charge a batch to the window."""
        size = len(batch.data) + 64 * batch.entries
        self.sent += batch.entries
        self._batches.append((self._told, size))
        self._bytes += size

    # Acknowledgements.

    def acknowledge(self, ack: Ack) -> None:
        """Process an acknowledgement of the destination.

        Raises:
            ReplicationProtocolError: it acknowledges entries that it cannot have.
        """
        if self.state is not SenderState.SENDING:
            raise ReplicationProtocolError("acknowledges, and has been sent nothing")
        _check(ack, self._told)
        while self._batches and self._batches[0][0] <= ack.stored:
            self._bytes -= self._batches.popleft()[1]
        self._under_way.acknowledge(ack)
        self._find_out()

    def _find_out(self) -> None:
        """Set `resynchronized` if the destination has the log as it was when the link came up."""
        if (
            self.state is SenderState.SENDING
            and self._lacks is None
            and self._looked_at >= self._goal
            and (not self._batches or self.stored >= self._goal)
        ):
            self.resynchronized = True

    @property
    def stored(self) -> int:
        """The txid up to which the destination has everything on stable storage."""
        return self._under_way.stored

    @property
    def settled(self) -> int:
        """The txid up to which the destination has everything that goes there."""
        settled = self._under_way.settled
        return self._looked_at if settled is None else min(settled, self._looked_at)

    @property
    def reached(self) -> int:
        """The txid up to which the destination has stored all that goes there, as far as is known.

        Instances behind the destination may not have it; `settled` waits for these, too.
        """
        is_all_stored = self.state is SenderState.SENDING and not self._batches
        return max(self.stored, self._looked_at if is_all_stored else self.settled)

    @property
    def bytes_under_way(self) -> int:
        """Bytes sent on this connection that the destination has not acknowledged as stored."""
        return self._bytes

    def has(self, last: int, kinds: Collection[EntryRoutingKey]) -> bool:
        """Return whether the destination has all entries up to a txid that go there.

        Args:
            last: the txid.
            kinds: each of the entries is of one of these.
        """
        return not any(
            (last > self._looked_at or not self._under_way.has(lane_of(kind.path), last))
            and self._way.goes(kind.topic, kind.path) is not None
            for kind in kinds
        )

    def concerns(self, topic: JournalTopic) -> bool:
        """Return whether entries published here to a topic may go to the destination."""
        return self._way.goes(topic, "") is not None

    def filters(self, topic: JournalTopic, path: str) -> tuple[RouteFilter, ...] | None:
        """Return the filters any of which a body has to match to go there.

        They are empty if all bodies go there, and None if none does. An entry that has passed
        through the destination may go there again.

        Args:
            topic: the topic of an entry.
            path: the instances that it has passed through.
        """
        peer = "" if self.peer is None else self.peer.name
        return LinkRoute(self._routes, peer, returns=True).goes(topic, path)

    def leads_to(self, instance: str) -> bool:
        """Return whether the peer, present or last, is the instance of that name."""
        return self.peer is not None and self.peer.name == instance

    @property
    def needed_from(self) -> int:
        """The txid from which on the log is needed for this destination."""
        return min(self.settled, self.stored) + 1


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
        known: the messages that it has of each publisher.
        way: the entries that go there, including those that passed through it.
    """

    def __init__(self, peer: PeerInstance, known: DedupWindow, way: LinkRoute) -> None:
        self.way = way
        self._peer = peer
        self._known = known

    def of(self, run: EntryBatch) -> EntryBatch:
        """Return the entries of a run that it lacks."""
        rows, peer = run.rows, self._peer
        places: Sequence[int] = range(len(rows))
        path = hops(run.origin.path)
        if path and path[0].name == peer.name:
            # The peer has the entries that it numbered itself, if they are in its present log.
            places = [
                place
                for place in places
                if rows[place][SEQUENCE] < peer.began
                or not is_identity_made_by(peer.name, rows[place][CLIENT], rows[place][SOURCE_TXID])
                or not has_recorded(peer.runs, rows[place][CLIENT], rows[place][SEQUENCE])
            ]
        if not places:
            return run.pick(())
        chosen: list[int] = []
        for client, indexes in by_client(compact_column([rows[place][CLIENT] for place in places])):
            sequences = compact_column([rows[places[index]][SEQUENCE] for index in indexes])
            new = self._known.unknown(client, sequences)
            chosen += [places[indexes[position]] for position in new]
        return run if len(chosen) == len(rows) else run.pick(sorted(chosen))


def _places(passage: RawEntryRange, txids: Container[int]) -> list[int]:
    """Return the positions of the entries with these txids."""
    return [place for place in range(len(passage)) if passage.txid(place) in txids]
