"""A query's view while records change: the state at its start.

A query reads the topic in slices, and publishes run between them. Before a row that a query has
yet to read is changed, its record is saved for the query; a second change saves nothing. Rows
added after the start are beyond the query's end, or saved as empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from server.storage.sow.indexes.memo_index import MEMO_BLOCK_ROWS
from server.storage.sow.records import Record

_NOTHING: Final[Mapping[int, Record | None]] = {}


class QuerySnapshot:
    """The saved records of one query.

    Args:
        rows: the number of rows at the start.
        keep_all: the query returns to rows that it has passed.

    Attributes:
        position: rows before this one have been read; they are not saved unless `keep_all`.
    """

    __slots__ = ("_keep_all", "_saved", "position", "rows")

    def __init__(self, rows: int, *, keep_all: bool) -> None:
        self.rows: Final = rows
        self.position = 0
        self._keep_all = keep_all
        self._saved: dict[int, dict[int, Record | None]] = {}

    def changing(self, row: int, record: Record | None) -> None:
        """Save `record`, None for an empty row, of a row that is changing or has just changed."""
        if row < self.rows and (self._keep_all or row >= self.position):
            self._saved.setdefault(row // MEMO_BLOCK_ROWS, {}).setdefault(row, record)

    def saved(self, block: int) -> Mapping[int, Record | None]:
        """Return the saved records of a block's rows."""
        return self._saved.get(block, _NOTHING)

    def passed(self, position: int) -> None:
        """Note that rows before a position have been read."""
        if not self._keep_all:
            self._saved.pop(position // MEMO_BLOCK_ROWS - 1, None)
        self.position = position
