"""Watermarks: the number up to which each publisher's messages are settled.

A publisher gets that number at its logon, and drops its stored messages up to that number.
So it must not be the highest number recorded, but one that all instances have that are required to.
For each publisher, some numbers are stored, with the txids from which on they are settled. With
many unsettled numbers fewer are stored, and the watermark is lower than it could be. Then
messages are sent twice, and recognized as duplicates.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

_MAX_POINTS_PER_PUBLISHER: Final = 64
_MIN_PRUNE_SIZE: Final = 1024
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
        self._prune_size = _MIN_PRUNE_SIZE

    def record_publish(
        self, client: int, previous_sequence: int, sequence: int, txid: int, settled_txid: int
    ) -> None:
        """Note messages that have been recorded.

        Args:
            client: the publisher's hash.
            previous_sequence: its highest number before.
            sequence: its highest number now.
            txid: the txid of that message.
            settled_txid: the txid up to which everything is settled.
        """
        watermark = self._publishers.get(client)
        if watermark is None:
            if len(self._publishers) >= self._prune_size:
                self._forget_settled(settled_txid)
            watermark = self._publishers[client] = _PublisherWatermark(previous_sequence)
        txids, sequences = watermark.txids, watermark.sequences
        if txids and txids[0] <= settled_txid:
            self._advance(watermark, settled_txid)
        if len(txids) > 1 and txid - txids[-2] < watermark.min_txid_distance:
            txids[-1], sequences[-1] = txid, sequence
            return
        txids.append(txid)
        sequences.append(sequence)
        if len(txids) > _MAX_POINTS_PER_PUBLISHER:
            del txids[-2::-2], sequences[-2::-2]  # keep every second one, and the newest
            watermark.min_txid_distance = (txid - txids[0]) // len(txids)

    def settled_sequence(self, client: int, last_sequence: int, settled_txid: int) -> int:
        """Return the number up to which a publisher's messages are settled.

        Args:
            client: its hash.
            last_sequence: its highest number.
            settled_txid: the txid up to which everything is settled.
        """
        watermark = self._publishers.get(client)
        if watermark is None:
            return last_sequence
        self._advance(watermark, settled_txid)
        return watermark.settled_sequence if watermark.txids else last_sequence

    def _advance(self, watermark: _PublisherWatermark, settled_txid: int) -> None:
        count = bisect_right(watermark.txids, settled_txid)
        if count:
            watermark.settled_sequence = watermark.sequences[count - 1]
            del watermark.txids[:count], watermark.sequences[:count]
            watermark.min_txid_distance = watermark.min_txid_distance if watermark.txids else 0

    def _forget_settled(self, settled_txid: int) -> None:
        """Forget publishers with all messages settled."""
        self._publishers = {
            client: watermark
            for client, watermark in self._publishers.items()
            if watermark.txids and watermark.txids[-1] > settled_txid
        }
        self._prune_size = max(2 * len(self._publishers), _MIN_PRUNE_SIZE)
