"""Fairness models: the choice of the next consumer of a source.

Theory of operation. Every model has a key; the consumer with the least key is next:

    fast           the order in which they subscribed: the first that has room
    round-robin    the number of the delivery that was their last
    proportional   messages held / backlog; ties are broken by the order in which they subscribed

A heap has entries of all consumers with room, by their current keys. A slot refers to its current
entry; its other entries in the heap are stale, and are dropped when they reach the top. After a
change of its key or room, `update_entry` must be called, which pushes a new entry.

Source: AMPS User Guide, Delivery Fairness.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, Literal

from server.queues.core.consumers import ConsumerSlot, RotationEntry

_MIN_COMPACTED: Final = 64


def _fast(_slot: ConsumerSlot) -> float:
    return 0


def _round_robin(slot: ConsumerSlot) -> float:
    return slot.last_delivery_number


def _proportional(slot: ConsumerSlot) -> float:
    return slot.consumer.outstanding / slot.consumer.max_backlog


MODELS: Final[
    dict[Literal["fast", "round-robin", "proportional"], Callable[[ConsumerSlot], float]]
] = {
    "fast": _fast,
    "round-robin": _round_robin,
    "proportional": _proportional,
}


class ConsumerRotation:
    """The consumers of one source, in the order of a fairness model.

    Args:
        key: the key function of the model.
    """

    __slots__ = ("_compacted_size", "_heap", "_key")

    def __init__(self, key: Callable[[ConsumerSlot], float]) -> None:
        self._key = key
        self._heap: list[RotationEntry] = []
        self._compacted_size = 0  # entries after the last removal of stale ones

    def update_entry(self, slot: ConsumerSlot) -> None:
        """Update the entry of a consumer after a change of its key or room."""
        consumer = slot.consumer
        if consumer.outstanding >= consumer.effective_backlog:
            slot.rotation_entry = None
            return
        slot.rotation_entry = (self._key(slot), slot.serial, slot)
        if len(self._heap) == 1 and self._heap[0][2] is slot:
            self._heap[0] = slot.rotation_entry
            return
        heappush(self._heap, slot.rotation_entry)
        if len(self._heap) > 2 * self._compacted_size + _MIN_COMPACTED:
            self._heap = [entry for entry in self._heap if entry[2].rotation_entry is entry]
            heapify(self._heap)
            self._compacted_size = len(self._heap)

    def next_entry(self) -> RotationEntry | None:
        """Return the entry of the next consumer; None if no consumer has room."""
        heap = self._heap
        while heap:
            entry = heap[0]
            if entry[2].rotation_entry is entry:
                return entry
            heappop(heap)
        return None

    def assign_messages(
        self, offsets: range, delivery_number: int
    ) -> list[tuple[ConsumerSlot, Sequence[int]]]:
        """Assign adjacent messages to consumers, as far as these have room.

        Consumers' backlogs are charged message by message.

        Args:
            offsets: the offsets of the messages.
            delivery_number: how many messages the queue has delivered before them.

        Returns:
            The consumers' slots with the offsets of their messages.
        """
        if self._key is _fast or len(self._heap) == 1:
            return self._fill(offsets, delivery_number)
        return self._assign_each(offsets, delivery_number)

    def _fill(
        self, offsets: range, delivery_number: int
    ) -> list[tuple[ConsumerSlot, Sequence[int]]]:
        """Fill one consumer after the other, as far as each has room."""
        shares: list[tuple[ConsumerSlot, Sequence[int]]] = []
        while offsets and (entry := self.next_entry()) is not None:
            slot = entry[2]
            share = offsets[: slot.free_backlog]
            offsets = offsets[len(share) :]
            delivery_number += len(share)
            slot.consumer.outstanding += len(share)
            slot.last_delivery_number = delivery_number
            shares.append((slot, share))
            self.update_entry(slot)
        return shares

    def _assign_each(
        self, offsets: range, delivery_number: int
    ) -> list[tuple[ConsumerSlot, Sequence[int]]]:
        """Assign message by message."""
        shares: dict[ConsumerSlot, list[int]] = {}
        heap = self._heap
        is_proportional = self._key is _proportional
        for offset in offsets:
            while heap and heap[0][2].rotation_entry is not heap[0]:  # as in `next_entry`
                heappop(heap)
            if not heap:
                break
            slot = heap[0][2]
            consumer = slot.consumer
            outstanding = consumer.outstanding = consumer.outstanding + 1
            delivery_number += 1
            slot.last_delivery_number = delivery_number
            if slot in shares:
                shares[slot].append(offset)
            else:
                shares[slot] = [offset]
            if outstanding < consumer.effective_backlog:
                key = outstanding / consumer.max_backlog if is_proportional else delivery_number
                slot.rotation_entry = (key, slot.serial, slot)
                heapreplace(heap, slot.rotation_entry)
            else:
                slot.rotation_entry = None
                heappop(heap)
        return list(shares.items())
