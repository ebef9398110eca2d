"""Which filters many messages match, where each filter is found by the value of one field.

Of a hundred thousand filters hardly one is in the processor's caches, and nearly all that a message
takes is waiting for memory: for the entry of the dictionary, for the filter, for its subscription.
Message by message, one waits after the other. So all messages of a run take each step together: the
waits for one step do not depend on each other, and pass at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.message_types.base import Value
    from server.message_types.bulk import BulkExtractor

MOST_AT_ONCE: Final = 64
"""Messages for which what has been fetched stays in the caches until it is used."""

_UNDECIDED: Final = object()


class ValueMatching:
    """Finds what messages match by the value of a field.

    Args:
        read: reads that field.
        find: gives what is found by a value. Raises TypeError for an array.
        find_all: gives what is found by each of many, and has it fetched; raises the same.
    """

    __slots__ = ("_find", "_find_all", "_read")

    def __init__(
        self,
        read: BulkExtractor,
        find: Callable[[Value], object],
        find_all: Callable[[Sequence[Value]], Sequence[object]],
    ) -> None:
        self._read = read
        self._find = find
        self._find_all = find_all

    def find(self, bodies: Sequence[bytes]) -> Sequence[object]:
        """Find what messages match, at least one.

        Returns:
            For each what its value leads to; if that is an array, nothing that anybody knows.
        """
        values = self._read(bodies)[0]
        try:
            return self._find_all(values)
        except TypeError:
            return [self._find_if_single(value) for value in values]

    def _find_if_single(self, value: Value) -> object:
        return _UNDECIDED if isinstance(value, list) else self._find(value)
