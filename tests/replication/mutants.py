"""Instances with a defect each, which the simulation has to find."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from server.replication.core import (
    Ack,
    DedupWindow,
    EntryRoutingKey,
    PositionRequest,
    PositionResponse,
    ReceiveCursor,
    ReplicationReceiver,
    ReplicationSender,
)
from server.replication.core.ack_order import InFlightEntries, UnacknowledgedEntries
from server.replication.core.routes import LinkRoute
from server.storage.journal import GapRecord
from tests.replication.instance import Instance

if TYPE_CHECKING:
    from server.storage.journal.sequence_gaps import SequenceRanges
    from tests.replication.connection import Connection
    from tests.replication.publisher import Publisher


class AcksBeforeStable(ReplicationReceiver):
    """Acknowledges what it has received, be it on stable storage or not."""

    def make_ack(self, durable: int, is_settled: Any) -> Ack | None:
        return super().make_ack(1 << 60, lambda *_: True)


class AcksBeforeOthers(ReplicationReceiver):
    """Waits for its disk, and not for the instances that acknowledge to it."""

    def make_ack(self, durable: int, is_settled: Any) -> Ack | None:
        def stored(last: int, *_: object) -> bool:
            return last <= durable

        return super().make_ack(durable, stored)


class AcksDuplicatesAtOnce(ReplicationReceiver):
    """Does not wait until what it knows already is on stable storage."""

    _newest = 0
    _drops = False

    def _advance_to(self, txid: int) -> None:
        self._received_txid = txid
        self._unsynced_txids.append((txid, self._newest))

    def _drop_duplicates(self, run: Any, places: Any, source: Any) -> None:
        self._drops = True
        super()._drop_duplicates(run, places, source)
        self._drops = False

    def _track_unsettled(
        self, lane: int, txids: tuple[int, int], own_last: int, kinds: set[EntryRoutingKey]
    ) -> None:
        if not self._drops:
            self._newest = own_last
            super()._track_unsettled(lane, txids, own_last, kinds)


class AcksInOrderOfLog(ReplicationReceiver):
    """Has what came on one path wait for what came before it on another."""

    def make_ack(self, durable: int, is_settled: Any) -> Ack | None:
        ack = super().make_ack(durable, is_settled)
        return None if ack is None else Ack(ack.settled_txid)


class _WithBacklog(ReplicationReceiver):
    backlog_type: type[UnacknowledgedEntries]

    def __init__(self, *args: Any, most_units: int) -> None:
        super().__init__(*args)
        self._unacknowledged_entries = self.backlog_type(most_units)


class _JoinsLanes(UnacknowledgedEntries):
    def add(
        self, lane: int, txids: tuple[int, int], own_last: int, kinds: Collection[EntryRoutingKey]
    ) -> None:
        is_much = self._unit_count >= self._max_units
        super().add(lane, txids, own_last, kinds)
        if is_much:
            units = [units[-1] for units in self._lanes.values()]
            kinds = set[EntryRoutingKey]().union(*(unit.routing_keys for unit in units))
            for unit in units:
                unit.routing_keys, unit.own_last_txid = kinds, max(unit.own_last_txid, own_last)


class JoinsLanes(_WithBacklog):
    """When much waits, has what came on one path wait for what came on another."""

    backlog_type = _JoinsLanes


class _ForgetsUnits(UnacknowledgedEntries):
    def add(
        self, lane: int, txids: tuple[int, int], own_last: int, kinds: Collection[EntryRoutingKey]
    ) -> None:
        if self._unit_count < self._max_units:
            super().add(lane, txids, own_last, kinds)


class ForgetsUnits(_WithBacklog):
    """When much waits, forgets what comes."""

    backlog_type = _ForgetsUnits


class StoresCursorTooEarly(ReplicationReceiver):
    """Remembers a place in the source's log before it has all that is before it."""

    @property
    def cursor(self) -> ReceiveCursor | None:
        found = super().cursor
        return None if found is None else found._replace(txid=self._received_txid + 2)


class AsksForTooLittle(ReplicationReceiver):
    """After an interruption, asks for what comes behind the next entry."""

    def begin_link(
        self, source: Any, frame: PositionRequest, settled_txid: int, *rest: Any, **options: Any
    ) -> Any:
        self._received_txid += self._stream == frame.stream and self._received_txid < frame.last
        return super().begin_link(source, frame, settled_txid, *rest, **options)


class LosesRange(ReplicationSender):
    """Goes on one entry too late."""

    def resume(self, frame: PositionResponse) -> Any:
        found = super().resume(frame)
        if found is not None and self._reader is not None:
            self._reader = self._log.read_from(found.after_txid + 1, self._routes.includes)
        return found


class RepeatsRange(ReplicationSender):
    """Goes on too early, and does not say so."""

    def resume(self, frame: PositionResponse) -> Any:
        found = super().resume(frame)
        if found is not None and self._reader is not None:
            start = max(found.after_txid - 3, self._log.first_txid - 1)
            self._reader = self._log.read_from(start, self._routes.includes)
        return found


class ForgetsUnderWay(ReplicationSender):
    """Takes what has been sent for what has been acknowledged, once the link is gone."""

    def end_link(self) -> None:
        super().end_link()
        self._in_flight_entries = InFlightEntries(self._sent_txid)


