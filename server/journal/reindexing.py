"""Makes indexes anew where records of a full file have been made again.

An index that was made while records were damaged does not have what these say. It is removed before
they change, so that none outlives what it was made from; readers do without it until it is there
again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.journal.lookup import Lookup
    from server.journal.upkeep import Upkeep


class Reindexing:
    """Removes indexes, and has them made.

    Args:
        upkeep: makes them.
        lookup: knows what is in them.
    """

    def __init__(self, upkeep: Upkeep, lookup: Lookup) -> None:
        self._upkeep: Final = upkeep
        self._lookup: Final = lookup
        self._waiting: set[int] = set()  # numbers of files whose indexes are to be made

    def drop(self, number: int) -> None:
        """Remove the indexes of a file, if it is full: records are going to change."""
        if self._upkeep.drop_indexes(number):
            self._lookup.forget(number)

    def make_again(self, number: int) -> None:
        """Have the indexes of a file made, if it is full now: records have changed."""
        if number not in self._waiting and self._upkeep.drop_indexes(number):
            self._waiting.add(number)
            self._upkeep.later(partial(self._make, number))

    def _make(self, number: int) -> None:
        self._waiting.discard(number)  # first: what changes from now on it may not see any more
        self._upkeep.complete(number)
        self._lookup.forget(number)
