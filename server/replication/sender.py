"""The source's side of replication to one destination.

    connected -> Begin ... Resume [Knowledge ...] -> batches, within a window ... Acks

A sender reads the log behind what its destination has. It asks where that is, and does not guess: a
destination that has a cursor in this log says so; one that has none, because it or this log is new,
says what it has of each publisher, and gets what is not among that. Entries that have been through
the destination are sent in that case, too: it may have lost them.

For each entry of the log there is an answer to the question whether the destination has it
(`has`): if it does not go there, if it has been acknowledged. What has been sent and is not
acknowledged is under way, see `lanes`; what has not been looked at, nobody knows.

In front of an entry that cannot be read, a sender stops (`blocked`), until it can, or somebody
gives it up: then it is owed, see `arrears`.

A destination acknowledges twice. *Stored* is what it has on stable storage; this is what the window
follows, for nothing but its disk holds it up. *Settled* is what the instances have, too, that
acknowledge to it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from enum import Enum
from itertools import pairwise
from operator import itemgetter
from typing import Final, NamedTuple, Protocol

from server.journal import Passage, Run, Topic, Unread
from server.journal.layout import CLIENT, SEQUENCE, SOURCE_TXID, TXID
from server.journal.runs import has_recorded
from server.replication.acknowledgement import Kept
from server.replication.arrears import Arrears
from server.replication.columns import Packed, by_client, compact
from server.replication.frames import Ack, Begin, Knowledge, Owed, Resume
from server.replication.known import Had, Known, known_of, was_made_by
from server.replication.lanes import UnderWay, lane_of
from server.replication.passing_on import Ways, packed
from server.replication.routes import Filter, Routes, Way, filtered, hops

MOST_UNDER_WAY: Final = 16 << 20
"""Bytes that may be sent before the destination has stored any of them."""

_TXID: Final = itemgetter(TXID)
_MOST_ENTRIES: Final = 256  # that are read and sent, or taken, in about a millisecond
_MOST_BYTES: Final = 256 << 10
_MOST_HAD: Final = 4_000_000  # identities of which a destination may speak
_MOST_TRIED: Final = 64  # damaged entries that are looked at again together
_LEAST_SKIPPED: Final = 512  # entries that go elsewhere after which the destination is told so


class ProtocolError(Exception):
    """The other end does what it must not; the link is to be closed. The text says what."""


class Reader(Protocol):
    """Reads a log forward; the journal's `Cursor` does."""

    @property
    def position(self) -> int:
        """The txid up to which the log has been read."""

    def read_passage(self, most_entries: int, most_bytes: int) -> Passage:
        """The next entries; none does not mean that there are no more."""


class SourceLog(Protocol):
    """The log of this instance, as a sender sees it."""

    @property
    def first_txid(self) -> int:
        """Of the oldest entry that there is."""

    @property
    def durable_txid(self) -> int:
        """Of the last entry on stable storage."""

    def read_from(self, after: int, wanted: Callable[[Topic], bool]) -> Reader:
        """Read what changes state (`EVENTS`) and is on stable storage.

        Args:
            after: the txid behind which to begin.
            wanted: which topics.
        """

    def is_lost(self, txid: int) -> bool:
        """Whether an entry that cannot be read is not worth waiting for."""


class Peer(NamedTuple):
    """The instance at the other end, as it has said.

    Attributes:
        name: its Name.
        group: its Group.
        log: identity of its transaction log.
        began: the first txid that this log ever had.
        runs: the first txid and the number of each run that has recorded entries of it; empty if it
            does not tell.
    """

    name: str
    group: str
    log: str
    began: int
    runs: Sequence[tuple[int, int]] = ()


class State(Enum):
    """What a sender waits for."""

    APART = "apart"  # a connection
    ASKING = "asking"  # a word from where on
    LEARNING = "learning"  # the rest of what the destination has
    SENDING = "sending"


