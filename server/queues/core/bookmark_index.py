"""Index of bookmarks: sequence numbers to offsets, per publisher.

Theory of operation. The log appends a publisher's messages in the order of its sequence numbers,
and a queue appends them in log order. So two ascending arrays per publisher, sequences and offsets,
are an index that stays sorted by appending. Most publishers number their messages without gaps, so
the first guess is the position that the number would have then, counted from the end; a binary
search finds the others. A number that is not ascending goes into a separate dictionary.

Entries that have left the queue stay in the arrays until they are the larger part.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Final

from server.queues.core.events import PublisherSequence

NOWHERE: Final = -1
"""The offset of no message."""

_MIN_COMPACTED: Final = 1024
_MARK: Final = re.compile(r"\s*(\d{1,20})\|(\d{1,20})\|[0-9TZ.]*\s*", re.ASCII)
_CLIENT: Final = re.compile(r"(\d{1,20})\|", re.ASCII)
_PAIR: Final = re.compile(r"(\d+)\|(\d+)\|", re.ASCII)
_LIST: Final = re.compile(r"\d{1,20}\|\d{1,19}\|(?:,\d{1,20}\|\d{1,19}\|)*", re.ASCII)
"""The usual form of lists, which is parsed in one step."""
_MAX_UINT64: Final = 2**64 - 1


class PublisherIndex:
    """The entries of one publisher.

    Attributes:
        client_hash: its client hash.
        number: identifies the publisher in columns.
        removed_count: entries that have left the queue and are still in the arrays.
        max_removed: the limit of `removed_count`, beyond which `compact` is called.
        last_sequence: the highest sequence number that has arrived here, -1 if there is none.
    """

    def __init__(self, client_hash: int, number: int) -> None:
        self.client_hash = client_hash
        self.number = number
        self.last_sequence = -1
        self._sequences = array("Q")
        self._offsets = array("Q")
        self._unordered_offsets: dict[int, int] = {}
        self.removed_count = 0
        self.max_removed = _MIN_COMPACTED

    @property
    def is_idle(self) -> bool:
        """True if none of its entries is in the queue."""
        return self.removed_count >= len(self._sequences) + len(self._unordered_offsets)

    def extend(self, sequences: Sequence[int], first_offset: int) -> None:
        """Append entries at consecutive offsets."""
        if (
            len(sequences) == 1
            or sequences[0] <= self.last_sequence
            or not _is_ascending(sequences)
        ):
            self._append_each(sequences, first_offset)
            return
        self._sequences.extend(sequences)
        self._offsets.extend(range(first_offset, first_offset + len(sequences)))
        self.last_sequence = sequences[-1]

    def _append_each(self, sequences: Sequence[int], first_offset: int) -> None:
        for offset, sequence in enumerate(sequences, first_offset):
            if sequence > self.last_sequence:
                self._sequences.append(sequence)
                self._offsets.append(offset)
                self.last_sequence = sequence
            else:
                self._unordered_offsets[sequence] = offset

    def find(self, sequence: int) -> int | None:
        """Return the offset of a message, which may have left the queue; None if there is none."""
        sequences = self._sequences
        if sequences:
            guess = len(sequences) - 1 - (self.last_sequence - sequence)
            if 0 <= guess < len(sequences) and sequences[guess] == sequence:
                return self._offsets[guess]
            if sequence <= _MAX_UINT64:
                index = bisect_left(sequences, sequence)
                if index < len(sequences) and sequences[index] == sequence:
                    return self._offsets[index]
        return self._unordered_offsets.get(sequence) if self._unordered_offsets else None

    def find_all(self, sequences: list[int]) -> Sequence[int]:
        """Return the offsets of several messages, NOWHERE for missing ones.

        They are a range if they are consecutive.
        """
        own, offsets = self._sequences, self._offsets
        # index of a number minus the number, without gaps
        index_shift = len(own) - 1 - self.last_sequence
        first, last = min(sequences), max(sequences)
        if (
            first + index_shift < 0
            or last > self.last_sequence
            or own[first + index_shift] != first  # else no gap follows, as numbers ascend
        ):
            return self._find_with_gaps(sequences)
        offset_shift = offsets[first + index_shift] - first
        if offsets[last + index_shift] != last + offset_shift:
            return [offsets[sequence + index_shift] for sequence in sequences]
        consecutive = range(first, last + 1)
        if len(sequences) == len(consecutive) and sequences == list(consecutive):
            return range(first + offset_shift, last + 1 + offset_shift)
        return [sequence + offset_shift for sequence in sequences]

    def _find_with_gaps(self, sequences: list[int]) -> Sequence[int]:
        """Return the offsets of several messages, of a publisher to several queues; see `find_all`.

        Nearly always they follow one another in this queue.
        """
        start = bisect_left(self._sequences, min(sequences[0], _MAX_UINT64))
        end = start + len(sequences)
        if self._sequences[start:end].tolist() == sequences:
            offsets = self._offsets[start:end]
            first, last = offsets[0], offsets[-1]
            return range(first, last + 1) if last - first == end - start - 1 else offsets.tolist()
        offsets_found = map(self.find, sequences)
        return [NOWHERE if offset is None else offset for offset in offsets_found]

    def compact(self, is_present: Callable[[int], bool], oldest: int) -> None:
        """Drop the entries that have left the queue, if they are the larger part.

        Args:
            is_present: returns whether the message at an offset has not left.
            oldest: all messages at offsets before it have left; these are the majority.
        """
        removed_prefix = bisect_left(self._offsets, oldest)
        del self._sequences[:removed_prefix], self._offsets[:removed_prefix]
        self.removed_count -= removed_prefix
        size = len(self._sequences) + len(self._unordered_offsets)
        if 2 * self.removed_count > size:
            kept = [index for index, offset in enumerate(self._offsets) if is_present(offset)]
            self._sequences = array("Q", map(self._sequences.__getitem__, kept))
            self._offsets = array("Q", map(self._offsets.__getitem__, kept))
            self._unordered_offsets = {
                sequence: offset
                for sequence, offset in self._unordered_offsets.items()
                if is_present(offset)
            }
            self.removed_count = 0
            size = len(kept) + len(self._unordered_offsets)
        self.max_removed = max(size // 2, _MIN_COMPACTED)


def _is_ascending(sequences: Sequence[int]) -> bool:
    if isinstance(sequences, range):
        return sequences.step > 0
    return all(map(int.__lt__, sequences, sequences[1:]))


def parse_bookmarks(text: str) -> tuple[list[PublisherSequence], list[str]]:
    """Parse a list of bookmarks, `client|sequence|`, separated by commas.

    Returns:
        The bookmarks, and the malformed parts.
    """
    first = _CLIENT.match(text)
    if first is not None and text[-1] == "|" and text.isascii():  # perhaps all of one publisher
        numbers = text[first.end() : -1].split("|," + first[0])
        client = int(first[1])
        if "".join(numbers).isdigit() and "" not in numbers and client <= _MAX_UINT64:
            sequences = list(map(int, numbers))
            if max(sequences) <= _MAX_UINT64:
                return list(zip(repeat(client), sequences, strict=False)), []
    if _LIST.fullmatch(text) is not None:
        pairs = _PAIR.findall(text)
        clients = {client: int(client) for client in {client for client, _ in pairs}}
        if max(clients.values()) <= _MAX_UINT64:
            return [(clients[client], int(sequence)) for client, sequence in pairs], []
    return _parse_singly(text)


def _parse_singly(text: str) -> tuple[list[PublisherSequence], list[str]]:
    bookmarks: list[PublisherSequence] = []
    malformed: list[str] = []
    for part in text.split(","):
        match = _MARK.fullmatch(part)
        if match is not None:
            client, sequence = int(match[1]), int(match[2])
            if client <= _MAX_UINT64 and sequence <= _MAX_UINT64:
                bookmarks.append((client, sequence))
                continue
        if part.strip() or not text.strip():
            malformed.append(part.strip())
    return bookmarks, malformed


def duplicate_bookmarks(bookmarks: Sequence[PublisherSequence]) -> list[PublisherSequence]:
    """Return the duplicates: each occurrence of a bookmark after its first."""
    remaining = Counter(bookmarks)
    remaining.subtract(set(bookmarks))
    return list(remaining.elements())
