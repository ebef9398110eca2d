"""Damaged entries of the log are fetched from other instances.

    damage is found when the log is read -> which bodies are damaged -> ask one instance after the
    other for what has the same name -> if it is what was lost, put it back in its place

What is put back has the length and the checksum that the entry's own record has, so nobody has to
be believed, and the log is what it was before. Of what is damaged in the records of entries, see
`record_mending`. Journals that have been compressed are not mended.

Who sends the log to other instances waits in front of what is damaged as long as that may be mended
soon (`is_lost`): while anybody who is there has not been asked. Nobody may be there yet when damage
is found first, so that is not said before some seconds are over.

A message that is missing may also come again: its publisher sends it once more if the instance has
nothing behind it, and another instance if it finds out anew what this one has. What has come again
is not put back, and what has been put back does not come again.

Source: ours; AMPS has nothing of the kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from server.base.malformed import MALFORMED
from server.journal import EVENTS, Damaged, JournalUnreadable, Span
from server.journal.errors import reason
from server.links.record_mending import RecordMending

if TYPE_CHECKING:
    from server.base.clock import Clock
    from server.base.log import Log
    from server.journal import Gap, Journal
    from server.links.surroundings import Neighbours, TransactionLog
    from server.replication import Known

SUBJECT: Final = "mend"
"""What words between instances are about that come from here."""

MOST_DAMAGED: Final = 1_000
"""Damaged entries that are asked for at the same time; others are when these have been mended."""

PIECE: Final = 48_000
"""Bytes of a body in one word."""

_MOST_HOPELESS: Final = 100_000
_TICK_SECONDS: Final = 1.0
_PATIENCE: Final = 10.0
"""Seconds to wait for an answer, and for links to be made when damage is found first."""


class Want(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """Send a piece of an entry.

    Attributes:
        client: the identity of its publisher.
        sequence: its number.
        start: from where on, in bytes of body and extras.
    """

    client: int
    sequence: int
    start: int


class Piece(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2):
    """A piece of an entry.

    Attributes:
        client: see `Want`.
        sequence: see `Want`.
        start: see `Want`.
        data: the piece; empty if there is none.
    """

    client: int
    sequence: int
    start: int
    data: bytes


_Word: TypeAlias = Want | Piece
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[_Word]] = msgspec.msgpack.Decoder(_Word)


@dataclass(slots=True)
class _Asked:
    """What an instance has been asked for."""

    damaged: Damaged
    peer: str
    since: float
    data: bytearray = field(default_factory=bytearray)


class MendingByPeers:
    """Asks for what is damaged here, and answers who asks.

    Args:
        instance: name of this instance.
        log: the transaction log.
        neighbours: the links.
        known: what this instance has of each publisher.
        clock: the time, and timers.
        written: where it is said what has been mended.
        changed: told when an entry is mended, by its txid, or when some are lost: 0.
    """

    def __init__(
        self,
        instance: str,
        log: TransactionLog,
        neighbours: Neighbours,
        known: Known,
        clock: Clock,
        written: Log,
        changed: Callable[[int], None],
    ) -> None:
        self._changed: Final = changed
        self._found_first: float | None = None  # when damage was, in seconds
        self._looking: set[int] = set()
        self._putting_back: set[int] = set()
        self._hopeless: set[int] = set()  # damaged entries that cannot be mended
        self._log: Final = log
        self._known: Final = known
        self._neighbours: Final = neighbours
        self._clock: Final = clock
        self._written: Final = written
        self._damaged: dict[int, Damaged] = {}
        self._tried: dict[int, set[str]] = {}  # by txid, who has been asked in vain
        self._asked: _Asked | None = None
        self._answering: set[str] = set()
        self._cancel: Callable[[], None] | None = None
        self._records: Final = RecordMending(
            instance,
            log,
            neighbours,
            known,
            clock,
            written,
            self._record_is_mended,
            partial(changed, 0),
        )
        neighbours.watch(self._links_changed)
        neighbours.listen(SUBJECT, self._hear)
        log.use_mender(self)

    def close(self) -> None:
        """Mend no more."""
        self._damaged.clear()
        self._records.close()
        if self._cancel is not None:
            self._cancel()

    # What is damaged.

    def is_lost(self, txid: int) -> bool:
        """Whether a damaged entry will hardly be mended soon."""
        if txid in self._hopeless:
            return True
        is_lost = self._records.is_lost(txid)
        if is_lost is not None:
            return is_lost
        damaged = self._damaged.get(txid)
        if damaged is None:
            self.look(txid)
            return False
        if self._comes_again(damaged):
            return True
        is_asked = self._asked is not None and self._asked.damaged is damaged
        if is_asked or txid in self._putting_back:
            return False
        is_early = self._clock.now() - (self._found_first or 0.0) < _PATIENCE
        return not is_early and self._tried.get(txid, set()).issuperset(self._neighbours.peers)

    def look(self, txid: int) -> None:
        """Find out what is damaged, from an entry on."""
        if txid in self._looking:
            return
        self._looking.add(txid)
        if self._found_first is None:
            self._found_first = self._clock.now()

        def look() -> tuple[list[Damaged], list[Gap]]:
            journal = self._log.journal
            try:
                return journal.mending.damaged(txid), journal.restoring.gaps(txid)
            except OSError:
                return [], []  # nothing can be read there at the moment, let alone mended

        self._log.do_aside(look, lambda found: self._note(txid, *found))

    def _record_is_mended(self, txid: int) -> None:
        """A record has been made again; the body is there as well, unless it is damaged, too."""
        self._changed(txid)
        self.look(txid)

    def _note(self, txid: int, found: list[Damaged], gaps: list[Gap]) -> None:
        self._looking.discard(txid)
        self._records.note(gaps)
        for one in found:
            if len(self._damaged) < MOST_DAMAGED:
                self._damaged.setdefault(one.txid, one)
        if txid not in self._damaged and self._records.is_lost(txid) is None:
            if len(self._hopeless) >= _MOST_HOPELESS:
                self._hopeless.clear()
            self._hopeless.add(txid)
            if self._log.journal.mending.is_compressed(txid):
                problem = "their journal has been compressed"
                self._written.emit("1E-0023", entries=f"from {txid} on", problem=problem)
        self._go_on()
        self._changed(0)

    def _links_changed(self) -> None:
        peers = self._neighbours.peers
        for tried in self._tried.values():
            tried.intersection_update(peers)  # who comes back may have it
        if self._asked is not None and self._asked.peer not in peers:
            self._asked = None
        self._records.links_changed()
        self._go_on()

    # Asking.

    def _go_on(self) -> None:
        """Ask for the next damaged entry, if there is somebody to be asked."""
        if self._asked is not None or not self._damaged:
            return
        peers = list(self._neighbours.peers)
        for txid, damaged in self._damaged.items():
            if self._comes_again(damaged):
                continue
            tried = self._tried.setdefault(txid, set())
            for peer in peers:
                if peer not in tried:
                    tried.add(peer)
                    self._asked = _Asked(damaged, peer, self._clock.now())
                    self._ask(self._asked)
                    return
        self._changed(0)

    def _comes_again(self, damaged: Damaged) -> bool:
        """Whether its publisher has not come further, as far as is known, and sends it again."""
        return 0 < self._known.highest(damaged.client) < damaged.sequence

    def _ask(self, asked: _Asked) -> None:
        asked.since = self._clock.now()
        want = Want(asked.damaged.client, asked.damaged.sequence, len(asked.data))
        self._neighbours.say(asked.peer, SUBJECT, _ENCODER.encode(want))
        if self._cancel is None:
            self._cancel = self._clock.call_later(_TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        """See that nobody is waited for in vain."""
        self._cancel = None
        asked = self._asked
        if asked is None:
            return
        if self._clock.now() - asked.since > _PATIENCE:
            self._asked = None
            self._go_on()
        if self._asked is not None:
            self._cancel = self._clock.call_later(_TICK_SECONDS, self._tick)

    def _hear(self, peer: str, body: bytes) -> None:
        try:
            word = _DECODER.decode(body)
        except MALFORMED:
            return  # whoever waits for an answer gives up
        if isinstance(word, Want):
            self._answer(peer, word)
        else:
            self._take(peer, word)

    def _take(self, peer: str, piece: Piece) -> None:
        """A piece of what has been asked for, or nothing of it."""
        asked = self._asked
        if asked is None or peer != asked.peer:
            return
        damaged = asked.damaged
        name = damaged.client, damaged.sequence, len(asked.data)
        if name != (piece.client, piece.sequence, piece.start):
            return
        asked.data += piece.data
        if piece.data and len(asked.data) < damaged.length:
            self._ask(asked)
            return
        self._asked = None
        data = bytes(asked.data)
        if damaged.is_body(data):
            self._mend(damaged, data, peer)
        else:
            self._go_on()

    def _mend(self, damaged: Damaged, data: bytes, peer: str) -> None:
        self._putting_back.add(damaged.txid)
        client, sequence = damaged.client, damaged.sequence
        highest = self._known.highest(client)
        if highest:  # from now on, it does not come again
            self._known.noted(client, highest, (sequence,))

        def mend() -> str:
            journal = self._log.journal
            try:
                if journal.find_again(client, sequence, damaged.txid) is not None:
                    return "it has been recorded again meanwhile"
                is_done = journal.mending.mend(damaged, data)
            except OSError as problem:
                return reason(problem)
            return "" if is_done else "its journal is not what it was"

        def say(problem: str) -> None:
            self._putting_back.discard(damaged.txid)
            self._damaged.pop(damaged.txid, None)
            self._tried.pop(damaged.txid, None)
            if problem:
                self._hopeless.add(damaged.txid)
                self._written.emit("1E-0019", txid=damaged.txid, problem=problem)
                self._changed(0)
            else:
                self._written.emit("1E-0018", txid=damaged.txid, other=peer)
                self._changed(damaged.txid)
            self._go_on()

        # What has come again until now can be found when it is on stable storage.
        self._log.when_durable(lambda: self._log.do_aside(mend, say))

    # Answering.

    def _answer(self, peer: str, want: Want) -> None:
        """Send a piece, one at a time to each instance."""
        if peer in self._answering:
            return
        self._answering.add(peer)

        def find() -> bytes:
            try:
                return _read(self._log.journal, want.client, want.sequence)
            except (OSError, JournalUnreadable):
                return b""

        def say(data: bytes) -> None:
            self._answering.discard(peer)
            part = data[want.start : want.start + PIECE]
            piece = Piece(want.client, want.sequence, want.start, part)
            self._neighbours.say(peer, SUBJECT, _ENCODER.encode(piece))

        self._log.do_aside(find, say)


def _read(journal: Journal, client: int, sequence: int) -> bytes:
    """Body and extras of an entry; empty if there is none of that name."""
    txid = journal.find(client, sequence)
    if txid is None:
        return b""
    stretch = journal.replay(Span(txid - 1, last=txid), kinds=EVENTS).read_on(1)
    for run in stretch.runs():
        return run.data[0]
    return b""
