"""Whose turn it is, among the consumers of one source of messages.

Theory of operation. Every model has a key by which the least is next:

    fast           the order in which they subscribed: the first that has room
    round-robin    the turn in which they had their last message
    proportional   messages held / backlog; between equals the order in which they subscribed

A heap has an entry for every consumer with room under its key of now. Entries whose key has changed
or whose consumer has no room are dropped when they surface; whoever changes a key or makes room
calls `look_again`, which puts a fresh entry in.

Source: AMPS User Guide, Delivery Fairness.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, Literal, TypeAlias

from server.queues.consumers import Seat

Key: TypeAlias = tuple[float, int]
"""What is compared, and the order of subscribing, which is never the same for two."""

_SOME: Final = 64


def _fast(seat: Seat) -> Key:
    return 0, seat.order


def _round_robin(seat: Seat) -> Key:
    return seat.served, seat.order


def _proportional(seat: Seat) -> Key:
    return seat.consumer.outstanding / seat.consumer.limit, seat.order


MODELS: Final[dict[Literal["fast", "round-robin", "proportional"], Callable[[Seat], Key]]] = {
    "fast": _fast,
    "round-robin": _round_robin,
    "proportional": _proportional,
}


class Rota:
    """The consumers of one source, in the order of their turns.

    Args:
        key: a model's.
    """

    __slots__ = ("_entries", "_heap", "_key")

    def __init__(self, key: Callable[[Seat], Key]) -> None:
        self._key = key
        self._heap: list[tuple[Key, Seat]] = []
        self._entries = 0  # of the heap when it was last tidy

    def look_again(self, seat: Seat) -> None:
        """The key of a consumer has changed, or it has room."""
        consumer = seat.consumer
        if consumer.outstanding < consumer.limit:
            heappush(self._heap, (self._key(seat), seat))
            if len(self._heap) > 2 * self._entries + _SOME:
                self._tidy()

    def _tidy(self) -> None:
        fresh = {entry for entry in self._heap if self._is_fresh(entry)}
        self._heap = list(fresh)
        heapify(self._heap)
        self._entries = len(fresh)

    def _is_fresh(self, entry: tuple[Key, Seat]) -> bool:
        key, seat = entry
        return (
            seat.room > 0
            and seat.source is not None
            and seat.source.rota is self
            and (key == self._key(seat))
        )

    def best(self) -> tuple[Key, Seat] | None:
        """Who is next, under its key; None if nobody has room."""
        heap = self._heap
        while heap:
            if self._is_fresh(heap[0]):
                return heap[0]
            heappop(heap)
        return None

    def share_out(self, places: range, turn: int) -> list[tuple[Seat, list[int] | range]]:
        """Whom messages next to each other go to, as far as there is room.

        The backlogs are taken as filled, one message after the other.

        Args:
            places: of the messages.
            turn: how many messages the queue has delivered before them.

        Returns:
            Consumers with their messages, in the order of the first of these.
        """
        best = self.best()
        if best is None:
            return []
        if self._key is _fast or not self._others(best[1]):
            return self._fill(places, turn)
        return self._deal(places, turn)

    def _others(self, seat: Seat) -> bool:
        """Whether somebody else may have a turn, too."""
        return any(entry[1] is not seat for entry in self._heap)

    def _fill(self, places: range, turn: int) -> list[tuple[Seat, list[int] | range]]:
        """One consumer after the other, as much as they have room for."""
        shares: list[tuple[Seat, list[int] | range]] = []
        while places and (best := self.best()) is not None:
            seat = best[1]
            part = places[: seat.room]
            places = places[len(part) :]
            turn += len(part)
            seat.consumer.outstanding += len(part)
            seat.served = turn
            shares.append((seat, part))
            self.look_again(seat)
        return shares

    def _deal(self, places: range, turn: int) -> list[tuple[Seat, list[int] | range]]:
        """Message by message."""
        shares: dict[Seat, list[int]] = {}
        heap, key_of = self._heap, self._key
        for place in places:
            best = self.best()
            if best is None:
                break
            seat = best[1]
            turn += 1
            consumer = seat.consumer
            consumer.outstanding += 1
            seat.served = turn
            if seat in shares:
                shares[seat].append(place)
            else:
                shares[seat] = [place]
            if consumer.outstanding < consumer.limit:
                heapreplace(heap, (key_of(seat), seat))
            else:
                heappop(heap)
        return list(shares.items())
