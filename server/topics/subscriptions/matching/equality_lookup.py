"""Matching for many messages at once, if each filter is found by the value of one field.

Of a hundred thousand filters hardly any is in the processor's caches, and nearly all the time per
message is memory latency: for the entry of the dictionary, for the filter, for its subscription.
Message by message, these latencies add up. So all messages of a batch take each step together: the
cache misses of one step are independent, and overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.message_types.base import Value
    from server.message_types.bulk import BulkExtractor

MAX_LOOKUP_BATCH_SIZE: Final = 64
"""Messages per step, so that prefetched entries stay in the caches until they are used."""

_UNDECIDED: Final = object()


class EqualityLookup:
    """Finds the matches of messages by the value of a field.

    Args:
        read_values: reads that field.
        find: returns the matches of a value. Raises TypeError for an array.
        find_all: returns the matches of each of many values, and prefetches them; raises the same.
    """

    def __init__(
        self,
        read_values: BulkExtractor,
        find: Callable[[Value], object],
        find_all: Callable[[Sequence[Value]], Sequence[object]],
    ) -> None:
        self._read_values = read_values
        self._find = find
        self._find_all = find_all

    def find(self, bodies: Sequence[bytes]) -> Sequence[object]:
        """Return the matches of messages, at least one.

        Returns:
            The matches of each message's value; for an array, a private placeholder object.
        """
        values = self._read_values(bodies)[0]
        try:
            return self._find_all(values)
        except TypeError:
            return [self._find_scalar(value) for value in values]

    def _find_scalar(self, value: Value) -> object:
        return _UNDECIDED if isinstance(value, list) else self._find(value)
