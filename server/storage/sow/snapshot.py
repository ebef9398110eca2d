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
        row_count: the number of rows at the start.
        keep_all: the query returns to rows that it has passed.

    Attributes:
        read_position: rows before this one have been read; they are not saved unless `keep_all`.
    """

    __slots__ = ("_keep_all", "_saved_by_block", "read_position", "row_count")

    def __init__(self, row_count: int, *, keep_all: bool) -> None:
        self.row_count: Final = row_count
        self.read_position = 0
        self._keep_all = keep_all
        self._saved_by_block: dict[int, dict[int, Record | None]] = {}

    def save_before_change(self, row: int, record: Record | None) -> None:
        """Save `record`, None for an empty row, of a row that is changing or has just changed."""
        if row < self.row_count and (self._keep_all or row >= self.read_position):
            self._saved_by_block.setdefault(row // MEMO_BLOCK_ROWS, {}).setdefault(row, record)

    def saved_records(self, block: int) -> Mapping[int, Record | None]:
        """Return the saved records of a block's rows."""
        return self._saved_by_block.get(block, _NOTHING)

    def mark_read(self, position: int) -> None:
        """Note that rows before a position have been read."""
        if not self._keep_all:
            self._saved_by_block.pop(position // MEMO_BLOCK_ROWS - 1, None)
        self.read_position = position
