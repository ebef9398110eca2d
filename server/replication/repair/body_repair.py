"""Repairs damaged entries of the log with copies from other instances.

    reading the log finds damage -> list the damaged bodies -> ask one instance after the other for
    the entry with the same bookmark -> if it is the lost one, write it to its place

A restored body must have the length and the checksum in the entry's own record, so no peer has to
be trusted, and the log is the same as before. For damage in the records of entries, see
`record_repair`. Compressed journals are not repaired.

A sender of the log to other instances waits in front of a damaged entry as long as that may be
repaired soon (`is_lost`): while a connected peer has not been asked. No peer may be connected yet
when damage is found first, so an entry is not reported as lost before some seconds have passed.

A missing message may also arrive again: its publisher resends it if the instance has nothing behind
it, and so does another instance if it queries the position of this one anew. A message that has
arrived again is not restored, and one that has been restored is not accepted again.

Source: ours; AMPS has nothing of the kind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from server.replication.repair.peer_requests import PeerRequest, PeerRequester, PeerResponder
from server.replication.repair.record_repair import PeerRecordRepair
from server.storage.journal import EVENTS, DamagedBody, JournalUnreadableError, LogSpan
from server.storage.journal.errors import reason
from server.storage.journal.format.layout import BODY_LENGTH
from server.util.msgpack_errors import MSGPACK_ERRORS

if TYPE_CHECKING:
    from server.replication.core import DedupWindow
    from server.replication.links.context import PeerLinks
    from server.storage.journal import EntryBatch, Journal, RecordGap
    from server.topics.transaction_log import TransactionLog
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

SUBJECT: Final = "mend"
"""Subject of the messages of this module."""

ENTRY_CHUNK_SIZE: Final = 48_000
"""Bytes of a body in one message."""

_MAX_UNREPAIRABLE: Final = 100_000


class ChunkRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """A request for a piece of an entry.

    Attributes:
        client: the identity of its publisher.
        sequence: its number.
        start: the offset, in bytes of body and extras.
    """

    client: int
    sequence: int
    start: int


class EntryChunk(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2):
    """A piece of an entry.

    Attributes:
        client: see `ChunkRequest`.
        sequence: see `ChunkRequest`.
        start: see `ChunkRequest`.
        data: the piece; empty if there is none.
    """

    client: int
    sequence: int
    start: int
    data: bytes


_BodyRepairMessage: TypeAlias = ChunkRequest | EntryChunk
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[_BodyRepairMessage]] = msgspec.msgpack.Decoder(
    _BodyRepairMessage
)


class PeerBodyRepair:
    """Requests damaged entries from other instances, and answers their requests.

    Args:
        instance: name of this instance.
        log: the transaction log.
        neighbours: the links.
        known: the dedup windows of the publishers.
        clock: the time, and timers.
        written: the event log, for repaired and lost entries.
        changed: called with the txid of a repaired entry, or with 0 when some are lost.
    """

    def __init__(
        self,
        instance: str,
        log: TransactionLog,
        neighbours: PeerLinks,
        known: DedupWindow,
        clock: Clock,
        written: ServerLog,
        changed: Callable[[int], None],
    ) -> None:
        self._changed: Final = changed
        self._looking: set[int] = set()
        self._putting_back: set[int] = set()
        self._hopeless: set[int] = set()  # damaged entries that cannot be repaired
        self._log: Final = log
        self._known: Final = known
        self._neighbours: Final = neighbours
        self._written: Final = written
        self._data = bytearray()  # received pieces of the requested entry
        self._asking: Final[PeerRequester[DamagedBody]] = PeerRequester(
            neighbours, clock, self._ask, self._ask_on, self._say_if_given_up, self._comes_again
        )
        self._answers: Final = PeerResponder(log, neighbours, SUBJECT)
        self._records: Final = PeerRecordRepair(
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
        """Stop repairing."""
        self._asking.close()
        self._records.close()

    # Damaged entries.

    def is_lost(self, txid: int) -> bool:
        """Return whether a damaged entry is unlikely to be repaired soon."""
        if txid in self._hopeless:
            return True
        is_lost = self._records.is_lost(txid)
        if is_lost is not None:
            return is_lost
        damaged = self._asking.wanted.get(txid)
        if damaged is None:
            self.look(txid)
            return False
        if self._comes_again(damaged):
            return True
        return txid not in self._putting_back and self._asking.is_given_up(txid)

    def look(self, txid: int) -> None:
        """Search for damaged entries, from an entry on, on the helper thread."""
        if txid in self._looking:
            return
        self._looking.add(txid)

        def look() -> tuple[list[DamagedBody], list[RecordGap]]:
            journal = self._log.journal
            try:
                return journal.mending.damaged(txid), journal.restoring.gaps(txid)
            except OSError:
                return [], []  # the journal cannot be read at the moment, let alone repaired

        self._log.do_aside(look, lambda found: self._note(txid, *found))

    def _record_is_mended(self, txid: int) -> None:
        """Note a rebuilt record; the body is there as well, unless it is damaged, too."""
        self._changed(txid)
        self.look(txid)

    def _note(self, txid: int, found: list[DamagedBody], gaps: list[RecordGap]) -> None:
        self._looking.discard(txid)
        self._records.note(gaps)
        for one in found:
            self._asking.want(one.txid, one)
        if txid not in self._asking.wanted and self._records.is_lost(txid) is None:
            if len(self._hopeless) >= _MAX_UNREPAIRABLE:
                self._hopeless.clear()
            self._hopeless.add(txid)
            if self._log.journal.mending.is_compressed(txid):
                problem = "their journal has been compressed"
                self._written.emit("1E-0023", entries=f"from {txid} on", problem=problem)
        self._asking.go_on()
        self._changed(0)

    def _links_changed(self) -> None:
        self._records.links_changed()
        self._asking.links_changed()
        self._say_if_given_up()

    # Requests.

    def _say_if_given_up(self) -> None:
        """Notify if no request is pending, for some entries may have to be given up."""
        if self._asking.wanted and self._asking.asked is None:
            self._changed(0)

    def _comes_again(self, damaged: DamagedBody) -> bool:
        """Return whether the publisher will resend an entry: its last known message is earlier."""
        return 0 < self._known.highest(damaged.client) < damaged.sequence

    def _ask(self, asked: PeerRequest[DamagedBody]) -> None:
        self._data.clear()
        self._ask_on(asked)

    def _ask_on(self, asked: PeerRequest[DamagedBody]) -> None:
        want = ChunkRequest(asked.thing.client, asked.thing.sequence, len(self._data))
        self._neighbours.say(asked.peer, SUBJECT, _ENCODER.encode(want))

    def _hear(self, peer: str, body: bytes) -> None:
        try:
            word = _DECODER.decode(body)
        except MSGPACK_ERRORS:
            return  # malformed: the requester times out
        if isinstance(word, ChunkRequest):
            self._answer(peer, word)
        else:
            self._take(peer, word)

    def _take(self, peer: str, piece: EntryChunk) -> None:
        """Process a piece of the requested entry, or the answer that there is none."""
        asked = self._asking.asked
        if asked is None or peer != asked.peer:
            return
        damaged = asked.thing
        name = damaged.client, damaged.sequence, len(self._data)
        if name != (piece.client, piece.sequence, piece.start):
            return
        self._data += piece.data
        if piece.data and len(self._data) < damaged.length:
            self._asking.wait_on()
            self._ask_on(asked)
            return
        data = bytes(self._data)
        if damaged.is_body(data):
            self._asking.asked = None
            self._mend(damaged, data, peer)
        else:
            self._asking.done()
            self._say_if_given_up()

    def _mend(self, damaged: DamagedBody, data: bytes, peer: str) -> None:
        self._putting_back.add(damaged.txid)
        client, sequence = damaged.client, damaged.sequence
        highest = self._known.highest(client)
        if highest:  # from now on, a resent copy is a duplicate
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
            self._asking.forget(damaged.txid)
            if problem:
                self._hopeless.add(damaged.txid)
                self._written.emit("1E-0019", txid=damaged.txid, problem=problem)
                self._changed(0)
            else:
                self._written.emit("1E-0018", txid=damaged.txid, other=peer)
                self._changed(damaged.txid)
            self._asking.go_on()

        # An entry that has come again until now can be found when it is on stable storage.
        self._log.when_durable(lambda: self._log.do_aside(mend, say))

    # Answers.

    def _answer(self, peer: str, want: ChunkRequest) -> None:
        """Send a piece of an entry, if the other instance is entitled to it."""

        def find() -> EntryBatch | None:
            try:
                return _read(self._log.journal, want.client, want.sequence)
            except (OSError, JournalUnreadableError):
                return None

        def answer(run: EntryBatch | None) -> bytes:
            data = b""
            if run is not None:
                body = run.data[0][: run.rows[0][BODY_LENGTH]]
                if self._neighbours.may_have(peer, run.topic, run.origin.path, body):
                    data = run.data[0][want.start : want.start + ENTRY_CHUNK_SIZE]
                else:
                    self._neighbours.refuse(peer, run.topic)
            return _ENCODER.encode(EntryChunk(want.client, want.sequence, want.start, data))

        self._answers.give(peer, find, answer)


def _read(journal: Journal, client: int, sequence: int) -> EntryBatch | None:
    """Return the entry with a bookmark, as a run of one; None if there is none."""
    txid = journal.find(client, sequence)
    if txid is None:
        return None
    stretch = journal.replay(LogSpan(txid - 1, last=txid), kinds=EVENTS).read_on(1)
    return next(iter(stretch.runs()), None)
