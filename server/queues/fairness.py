"""Whose turn it is, among the consumers of one source of messages.

Theory of operation. Every model has a key by which the least is next:

    fast           the order in which they subscribed: the first that has room
    round-robin    the turn in which they had their last message
    proportional   messages held / backlog; between equals the order in which they subscribed

A heap has the entries of all consumers with room under their keys of now. A seat knows its entry;
others of it in the heap are out of date, and are dropped when they surface. Whoever changes a key
or makes room calls `look_again`, which puts a fresh entry in.

Source: AMPS User Guide, Delivery Fairness.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, Literal

from server.queues.consumers import Entry, Seat

_SOME: Final = 64


def _fast(_seat: Seat) -> float:
    return 0


def _round_robin(seat: Seat) -> float:
    return seat.served


def _proportional(seat: Seat) -> float:
    return seat.consumer.outstanding / seat.consumer.limit


MODELS: Final[dict[Literal["fast", "round-robin", "proportional"], Callable[[Seat], float]]] = {
    "fast": _fast,
    "round-robin": _round_robin,
    "proportional": _proportional,
}


class Rota:
    """The consumers of one source, in the order of their turns.

    Args:
        key: a model's.
    """

    __slots__ = ("_fresh", "_heap", "_key")

    def __init__(self, key: Callable[[Seat], float]) -> None:
        self._key = key
        self._heap: list[Entry] = []
        self._fresh = 0  # entries when the heap was last tidy

    def look_again(self, seat: Seat) -> None:
        """The key of a consumer has changed, or its room."""
        consumer = seat.consumer
        if consumer.outstanding >= consumer.allowance:
            seat.entry = None
            return
        seat.entry = (self._key(seat), seat.order, seat)
        if len(self._heap) == 1 and self._heap[0][2] is seat:
            self._heap[0] = seat.entry
            return
        heappush(self._heap, seat.entry)
        if len(self._heap) > 2 * self._fresh + _SOME:
            self._heap = [entry for entry in self._heap if entry[2].entry is entry]
            heapify(self._heap)
            self._fresh = len(self._heap)

    def best(self) -> Entry | None:
        """The entry of whoever is next; None if nobody has room."""
        heap = self._heap
        while heap:
            entry = heap[0]
            if entry[2].entry is entry:
                return entry
            heappop(heap)
        return None

    def share_out(self, places: range, turn: int) -> list[tuple[Seat, Sequence[int]]]:
        """Whom messages next to each other go to, as far as there is room.

        The backlogs are taken as filled, one message after the other.

        Args:
            places: of the messages.
            turn: how many messages the queue has delivered before them.

        Returns:
            Consumers with their messages.
        """
        if self._key is _fast or len(self._heap) == 1:
            return self._fill(places, turn)
        return self._deal(places, turn)

    def _fill(self, places: range, turn: int) -> list[tuple[Seat, Sequence[int]]]:
        """One consumer after the other, as much as they have room for."""
        shares: list[tuple[Seat, Sequence[int]]] = []
        while places and (best := self.best()) is not None:
            seat = best[2]
            part = places[: seat.room]
            places = places[len(part) :]
            turn += len(part)
            seat.consumer.outstanding += len(part)
            seat.served = turn
            shares.append((seat, part))
            self.look_again(seat)
        return shares

    def _deal(self, places: range, turn: int) -> list[tuple[Seat, Sequence[int]]]:
        """Message by message."""
        shares: dict[Seat, list[int]] = {}
        heap = self._heap
        is_proportional = self._key is _proportional
        for place in places:
            while heap and heap[0][2].entry is not heap[0]:  # as in `best`
                heappop(heap)
            if not heap:
                break
            seat = heap[0][2]
            consumer = seat.consumer
            outstanding = consumer.outstanding = consumer.outstanding + 1
            turn += 1
            seat.served = turn
            if seat in shares:
                shares[seat].append(place)
            else:
                shares[seat] = [place]
            if outstanding < consumer.allowance:
                key = outstanding / consumer.limit if is_proportional else turn
                seat.entry = (key, seat.order, seat)
                heapreplace(heap, seat.entry)
            else:
                seat.entry = None
                heappop(heap)
        return list(shares.items())
