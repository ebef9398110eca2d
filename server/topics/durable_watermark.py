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
        settled: the number up to which everything is known to be settled.
        txids: the txids of messages with the numbers below, ascending.
        sequences: the numbers.
        grain: their least distance, in txids.
    """

    __slots__ = ("grain", "sequences", "settled", "txids")

    def __init__(self, settled: int) -> None:
        self.settled = settled
        self.grain = 0
        self.txids: list[int] = []
        self.sequences: list[int] = []


class DurableWatermarks:
    """The publishers with unsettled messages, and perhaps others."""

    def __init__(self) -> None:
        self._clients: dict[int, _PublisherWatermark] = {}
        self._look_at = _FEW

    def note(self, client: int, before: int, sequence: int, txid: int, settled: int) -> None:
        """Note messages that have been recorded.

        Args:
            client: the publisher's hash.
            before: its highest number before.
            sequence: its highest number now.
            txid: the txid of that message.
            settled: the txid up to which everything is settled.
        """
        numbers = self._clients.get(client)
        if numbers is None:
            if len(self._clients) >= self._look_at:
                self._forget(settled)
            numbers = self._clients[client] = _PublisherWatermark(before)
        txids, sequences = numbers.txids, numbers.sequences
        if txids and txids[0] <= settled:
            self._move_on(numbers, settled)
        if len(txids) > 1 and txid - txids[-2] < numbers.grain:
            txids[-1], sequences[-1] = txid, sequence
            return
        txids.append(txid)
        sequences.append(sequence)
        if len(txids) > _MAX_POINTS_PER_PUBLISHER:
            del txids[-2::-2], sequences[-2::-2]  # keep every second one, and the newest
            numbers.grain = (txid - txids[0]) // len(txids)

    def settled(self, client: int, highest: int, settled: int) -> int:
        """Return the number up to which a publisher's messages are settled.

        Args:
            client: its hash.
            highest: its highest number.
            settled: the txid up to which everything is settled.
        """
        numbers = self._clients.get(client)
        if numbers is None:
            return highest
        self._move_on(numbers, settled)
        return numbers.settled if numbers.txids else highest

    def _move_on(self, numbers: _PublisherWatermark, settled: int) -> None:
        place = bisect_right(numbers.txids, settled)
        if place:
            numbers.settled = numbers.sequences[place - 1]
            del numbers.txids[:place], numbers.sequences[:place]
            numbers.grain = numbers.grain if numbers.txids else 0

    def _forget(self, settled: int) -> None:
        """Forget publishers with all messages settled."""
        self._clients = {
            client: numbers
            for client, numbers in self._clients.items()
            if numbers.txids and numbers.txids[-1] > settled
        }
        self._look_at = max(2 * len(self._clients), _FEW)
