"""Queries of somebody who may see some of the records only.

How many others there are is not for them to know: what was tested is what was found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.sow.query import OpenQuery
    from server.sow.records import Record


class Discreet:
    """A query that does not tell how many records it has tested. See `OpenQuery`.

    Args:
        query: the query.
    """

    def __init__(self, query: OpenQuery) -> None:
        self._query: Final = query

    @property
    def topic_matches(self) -> int:
        """The records that match so far."""
        return self._query.matches

    @property
    def matches(self) -> int:
        """See `OpenQuery`."""
        return self._query.matches

    def __iter__(self) -> Iterator[Sequence[Record]]:
        """See `OpenQuery`."""
        return iter(self._query)

    def close(self) -> None:
        """See `OpenQuery`."""
        self._query.close()
