"""Watermarks: the number up to which each publisher's messages are settled.

A publisher gets that number at its logon, and discards the messages that it has kept up to there.
So it must not be the highest number recorded, but one that all instances have that are required to.
For each publisher, some numbers are remembered, with the txids behind which they are settled. With
many unsettled numbers fewer are remembered, and the watermark is lower than it could be. Then
messages are sent twice, and recognized as duplicates.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

_MAX_POINTS_PER_PUBLISHER: Final = 64
_FEW: Final = 1024
"""The number of publishers at which settled ones are first forgotten."""


class _PublisherWatermark:
    """Numbers of one publisher.

    Attributes:
        settled_sequence: the number up to which everything is known to be settled.
        txids: the txids of messages with the numbers below, ascending.
        sequences: the numbers.
        min_txid_distance: their least distance, in txids.
    """

    __slots__ = ("min_txid_distance", "sequences", "settled_sequence", "txids")

    def __init__(self, settled_sequence: int) -> None:
        self.settled_sequence = settled_sequence
        self.min_txid_distance = 0
        self.txids: list[int] = []
        self.sequences: list[int] = []


class DurableWatermarks:
    """The publishers with unsettled messages, and perhaps others."""

    def __init__(self) -> None:
        self._publishers: dict[int, _PublisherWatermark] = {}
        self._prune_size = _FEW

    def record_publish(
        self, client: int, before: int, sequence: int, txid: int, settled: int
    ) -> None:
        """Note messages that have been recorded.

        Args:
            client: the publisher's hash.
            before: its highest number before.
            sequence: its highest number now.
            txid: the txid of that message.
            settled: the txid up to which everything is settled.
        """
        numbers = self._publishers.get(client)
        if numbers is None:
            if len(self._publishers) >= self._prune_size:
                self._forget_settled(settled)
            numbers = self._publishers[client] = _PublisherWatermark(before)
        txids, sequences = numbers.txids, numbers.sequences
        if txids and txids[0] <= settled:
            self._advance(numbers, settled)
        if len(txids) > 1 and txid - txids[-2] < numbers.min_txid_distance:
            txids[-1], sequences[-1] = txid, sequence
            return
        txids.append(txid)
        sequences.append(sequence)
        if len(txids) > _MAX_POINTS_PER_PUBLISHER:
            del txids[-2::-2], sequences[-2::-2]  # keep every second one, and the newest
            numbers.min_txid_distance = (txid - txids[0]) // len(txids)

    def settled_sequence(self, client: int, highest: int, settled: int) -> int:
        """Return the number up to which a publisher's messages are settled.

        Args:
            client: its hash.
            highest: its highest number.
            settled: the txid up to which everything is settled.
        """
        numbers = self._publishers.get(client)
        if numbers is None:
            return highest
        self._advance(numbers, settled)
        return numbers.settled_sequence if numbers.txids else highest

    def _advance(self, numbers: _PublisherWatermark, settled: int) -> None:
        place = bisect_right(numbers.txids, settled)
        if place:
            numbers.settled_sequence = numbers.sequences[place - 1]
            del numbers.txids[:place], numbers.sequences[:place]
            numbers.min_txid_distance = numbers.min_txid_distance if numbers.txids else 0

    def _forget_settled(self, settled: int) -> None:
        """Forget publishers with all messages settled."""
        self._publishers = {
            client: numbers
            for client, numbers in self._publishers.items()
            if numbers.txids and numbers.txids[-1] > settled
        }
        self._prune_size = max(2 * len(self._publishers), _FEW)