class Resumed(NamedTuple):
    """What a destination has said.

    Attributes:
        after: the txid behind which it is sent entries.
        by_difference: it has no cursor, and gets what it does not have.
        missing: the first and the last txid of what it does not have and the log has not, either,
            because journals have been removed; None if there is no such thing.
    """

    after: int
    by_difference: bool
    missing: tuple[int, int] | None


class Sender:
    """Sends to one destination.

    Args:
        log: this instance's log.
        stream: stands for that log, and what is replicated of it to this destination.
        routes: what is.
        acknowledged: the txid up to which the destination had everything, as far as is remembered
            from an earlier run; 0 if nothing is.
        most_under_way: bytes that may be sent before any of them is stored.

    Attributes:
        state: see `State`.
        peer: the instance that is there, or was last; None if there was none in this run.
        resynchronized: whether what the log had when the destination connected has been stored
            there; it becomes so once for each connection.
        sent: entries sent, ever.
        arrears: what the destination is owed.
        blocked: the txid of what cannot be read, and is in the way; 0 if nothing is.
        left_out: what has been given up, for whoever says so, and empties it.
    """

    def __init__(
        self,
        log: SourceLog,
        stream: str,
        routes: Routes,
        acknowledged: int = 0,
        most_under_way: int = MOST_UNDER_WAY,
    ) -> None:
        self.state = State.APART
        self.peer: Peer | None = None
        self.resynchronized = False
        self.sent = 0
        self.arrears = Arrears()
        self.blocked = 0
        self.left_out: list[Unread] = []
        self._log = log
        self._stream = stream
        self._routes = routes
        self._most_under_way = most_under_way
        self._way = Way(routes, "")
        self._ways: Ways | None = None  # of the names of the file that is being read
        self._reader: Reader | None = None
        self._looked_at = acknowledged  # up to here it is known what goes there
        self._under_way = UnderWay(acknowledged)
        self._batches: deque[tuple[int, int]] = deque()  # last txid, bytes: sent and not stored
        self._bytes = 0
        self._told = 0  # the last txid of the batch sent last
        self._next: Packed | None = None  # made, and sent when it has been said what it lacks
        self._returns_to = 0  # up to here, the destination may have lost what has been through it
        self._goal = 0  # the end of the log when the destination connected
        self._first = 0  # and its beginning, as both have it from then on
        self._had: list[Had] = []
        self._lacks: _Difference | None = None  # up to the goal, while only that is sent

    # The link.

    def connected(self, peer: Peer) -> Begin:
        """Somebody is there; returns what to send."""
        self.peer = peer
        self.state = State.ASKING
        self.resynchronized = False
        self._drop_reading()
        self._way = Way(self._routes, peer.name)
        self._goal = self._log.durable_txid
        self._first = self._log.first_txid
        return Begin(self._stream, self._first, self._goal)

    def disconnected(self) -> None:
        """Nobody is there any more. What is under way stays so."""
        self.state = State.APART
        self._drop_reading()

    def _drop_reading(self) -> None:
        self._reader = self._lacks = self._ways = self._next = None
        self.blocked = 0
        self._had = []
        self._batches.clear()
        self._bytes = 0

    def resume(self, frame: Resume) -> Resumed | None:
        """The destination has said where it is; None if it has more to say about that.

        Raises:
            ProtocolError: it was not asked, or there is nothing like that in the log.
        """
        if self.state is not State.ASKING:
            raise ProtocolError("says where it is, and was not asked")
        if frame.after is None:
            self.state = State.LEARNING
            return None
        if frame.after > self._goal:
            raise ProtocolError(
                f"claims to have entry {frame.after} of a log that ends with {self._goal}"
            )
        if frame.ack is not None:
            _check(frame.ack, frame.after)
            self._under_way.resume(frame.after, frame.ack)
        if any(first > last for first, last in frame.owed):
            raise ProtocolError("is owed ranges that are none")
        self.arrears.restate(frame.owed)
        return self._begin(frame.after, by_difference=False)

    def learn(self, frame: Knowledge) -> Resumed | None:
        """The destination tells what it has; None if it has more to say about that.

        Raises:
            ProtocolError: it was not asked, or has too much.
        """
        if self.state is not State.LEARNING or self.peer is None:
            raise ProtocolError("tells what it has, and was not asked")
        self._had += frame.had
        if len(self._had) > _MOST_HAD:
            raise ProtocolError(f"tells of more than {_MOST_HAD} publishers")
        if not frame.is_last:
            return None
        way = Way(self._routes, self.peer.name, returns=True)
        self._lacks = _Difference(self.peer, known_of(self._had), way)
        self._returns_to = self._goal
        self._had = []
        self.arrears.clear()
        self._under_way = UnderWay(self._first - 1)
        return self._begin(self._first - 1, by_difference=True)

    def _begin(self, after: int, *, by_difference: bool) -> Resumed:
        first = self._log.first_txid
        missing = (after + 1, first - 1) if after + 1 < first else None
        after = max(after, self._first - 1)
        self._told = self._looked_at = after
        if after >= self._goal:
            self._lacks = None  # there is nothing to go through
        self._read_from(after)
        self.state = State.SENDING
        self._find_out()
        return Resumed(after, by_difference, missing)

    # Sending.

    @property
    def has_room(self) -> bool:
        """Whether the window allows to send more."""
        return self._bytes < self._most_under_way

    def pull(self, now: int, *, flush: bool = False) -> Packed | Owed | None:
        """What to send next; None if there is nothing, or no room.

        It is asked for whenever the link has room for it, and there is something new.

        Args:
            now: microseconds since the Unix epoch.
            flush: tell the destination how far the log has been read although nothing of it goes
                there; to be asked for about once a second.

        Raises:
            JournalUnreadable: the log cannot be read at the moment; nothing has changed.
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

    def _pull_on(self, now: int, *, flush: bool) -> Packed | None:
        """The next part of the log; see `pull`."""
        if self.blocked and not flush:
            return None
        self.blocked = 0
        while (reader := self._reader) is not None:
            before = reader.position
            passage = reader.read_passage(_MOST_ENTRIES, _MOST_BYTES)
            position = reader.position
            owed: Sequence[Unread] = ()
            try:
                if passage.unread:
                    owed, position = self._owed(passage.unread, position)
                    passage = passage.up_to(position)
                batch = self._batch(passage, position, now)
            except BaseException:  # of a filter: what has been read is read again
                self._read_from(self._told)
                raise
            if position < reader.position:
                self._read_from(position)
            self._looked_at = position
            if owed or self.arrears.owed:
                self._leave_out(owed, before + 1, position)
            is_news = flush or (self._lacks is not None and position >= self._goal)
            if batch.entries or position - self._told >= (1 if is_news else _LEAST_SKIPPED):
                self._take_note(batch)
                return batch
            if position == before:
                self._find_out()
                return None
        return None

    def _read_from(self, after: int) -> None:
        self._reader = self._log.read_from(after, self._routes.takes)

    def _batch(self, passage: Passage, position: int, now: int) -> Packed:
        """What of a passage goes to the destination."""
        is_chosen = self._lacks is not None or self._routes.have_filters
        if is_chosen:
            passage = passage.pick(self._chosen(passage))
        ways, names = self._ways, passage.names
        if ways is None or ways.names is not names or ways.all_go is not is_chosen:
            ways = self._ways = Ways(names, self._way, all_go=is_chosen)
        return packed(self._told, position, passage, ways, now)

    def _chosen(self, passage: Passage) -> list[int]:
        """The positions of the entries that go to the destination, if each has to be asked for."""
        runs = passage.stretch().runs()
        going = {row[TXID] for run in runs for one in self._parts(run) for row in one.rows}
        return _places(passage, going)

    def _parts(self, run: Run) -> Iterator[Run]:
        """What of a run goes to the destination."""
        lacks, way = self._lacks, self._way
        if lacks is not None:
            known = bisect_right(run.rows, self._goal, key=_TXID)
            if known:
                yield filtered(lacks.of(run.pick(range(known))), lacks.way)
            if known == len(run.rows):
                return
            run = run.pick(range(known, len(run.rows)))
        yield filtered(run, way)

    # What cannot be read.

    def look_again(self, mended: int = 0) -> None:
        """An entry has been mended, or has to be given up.

        Args:
            mended: its txid, if it can be read again.
        """
        self.blocked = 0
        self.arrears.mended(mended)

    def _owed(self, unread: Sequence[Unread], end: int) -> tuple[Sequence[Unread], int]:
        """What cannot be read and has been given up, and the txid up to which that is all."""
        owed: list[Unread] = []
        for one in filter(self._may_go, unread):
            if one.txid not in self.arrears.owed and not self._log.is_lost(one.txid):
                self.blocked = one.txid
                return owed, one.txid - 1
            owed.append(one)
        return owed, end

    def _may_go(self, unread: Unread) -> bool:
        """Whether what cannot be read may go to the destination, as far as that is known."""
        run, way = unread.run, self._way
        if run is None:
            return True
        if self._lacks is not None and unread.txid <= self._goal:
            way, run = self._lacks.way, self._lacks.of(run)
        return len(run.rows) > 0 and way.goes(run.topic, run.origin.path) is not None

    def _leave_out(self, owed: Sequence[Unread], first: int, last: int) -> None:
        """Take note of what of a part of the log could not be read; the rest of it could."""
        arrears = self.arrears
        self.left_out += [one for one in owed if one.txid not in arrears.owed]
        if owed or arrears.owed.meets(first, last):
            arrears.settle(first, last)
            arrears.add((one.txid, one.run) for one in owed)

    def _pull_late(self, now: int) -> Packed | None:
        """Something that is owed, and can be read again; see `pull`."""
        arrears = self.arrears
        for _ in range(_MOST_TRIED):
            ready = arrears.ready
            if ready is None or ready[1] > self._told:
                break
            first, last = ready
            reader = self._log.read_from(first - 1, self._routes.takes)
            passage = reader.read_passage(min(_MOST_ENTRIES, last - first + 1), _MOST_BYTES)
            end = min([reader.position, last, *(one.txid - 1 for one in passage.unread)])
            if end < first:
                arrears.tried(first)
                continue
            way = Way(self._routes, self._way.peer, returns=last <= self._returns_to)
            passage = passage.up_to(end)
            runs = (filtered(run, way) for run in passage.stretch().runs())
            going = {row[TXID] for run in runs for row in run.rows}
            passage = passage.pick(_places(passage, going))
            arrears.settle(first, end)
            ways = Ways(passage.names, way, all_go=True)
            batch = packed(first - 1, end, passage, ways, now)._replace(is_late=True)
            self._count(batch)
            return batch
        return None

    def _take_note(self, batch: Packed) -> None:
        under_way = self._under_way
        under_way.send({lane_of(origin.path) for _, origin in batch.names}, batch.upto)
        if self._lacks is not None:
            # What the destination has it may not have on stable storage yet.
            under_way.send_any(batch.upto)
            if batch.upto >= self._goal:
                self._lacks = None  # from now on, what comes from there does not go back
        self._told = batch.upto
        self._count(batch)

    def _count(self, batch: Packed) -> None:
        """Take account of a batch in the window."""
        size = len(batch.data) + 64 * batch.entries
        self.sent += batch.entries
        self._batches.append((self._told, size))
        self._bytes += size

    # What the destination has.

    def acknowledge(self, ack: Ack) -> None:
        """Take note of what the destination has.

        Raises:
            ProtocolError: it cannot have that.
        """
        if self.state is not State.SENDING:
            raise ProtocolError("acknowledges, and has been sent nothing")
        _check(ack, self._told)
        while self._batches and self._batches[0][0] <= ack.stored:
            self._bytes -= self._batches.popleft()[1]
        self._under_way.acknowledge(ack)
        self._find_out()

    def _find_out(self) -> None:
        """Find out whether the destination has got as far as the log had when it connected."""
        if (
            self.state is State.SENDING
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
        """The txid up to which the destination has stored what goes there, as far as is known.

        Instances behind it, which `settled` waits for too, may not have it.
        """
        is_all_stored = self.state is State.SENDING and not self._batches
        return max(self.stored, self._looked_at if is_all_stored else self.settled)

    @property
    def bytes_under_way(self) -> int:
        """Bytes that have been sent in this connection, and of which it has stored nothing yet."""
        return self._bytes

    def has(self, last: int, kinds: Collection[Kept]) -> bool:
        """Whether the destination has all entries up to a txid that go there.

        Args:
            last: the txid.
            kinds: each of the entries is of one of these.
        """
        return not any(
            (last > self._looked_at or not self._under_way.has(lane_of(kind.path), last))
            and self._way.goes(kind.topic, kind.path) is not None
            for kind in kinds
        )

    def concerns(self, topic: Topic) -> bool:
        """Whether what is published here to a topic may go to the destination."""
        return self._way.goes(topic, "") is not None

    def filters(self, topic: Topic, path: str) -> tuple[Filter, ...] | None:
        """Return the filters any of which a body has to match to go there.

        They are empty if all bodies go there, and None if none does. An entry that has been through
        the destination may go there again.

        Args:
            topic: the topic of an entry.
            path: the instances that it has been through.
        """
        peer = "" if self.peer is None else self.peer.name
        return Way(self._routes, peer, returns=True).goes(topic, path)

    def leads_to(self, instance: str) -> bool:
        """Whether it is an instance of that name that is there, or was last."""
        return self.peer is not None and self.peer.name == instance

    @property
    def needed_from(self) -> int:
        """The txid from which on the log is needed for this destination."""
        return min(self.settled, self.stored) + 1


def _check(ack: Ack, most: int) -> None:
    """See that an acknowledgement makes sense.

    Raises:
        ProtocolError: it does not.
    """
    if ack.stored > most:
        raise ProtocolError(f"acknowledges entry {ack.stored}, and was sent none behind {most}")
    if any(one[0] >= other[0] for one, other in pairwise(ack.lanes)):
        raise ProtocolError("acknowledges lanes that are in no order")
    if any(txid >= ack.stored for _, txid in ack.lanes):
        raise ProtocolError("acknowledges what it has not stored")


class _Difference:
    """What a destination lacks, as it has said.

    Args:
        peer: the instance that is there.
        known: what it has of each publisher.
        way: what goes there, be it that it comes back.
    """

    def __init__(self, peer: Peer, known: Known, way: Way) -> None:
        self.way = way
        self._peer = peer
        self._known = known

    def of(self, run: Run) -> Run:
        """The entries of a run that it lacks."""
        rows, peer = run.rows, self._peer
        places: Sequence[int] = range(len(rows))
        path = hops(run.origin.path)
        if path and path[0].name == peer.name:
            # What it numbered itself it has, if that was in the log that it still has.
            places = [
                place
                for place in places
                if rows[place][SEQUENCE] < peer.began
                or not was_made_by(peer.name, rows[place][CLIENT], rows[place][SOURCE_TXID])
                or not has_recorded(peer.runs, rows[place][CLIENT], rows[place][SEQUENCE])
            ]
        if not places:
            return run.pick(())
        chosen: list[int] = []
        for client, indexes in by_client(compact([rows[place][CLIENT] for place in places])):
            sequences = compact([rows[places[index]][SEQUENCE] for index in indexes])
            new = self._known.unknown(client, sequences)
            chosen += [places[indexes[position]] for position in new]
        return run if len(chosen) == len(rows) else run.pick(sorted(chosen))


def _places(passage: Passage, txids: Container[int]) -> list[int]:
    """The positions of some entries."""
    return [place for place in range(len(passage)) if passage.txid(place) in txids]