class IgnoresLanes(ReplicationSender):
    """Takes what is stored for settled."""

    def process_ack(self, ack: Ack) -> None:
        super().process_ack(Ack(ack.stored))


class TakesTwice(DedupWindow):
    """Takes everything that comes for new."""

    def new_positions(self, client: int, sequences: Sequence[int]) -> Sequence[int]:
        return range(len(sequences))


class IgnoresGaps(DedupWindow):
    """Takes nothing that is below the highest number."""

    def new_positions(self, client: int, sequences: Sequence[int]) -> Sequence[int]:
        highest = self.highest_sequence(client)
        return [place for place, number in enumerate(sequences) if number > highest]


class ForgetsGaps(DedupWindow):
    """Does not see which numbers are missing."""

    def record_sequences(self, client: int, before: int, sequences: Sequence[int]) -> None:
        return


class IgnoresPath(ReplicationSender):
    """Sends entries back to where they have been."""

    def begin_link(self, peer: Any) -> PositionRequest:
        begin = super().begin_link(peer)
        self._route = LinkRoute(self._routes, "nobody")
        return begin


class ForgetsWhatItOwes(ReplicationSender):
    """Leaves out what nobody has, and thinks no more of it."""

    def _record_skipped(self, owed: Any, first: int, last: int) -> None:
        return


class WaitsForNothing(ReplicationSender):
    """Goes on behind what it cannot read without waiting for it to be mended."""

    def _find_lost(self, unread: Any, end: int) -> Any:
        return unread, end


class ForgetsWhatItIsOwed(ReplicationReceiver):
    """Does not say what the source has left out, when that asks where to go on."""

    def begin_link(
        self, source: Any, frame: PositionRequest, settled_txid: int, *rest: Any, **options: Any
    ) -> Any:
        for one in super().begin_link(source, frame, settled_txid, *rest, **options):
            yield PositionResponse(one.after, one.ack) if isinstance(one, PositionResponse) else one


class ForgetsRefusals(Instance):
    """Takes no note of what it refuses when something behind that is recorded."""

    def note(self, client: int, note: GapRecord) -> None:
        if not note.missing:
            super().note(client, note)


class TellsNobody(Instance):
    """Does not tell publishers what has failed before it tells how far all is stored."""

    def log_on(self, publisher: Publisher) -> tuple[SequenceRanges, int]:
        _, settled = super().log_on(publisher)
        return (), settled


class DropsNotes(Instance):
    """Does not believe other instances what they say of refusals."""

    def receive(self, connection: Connection, frame: Any) -> None:
        super().receive(connection, frame)
        self.log.missing.drop_publishers([publisher.client for publisher in self.world.publishers])


def with_receiver(kind: type[ReplicationReceiver]) -> type[Instance]:
    return type(kind.__name__, (Instance,), {"receiver_type": kind})


def with_sender(kind: type[ReplicationSender]) -> type[Instance]:
    return type(kind.__name__, (Instance,), {"sender_type": kind})


def with_known(kind: type[DedupWindow]) -> type[Instance]:
    return type(kind.__name__, (Instance,), {"known_type": kind})


MUTANTS: dict[str, tuple[str, type[Instance]]] = {
    "acks before it is stable": ("pair", with_receiver(AcksBeforeStable)),
    "acks before others have it": ("chain", with_receiver(AcksBeforeOthers)),
    "acks duplicates at once": ("mesh", with_receiver(AcksDuplicatesAtOnce)),
    "acks in the order of the log": ("mesh", with_receiver(AcksInOrderOfLog)),
    "joins lanes": ("mesh", with_receiver(JoinsLanes)),
    "forgets what waits": ("chain", with_receiver(ForgetsUnits)),
    "ignores what is not settled": ("chain", with_sender(IgnoresLanes)),
    "stores its cursor too early": ("pair", with_receiver(StoresCursorTooEarly)),
    "asks for too little": ("pair", with_receiver(AsksForTooLittle)),
    "loses a range": ("pair", with_sender(LosesRange)),
    "repeats a range": ("pair", with_sender(RepeatsRange)),
    "forgets what is under way": ("pair", with_sender(ForgetsUnderWay)),
    "takes everything twice": ("mesh", with_known(TakesTwice)),
    "ignores gaps": ("async", with_known(IgnoresGaps)),
    "forgets gaps": ("async", with_known(ForgetsGaps)),
    "forgets what it owes": ("async", with_sender(ForgetsWhatItOwes)),
    "waits for nothing to be mended": ("pair", with_sender(WaitsForNothing)),
    "forgets what it is owed": ("async", with_receiver(ForgetsWhatItIsOwed)),
    "forgets what it refuses": ("pair", ForgetsRefusals),
    "does not tell publishers what failed": ("pair", TellsNobody),
    "does not believe others that they refused": ("pair", DropsNotes),
    "ignores the path": ("pair", with_sender(IgnoresPath)),
}

KNOWN_SEEDS: Final = {
    "acks duplicates at once": 16,
    "acks in the order of the log": 1,
    "joins lanes": 45,
    "stores its cursor too early": 4,
    "asks for too little": 7,
    "forgets what is under way": 7,
    "forgets what it is owed": 13,
    "forgets what it refuses": 22,
    "does not tell publishers what failed": 22,
    "does not believe others that they refused": 30,
}
"""Seeds of schedules that have shown defects: the tests try them before all others."""
