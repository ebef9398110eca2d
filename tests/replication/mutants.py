"""Instances with a defect each, which the simulation has to find."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.replication import Ack, Begin, Cursor, Known, Receiver, Resume, Sender
from server.replication.routes import Way
from tests.replication.instance import Instance


class AcksBeforeStable(Receiver):
    """Acknowledges what it has received, be it on stable storage or not."""

    def acknowledge(self, durable: int, is_settled: Any) -> Ack | None:
        return super().acknowledge(1 << 60, lambda *_: True)


class AcksBeforeOthers(Receiver):
    """Waits for its disk, and not for the instances that acknowledge to it."""

    def acknowledge(self, durable: int, is_settled: Any) -> Ack | None:
        def stored(first: int, last: int, *_: object) -> bool:
            return last <= durable

        return super().acknowledge(durable, stored)


class AcksDuplicatesAtOnce(Receiver):
    """Does not wait until what it knows already is on stable storage."""

    def _move_to(self, txid: int) -> None:
        before = self._storing[-1][1] if self._storing else 0
        newest = self._units[-1].own_last if self._units else 0
        self._received = txid
        self._storing.append((txid, max(before, newest)))

    def _drop(self, run: Any, places: Any, source: Any) -> None:
        units = list(self._units)
        super()._drop(run, places, source)
        self._units = units


class StoresCursorTooEarly(Receiver):
    """Remembers a place in the source's log before it has all that is before it."""

    @property
    def cursor(self) -> Cursor | None:
        found = super().cursor
        return None if found is None else found._replace(txid=self._received + 2)


class AsksForTooLittle(Receiver):
    """After an interruption, asks for what comes behind the next entry."""

    def begin(self, source: Any, frame: Begin, settled: int) -> Any:
        self._received += self._stream == frame.stream and self._received < frame.last
        return super().begin(source, frame, settled)


class LosesRange(Sender):
    """Goes on one entry too late."""

    def resume(self, frame: Resume) -> Any:
        found = super().resume(frame)
        if found is not None and self._reader is not None:
            self._reader = self._log.read_from(found.after + 1, self._routes.takes)
        return found


class RepeatsRange(Sender):
    """Goes on too early, and does not say so."""

    def resume(self, frame: Resume) -> Any:
        found = super().resume(frame)
        if found is not None and self._reader is not None:
            start = max(found.after - 3, self._log.first_txid - 1)
            self._reader = self._log.read_from(start, self._routes.takes)
        return found


class ForgetsUnderWay(Sender):
    """Takes what has been sent for what has been acknowledged, once the link is gone."""

    def disconnected(self) -> None:
        super().disconnected()
        self._under_way.remove(0, 1 << 62)


class TakesTwice(Known):
    """Takes everything that comes for new."""

    def unknown(self, client: int, sequences: Sequence[int]) -> Sequence[int]:
        return range(len(sequences))


class IgnoresGaps(Known):
    """Takes nothing that is below the highest number."""

    def unknown(self, client: int, sequences: Sequence[int]) -> Sequence[int]:
        highest = self.highest(client)
        return [place for place, number in enumerate(sequences) if number > highest]


class ForgetsGaps(Known):
    """Does not see which numbers are missing."""

    def noted(self, client: int, before: int, sequences: Sequence[int]) -> None:
        return


class IgnoresPath(Sender):
    """Sends entries back to where they have been."""

    def connected(self, peer: Any) -> Begin:
        begin = super().connected(peer)
        self._way = Way(self._routes, "nobody")
        return begin


class ForgetsWhatItOwes(Sender):
    """Leaves out what nobody has, and thinks no more of it."""

    def _leave_out(self, owed: Any, first: int, last: int) -> None:
        return


class WaitsForNothing(Sender):
    """Goes on behind what it cannot read without waiting for it to be mended."""

    def _owed(self, unread: Any, end: int) -> Any:
        return unread, end


class ForgetsWhatItIsOwed(Receiver):
    """Does not say what the source has left out, when that asks where to go on."""

    def begin(self, source: Any, frame: Begin, settled: int) -> Any:
        for one in super().begin(source, frame, settled):
            yield Resume(one.after, one.ack) if isinstance(one, Resume) else one


def with_receiver(kind: type[Receiver]) -> type[Instance]:
    return type(kind.__name__, (Instance,), {"receiver_type": kind})


def with_sender(kind: type[Sender]) -> type[Instance]:
    return type(kind.__name__, (Instance,), {"sender_type": kind})


def with_known(kind: type[Known]) -> type[Instance]:
    return type(kind.__name__, (Instance,), {"known_type": kind})


MUTANTS: dict[str, tuple[str, type[Instance]]] = {
    "acks before it is stable": ("pair", with_receiver(AcksBeforeStable)),
    "acks before others have it": ("chain", with_receiver(AcksBeforeOthers)),
    "acks duplicates at once": ("mesh", with_receiver(AcksDuplicatesAtOnce)),
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
    "ignores the path": ("pair", with_sender(IgnoresPath)),
}
