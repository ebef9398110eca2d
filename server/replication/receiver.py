"""The destination's side of replication from one source.

    Begin -> Resume [Knowledge ...] ... batches -> entries to record ... acknowledge -> Acks

A receiver takes a source's log in order, as far as it comes here, without a hole: a batch begins
where the one before ended. What is new is handed to the recorder; what is known is dropped, and
reported where it says something else than what is known.

What the source has left out it says (`owe`), and may send later, as a batch that is late.

It acknowledges what is on stable storage here (`stored`), and, of what was recorded because of this
source, what the instances have that acknowledge to this one (`settled`). Entries wait for that in
*units* that came together on one path, and no unit for another: were they acknowledged in the order
of the log, instances in a ring would wait for each other for ever. A message that has come by
another path first waits, too, where that path is longer, or as long and this instance the later one
by name; else for the disk only. So whoever waits for somebody else, that one never waits for them.
The source itself is not waited for: what it sends it has, and whom it sends it to it sees to.

Units are few, so that looking at all of them takes no time. Those that follow on one another at
both instances are taken together when there are many, which changes nothing; only if that is not
enough, others are, too, and then wait for one another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, pairwise, zip_longest
from operator import lt
from typing import Final, NamedTuple, Protocol

from server.journal import EVENTS, MESSAGES, Kind, Origin, Topic
from server.journal.layout import crc32c
from server.replication.acknowledgement import Kept
from server.replication.columns import Batch, Column, Columns, Same, by_client, different
from server.replication.frames import Ack, Begin, Knowledge, Owed, Resume
from server.replication.known import Known, was_made_by
from server.replication.ranges import Ranges
from server.replication.recent import Recent
from server.replication.routes import Hop, hops, lengthen
from server.replication.sender import Peer, ProtocolError

MOST_UNITS: Final = 16_384
"""Units that are told apart while they wait for other instances; beyond that, some are joined."""

_MOST_RANGES: Final = 1000  # of one ack
_MOST_STAGES: Final = 1024  # at which it is known how far both logs went
_MOST_KINDS: Final = 64  # of a unit that another one goes on with
_MOST_HAD: Final = 16_384  # identities in one frame
_MOST_CONFLICTS: Final = 100  # that are told of one batch

Settled = Callable[[int, int, Sequence[Kept], str], bool]
"""Whether entries from one txid to another, each of one of these kinds, are settled here.

The last argument is the name of the instance that they came from.
"""


class Recorded(NamedTuple):
    """What has become of entries that were to be recorded.

    Attributes:
        done: how many of them have been dealt with, from the front; if not all, the log takes
            none at the moment.
        first_txid: of the first that was recorded; 0 if none was.
        last_txid: of the last.
    """

    done: int
    first_txid: int = 0
    last_txid: int = 0


class Recorder(Protocol):
    """Where new entries go: the topics of this instance."""

    @property
    def last_txid(self) -> int:
        """Of the last entry appended to this instance's log."""

    def record(self, run: Columns, source: Peer) -> Recorded:
        """Append entries to the log as they are, apply them, and deliver them, in their order.

        Their identities, numbers and origins stay. What can never be recorded here is logged, and
        counts as dealt with.

        Args:
            run: the entries; their path ends with the source.
            source: the instance that they came from.
        """

    def published_twice(
        self, topic: Topic, marks: Sequence[tuple[int, int]], publishers: tuple[str, str]
    ) -> None:
        """Take note of messages in the log that have been published at two instances.

        That happens when their publisher has moved before the first one had replicated them.

        Args:
            topic: the topic.
            marks: their identities and numbers.
            publishers: the names of the two instances.
        """

    def highest(self) -> Mapping[int, int]:
        """All identities in the log with their highest numbers."""


class Cursor(NamedTuple):
    """How far a source's log has been taken in.

    Attributes:
        stream: what it is a place in; see `Begin`.
        txid: everything up to this is on stable storage here, and settled.
        owed: of that, what the source could not read; it sends that should it be able to.
    """

    stream: str
    txid: int
    owed: tuple[tuple[int, int], ...] = ()


