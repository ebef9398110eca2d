"""The dedup window: the messages that an instance has of each publisher.

A message is identified by its bookmark: the identity of its publisher, and a sequence number. An
instance keeps the highest number of each identity, as for its own publishers, and here the *gaps*
below it: numbers that have not arrived. A message from another instance is new if its number is
above the highest, or in a gap: publishers move from one instance to another, and the messages that
one instance has missed arrive when the instances connect again.

Gaps are bounded. All numbers in a forgotten gap count as received.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from server.replication.core.columns import is_ascending
from server.storage.journal.publisher_table import is_server_made
from server.util.ranges import Ranges

MAX_GAPS_PER_PUBLISHER: Final = 4096
MAX_GAPS: Final = 131_072


class PublisherWindow(NamedTuple):
    """The messages that an instance has of one publisher.

    Attributes:
        client: the identity.
        highest: its highest number.
        gaps: the first and the last number of each gap below that.
    """

    client: int
    highest: int
    gaps: Sequence[tuple[int, int]] = ()


class DedupWindow:
    """The sequence numbers received of each identity.

    Args:
        highest_sequence: returns the highest number of an identity, 0 for none. The journal keeps
            them (`Journal.last_sequence`).
        max_gaps_per_publisher: the maximum number of stored gaps of one identity.
        max_gaps: the maximum number of all stored gaps.

    Attributes:
        highest_sequence: see above; may be replaced.
    """

    def __init__(
        self,
        highest_sequence: Callable[[int], int],
        max_gaps_per_publisher: int = MAX_GAPS_PER_PUBLISHER,
        max_gaps: int = MAX_GAPS,
    ) -> None:
        self.highest_sequence = highest_sequence
        self._max_gaps_per_publisher = max_gaps_per_publisher
        self._max_gaps = max_gaps
        self._gaps: dict[int, Ranges] = {}
        self._gap_count = 0

    def new_positions(self, client: int, sequences: Sequence[int]) -> Sequence[int]:
        """Return the positions of the new numbers of an identity; of equal ones the first."""
        highest = self.highest_sequence(client)
        gaps = self._gaps.get(client)
        if isinstance(sequences, range) or len(sequences) == 1 or is_ascending(sequences):
            if sequences[0] > highest:
                return range(len(sequences))
            if gaps is None and sequences[-1] <= highest:
                return ()
        new: list[int] = []
        seen: set[int] = set()
        for position, sequence in enumerate(sequences):
            if (sequence > highest or (gaps is not None and sequence in gaps)) and (
                sequence not in seen
            ):
                seen.add(sequence)
                new.append(position)
        return new

    def record_sequences(self, client: int, highest: int, sequences: Sequence[int]) -> None:
        """Record the numbers of messages that have been recorded, from any sender.

        Args:
            client: the identity.
            highest: its highest number before these.
            sequences: the numbers.
        """
        is_range = isinstance(sequences, range)
        if is_range and sequences[0] == highest + 1:
            return
        gaps = self._gaps.get(client)
        if gaps is None:
            gaps = Ranges()
        count = len(gaps)
        for sequence in sequences[:1] if is_range else sequences:
            if sequence > highest + 1:
                gaps.add(highest + 1, sequence - 1)
            elif sequence <= highest:
                gaps.remove(sequence, sequences[-1] if is_range else sequence)
            highest = max(highest, sequence)
        self._store_gaps(client, gaps, count)

    def _store_gaps(self, client: int, gaps: Ranges, count: int) -> None:
        """Store the gaps of an identity, which were `count`, within limits."""
        self._gaps.pop(client, None)
        if gaps:
            self._gaps[client] = gaps  # behind all others: the longest untouched are in front
        while len(gaps) > self._max_gaps_per_publisher:
            gaps.pop_first()
        self._gap_count += len(gaps) - count
        while self._gap_count > self._max_gaps:
            oldest = next(iter(self._gaps))
            self._gaps[oldest].pop_first()
            self._gap_count -= 1
            if not self._gaps[oldest]:
                del self._gaps[oldest]

    def restore(self, windows: Iterable[PublisherWindow]) -> None:
        """Restore gaps that have been stored and still exist."""
        for client, _, pairs in windows:
            if pairs:
                self._store_gaps(client, Ranges(pairs), 0)

    def missing_ranges(self, client: int, first: int, last: int) -> list[tuple[int, int]]:
        """Return the ranges of an identity's numbers, from `first` to `last`, that are missing."""
        highest = self.highest_sequence(client)
        missing = [
            (max(first, start), min(last, end))
            for start, end in self._gaps.get(client, ())
            if start <= last and end >= first
        ]
        return [*missing, (max(first, highest + 1), last)] if last > highest else missing

    def received_ranges(self, client: int, first: int, last: int) -> list[tuple[int, int]]:
        """Return the ranges of an identity's numbers, from `first` to `last`, that are here."""
        received = Ranges([(first, last)])
        for gap in self.missing_ranges(client, first, last):
            received.remove(*gap)
        return [*received]

    def gaps(self, client: int) -> Sequence[tuple[int, int]]:
        """Return the gaps of an identity."""
        gaps = self._gaps.get(client)
        return () if gaps is None else tuple(gaps)

    def publisher_windows(self, highest: Mapping[int, int]) -> Iterator[PublisherWindow]:
        """Yield a `PublisherWindow` for each identity of a table."""
        for client, sequence in highest.items():
            yield PublisherWindow(client, sequence, self.gaps(client))


def make_peer_dedup_window(windows: Iterable[PublisherWindow]) -> DedupWindow:
    """Return the messages that another instance has, from its `DedupState`."""
    highest_sequences: dict[int, int] = {}
    windows_with_gaps = []
    for window in windows:
        highest_sequences[window.client] = window.highest
        windows_with_gaps.append(window)
    dedup_window = DedupWindow(lambda client: highest_sequences.get(client, 0))
    dedup_window.restore(windows_with_gaps)
    return dedup_window


def is_identity_made_by(instance: str, client: int, source_txid: int) -> bool:
    """Return whether an instance made an identity, for a publisher that gives no numbers.

    Args:
        instance: the instance's name.
        client: the identity.
        source_txid: as the entry has it: for such a publisher its own client hash.
    """
    return is_server_made(client, source_txid, instance)
