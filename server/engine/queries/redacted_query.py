"""Queries of users with read permission for some of the records only.

Such a user must not learn the number of the others, so the number of records tested is reported as
the number of matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.storage.sow.query.query import OpenQuery
    from server.storage.sow.records import Record


class RedactedQuery:
    """A query that does not disclose the number of records tested. See `OpenQuery`.

    Args:
        query: the query.
    """

    def __init__(self, query: OpenQuery) -> None:
        self._query: Final = query

    @property
    def topic_matches(self) -> int:
        """The number of matches so far."""
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