class Conflict(NamedTuple):
    """A message that has the name of another one, and says something else."""

    client: int
    sequence: int
    topic: Topic


class Taken(NamedTuple):
    """What was in a batch.

    Attributes:
        new: entries that have been recorded.
        duplicates: entries that were known.
        conflicts: of these, the first that differ from what is known.
    """

    new: int = 0
    duplicates: int = 0
    conflicts: Sequence[Conflict] = ()


class _Unit(NamedTuple):
    """Entries that were recorded together.

    Attributes:
        first: txid of the first at the source.
        last: txid of the last at the source.
        own_first: txid of the first here.
        own_last: txid of the last here.
        kinds: topics and origins of the entries.
    """

    first: int
    last: int
    own_first: int
    own_last: int
    kinds: tuple[Kept, ...]

    def goes_on_with(self, other: _Unit) -> bool:
        """Whether another one begins where this one ends, and waits for the same instances."""
        return (
            other.first == self.last + 1
            and other.own_first == self.own_last + 1
            and len(self.kinds) < _MOST_KINDS
            and {kind.origin for kind in self.kinds + other.kinds} == {self.kinds[0].origin}
        )

    def joined_with(self, other: _Unit) -> _Unit:
        """This one and one that came later in one."""
        return _Unit(
            self.first,
            max(self.last, other.last),
            min(self.own_first, other.own_first),
            max(self.own_last, other.own_last),
            tuple(dict.fromkeys(self.kinds + other.kinds)),
        )


class Receiver:
    """Takes what one source sends.

    Args:
        instance: name of this instance.
        began: the first txid that its log ever had.
        known: what it has of each publisher.
        recent: what it recorded last.
        recorder: where new entries go.
        cursor: how far it had got in an earlier run; None if it is new to the source.
        started: the last txid of this instance's log when this run began.
        most_units: that wait for other instances; beyond that, some are joined.

    Attributes:
        is_stalled: the log took not all of a batch; nothing more may be taken in before `go_on` has
            been called with success.
    """

    def __init__(
        self,
        instance: str,
        began: int,
        known: Known,
        recent: Recent,
        recorder: Recorder,
        cursor: Cursor | None = None,
        started: int = 0,
        most_units: int = MOST_UNITS,
    ) -> None:
        self._instance = instance
        self._began = began
        self._known = known
        self._recent = recent
        self._recorder = recorder
        self._stream = None if cursor is None else cursor.stream
        self._received = self._stored = self._settled = 0 if cursor is None else cursor.txid
        self._difference_to = 0
        self._owed = Ranges(() if cursor is None else cursor.owed)
        self._source: Peer | None = None
        self._source_name = ""
        self._most_units = most_units
        self._storing: deque[tuple[int, int]] = deque()  # txid there, and here: not stable yet
        # Txids here, and those there up to which all is here by then.
        self._stages: tuple[list[int], list[int]] = [0], [0]
        if cursor is not None:
            self._note_stage(started)
        self._units: list[_Unit] = []
        self._acked: Ack | None = None
        self._batch: Batch | None = None
        self._rest: deque[Columns] = deque()
        self._taken = Taken()

    # The link.

    def begin(self, source: Peer, frame: Begin, settled: int) -> Iterator[Resume | Knowledge]:
        """A source asks where to go on; returns what to tell it.

        Args:
            source: the instance that asks.
            frame: what it says.
            settled: the txid up to which everything here is settled.
        """
        self.disconnected()
        self._source = source
        self._source_name = source.name
        is_known = self._stream == frame.stream
        if is_known and self._difference_to <= self._received <= frame.last:
            yield Resume(self._received, self._ack(), [*self._owed])
            self._move_to(max(self._received, frame.first - 1))
            return
        if not is_known:
            self._units = []
        self._stream = frame.stream
        self._difference_to = frame.last  # until then, it is sent what otherwise stays there
        self._storing.clear()
        self._owed = Ranges()
        self._received = self._stored = self._settled = frame.first - 1
        self._stages = [0], [0]
        yield Resume(None)
        yield from self._knowledge(source, settled)

    def _knowledge(self, source: Peer, settled: int) -> Iterator[Knowledge]:
        """What there is of each publisher.

        What came from this source, and is not settled, counts as missing: it comes again, is known,
        and the source waits for whoever lacks it.
        """
        again: dict[int, Ranges] = {}
        for client, sequences, origin in self._recent.behind(settled):
            path = hops(origin.path)
            if not path or path[-1].name != source.name:
                continue
            ranges = again.setdefault(client, Ranges(self._known.gaps(client)))
            for sequence in sequences:
                ranges.add(sequence, sequence)
        summary = self._known.summary(self._recorder.highest())
        had = (
            one._replace(gaps=tuple(again[one.client])) if one.client in again else one
            for one in summary
        )
        part = list(islice(had, _MOST_HAD))
        while following := list(islice(had, _MOST_HAD)):
            yield Knowledge(part, is_last=False)
            part = following
        yield Knowledge(part, is_last=True)

    def disconnected(self) -> None:
        """The source is not there any more. What it has not finished it will send again."""
        self._source = None
        self._acked = None
        self._batch = None
        self._rest.clear()

    @property
    def received(self) -> int:
        """The txid of the source's log up to which everything has been dealt with here."""
        return self._received

    @property
    def is_stalled(self) -> bool:
        """Whether the log has not taken all of a batch: call `go_on` before the next is taken."""
        return self._batch is not None

    # Batches.

    def take(self, batch: Batch) -> Taken:
        """Take in a part of the source's log.

        Returns:
            What was in it; when the receiver `is_stalled` afterwards, as far as that has come.

        Raises:
            ProtocolError: it is not what has to come next, or makes no sense.
        """
        if self._source is None or self.is_stalled:
            raise ProtocolError("sends entries out of turn")
        if batch.is_late:
            if batch.upto > self._received:
                raise ProtocolError(f"sends entry {batch.upto} late before its time")
        elif batch.after != self._received:
            raise ProtocolError(
                f"sends what follows entry {batch.after}, and has to go on after {self._received}"
            )
        _check(batch)
        self._batch = batch
        self._rest.extend(batch.runs)
        return self.go_on()

    def go_on(self) -> Taken:
        """Record what there is; see `take`."""
        source, batch = self._source, self._batch
        if source is None or batch is None:
            return Taken()
        self._taken = Taken()
        while self._rest:
            rest = self._take_run(self._rest[0], source)
            if rest is not None:
                self._rest[0] = rest
                return self._taken
            self._rest.popleft()
        self._batch = None
        if batch.is_late:
            self._owed.remove(batch.after + 1, batch.upto)
            self._acked = None  # the source's window waits for a word, though it says nothing new
        else:
            self._move_to(batch.upto)
        return self._taken

    def owe(self, frame: Owed) -> None:
        """The source says what it has left out.

        Raises:
            ProtocolError: it has no business to, or that makes no sense.
        """
        if self._source is None or self.is_stalled:
            raise ProtocolError("says what it owes out of turn")
        if any(first > last for first, last in frame.ranges):
            raise ProtocolError("owes ranges that are none")
        self._owed = Ranges(frame.ranges)

    def _move_to(self, txid: int) -> None:
        """Everything of the source's log up to an entry has been dealt with."""
        self._received = txid
        # What was known already may have been recorded a moment ago.
        self._storing.append((txid, self._recorder.last_txid))
        self._note_stage(self._recorder.last_txid)

    def _note_stage(self, own: int) -> None:
        """Note how far both logs are; of very many such notes, every second one is enough."""
        here, there = self._stages
        if here[-1] == own:
            there[-1] = self._received
            return
        here.append(own)
        there.append(self._received)
        if len(here) > _MOST_STAGES:
            self._stages = [0, *here[2::2]], [0, *there[2::2]]

    def place_of(self, txid: int) -> tuple[str, int] | None:
        """A place in the source's log before which there is nothing that this log lacks.

        Args:
            txid: an entry of this log. What counts is this log up to there.

        Returns:
            The identity of the source's log, and the txid of its last entry before that place, as
            far as that is known; None if it is not known which log that is.
        """
        if self._stream is None:
            return None
        here, there = self._stages
        return log_of(self._stream), there[bisect_right(here, txid) - 1]

    def _take_run(self, run: Columns, source: Peer) -> Columns | None:
        """Record what is new of a run; returns what the log has not taken of it."""
        count = len(run.data)
        chosen: Sequence[int] = self._new(run)
        if len(chosen) < count:
            self._drop(run, sorted(set(range(count)).difference(chosen)), source)
        if not chosen:
            return None
        new = run.pick(chosen)
        path = lengthen(run.origin.path, Hop(source.name, source.group))
        new = new._replace(origin=Origin(run.origin.auth_id, path))
        before = {client: self._known.highest(client) for client, _ in by_client(new.clients)}
        recorded = self._recorder.record(new, source)
        if recorded.done:
            done = new.pick(range(recorded.done))
            self._note(done, before, recorded)
            self._taken = self._taken._replace(new=self._taken.new + recorded.done)
            if recorded.first_txid:
                own = recorded.first_txid, recorded.last_txid
                kinds = (Kept(done.topic, done.origin),)
                self._wait_for(_Unit(done.txids[0], done.txids[-1], *own, kinds))
        if recorded.done < len(new.data):
            return run.pick(range(chosen[recorded.done], count))
        return None

    def _new(self, run: Columns) -> Sequence[int]:
        """The positions of the entries that are not known."""
        clients = run.clients
        path = hops(run.origin.path)
        if path and path[0].name == self._instance:
            return self._new_of_ours(run)
        if isinstance(clients, Same):
            return self._known.unknown(clients.value, run.sequences)
        chosen: list[int] = []
        for client, places in by_client(clients):
            sequences = [run.sequences[place] for place in places]
            chosen += [places[position] for position in self._known.unknown(client, sequences)]
        return range(len(run.data)) if len(chosen) == len(run.data) else sorted(chosen)

    def _new_of_ours(self, run: Columns) -> Sequence[int]:
        """The same for entries that were published here, in a log that may be lost."""
        lost = [
            place
            for place, (client, sequence, source_txid) in enumerate(
                zip(run.clients, run.sequences, run.source_txids, strict=True)
            )
            if sequence < self._began or not was_made_by(self._instance, client, source_txid)
        ]
        chosen: list[int] = []
        for client, indexes in by_client([run.clients[place] for place in lost]):
            places = [lost[index] for index in indexes]
            sequences = [run.sequences[place] for place in places]
            chosen += [places[position] for position in self._known.unknown(client, sequences)]
        return sorted(chosen)

    def _drop(self, run: Columns, places: Sequence[int], source: Peer) -> None:
        """Leave out what is known, see that it is the same, and wait for where it goes."""
        conflicts = list(self._taken.conflicts)
        path = hops(run.origin.path)
        theirs = len(path), source.name
        publisher = path[0].name if path else source.name
        twice: dict[str, list[tuple[int, int]]] = {}
        for place in places:
            client, sequence = run.clients[place], run.sequences[place]
            found = self._recent.find(client, sequence)
            if found is None:
                continue
            differs = found.checksum != run.checksums[place] and run.kinds[place] == Kind.PUBLISH
            if differs and len(conflicts) < _MOST_CONFLICTS:
                conflicts.append(Conflict(client, sequence, run.topic))
            ours = hops(found.origin.path)
            first = ours[0].name if ours else self._instance
            if publisher not in (first, self._instance) and run.kinds[place] in MESSAGES:
                twice.setdefault(first, []).append((client, sequence))
            if (len(ours), self._instance) > theirs:
                txid, kinds = run.txids[place], (Kept(found.topic, found.origin),)
                self._wait_for(_Unit(txid, txid, found.first_txid, found.last_txid, kinds))
        for first, marks in twice.items():
            self._recorder.published_twice(run.topic, marks, (first, publisher))
        duplicates = self._taken.duplicates + len(places)
        self._taken = Taken(self._taken.new, duplicates, conflicts)

    def _note(self, run: Columns, before: dict[int, int], recorded: Recorded) -> None:
        """Know entries from now on, which have been recorded."""
        txids = recorded.first_txid, recorded.last_txid
        if len(run.data) == 1:
            client, sequence = run.clients[0], run.sequences[0]
            if sequence != before[client] + 1:
                self._known.noted(client, before[client], run.sequences)
            if txids[0]:
                checksum = run.checksums[0]
                self._recent.note_one(client, sequence, checksum, txids[0], run.topic, run.origin)
            return
        for client, places in by_client(run.clients):
            if len(places) == len(run.data):
                sequences, checksums = run.sequences, run.checksums
            else:
                sequences = [run.sequences[place] for place in places]
                checksums = [run.checksums[place] for place in places]
            self._known.noted(client, before[client], sequences)
            if txids[0]:
                self._recent.note(client, sequences, checksums, txids, run.topic, run.origin)

    def _wait_for(self, unit: _Unit) -> None:
        self._units.append(unit)
        if len(self._units) > self._most_units:
            self._units = _joined(self._units, self._most_units // 2)

    # Acknowledgements.

    def acknowledge(self, durable: int, is_settled: Settled) -> Ack | None:
        """What to tell the source; None if that is nothing new.

        Args:
            durable: the last txid on stable storage here.
            is_settled: see `Settled`.
        """
        storing = self._storing
        while storing and storing[0][1] <= durable:
            self._stored = storing.popleft()[0]
        self._units = [
            unit
            for unit in self._units
            if unit.own_last > durable
            or not is_settled(unit.own_first, unit.own_last, unit.kinds, self._source_name)
        ]
        ack = self._ack()
        self._settled = ack.settled
        if ack == self._acked or self._source is None:
            return None
        self._acked = ack
        return ack

    def _ack(self) -> Ack:
        stored = self._stored
        lacking = Ranges((unit.first, unit.last) for unit in self._units)
        settled = stored if lacking.first is None else min(stored, lacking.first - 1)
        holes = pairwise([*lacking, (stored + 1, stored + 1)])
        ranges = [(one[1] + 1, other[0] - 1) for one, other in holes if other[0] <= stored + 1]
        return Ack(stored, settled, [one for one in ranges if one[0] <= one[1]][:_MOST_RANGES])

    @property
    def cursor(self) -> Cursor | None:
        """What to store as the place in the source's log.

        None if there is none yet: with a cursor, a source sends what follows, and not what this
        instance had once and has lost.
        """
        if self._stream is None or self._settled < self._difference_to:
            return None
        return Cursor(self._stream, self._settled, tuple(self._owed))


def log_of(stream: str) -> str:
    """The identity of the log that a stream belongs to; see `Begin`."""
    return stream.rpartition("/")[0]


def _joined(units: Sequence[_Unit], most: int) -> list[_Unit]:
    """Units taken together, as there are too many; those first of which nobody can tell."""
    joined: list[_Unit] = []
    for unit in units:
        if joined and joined[-1].goes_on_with(unit):
            joined[-1] = joined[-1].joined_with(unit)
        else:
            joined.append(unit)
    while len(joined) > most:
        pairs = zip_longest(joined[::2], joined[1::2])
        joined = [one if other is None else one.joined_with(other) for one, other in pairs]
    return joined


def _check(batch: Batch) -> None:
    """See that a batch makes sense, and is what was sent.

    Raises:
        ProtocolError: it does not.
    """
    last = batch.after
    for run in batch.runs:
        txids = run.txids
        if not txids[0] > last or not (isinstance(txids, range) or _ascend(txids)):
            raise ProtocolError("sends entries that are in no order")
        last = txids[-1]
        if not EVENTS.issuperset(
            set(run.kinds) if not isinstance(run.kinds, Same) else (run.kinds.value,)
        ):
            raise ProtocolError("sends entries of a kind that is not replicated")
        if min(different(run.sequences)) < 1:
            raise ProtocolError("sends entries without a number")
        if list(map(crc32c, run.data)) != list(run.checksums):
            raise ProtocolError(f"sends entries from {txids[0]} to {last} that are damaged")
    if last > batch.upto:
        raise ProtocolError("sends entries behind the end of the batch")


def _ascend(numbers: Column) -> bool:
    return all(map(lt, numbers, islice(numbers, 1, None)))
