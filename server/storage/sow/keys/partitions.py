"""Parts of a topic: the records with one remainder of their key hashes modulo some number.

A client that reads a topic with several queries at once divides it so: `SOW_KEY_HASH() % 4 = 0` is
a quarter of all records. The hash of a row's key is cached between such queries for as long as the
row belongs to that record; so a part costs its share, and not a read of every record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from server.expressions.tree import (
    And,
    Arithmetic,
    Call,
    Comparison,
    Expr,
    IsNull,
    Literal,
    Or,
    conjuncts,
)
from server.storage.sow.keys.key_source import key_hash
from server.storage.sow.records import Record
from server.storage.sow.store import RecordStore

_HASH: Final = Call("SOW_KEY_HASH", ())
_MAX_PARTS: Final = 1 << 32
"""Limit of the modulus: filter arithmetic does not distinguish all 64-bit numbers."""


class KeyPartition(NamedTuple):
    """The records with a given remainder of the key's hash for a modulus.

    Attributes:
        modulus: the divisor.
        remainder: the remainder.
    """

    modulus: int
    remainder: int

    def restrict(self, test: Callable[[Record], bool]) -> Callable[[Record], bool]:
        """Return a test that also requires records to belong to the part."""
        modulus, remainder = self
        return lambda record: key_hash(record.key) % modulus == remainder and test(record)

    def select_hashes(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which hashes are of keys in the part."""
        mask: NDArray[np.bool_] = hashes % np.uint64(self.modulus) == self.remainder
        return mask


def without_part(expr: Expr | None) -> tuple[Expr | None, KeyPartition | None]:
    """Separate a filter into its part and the rest.

    Args:
        expr: the filter.

    Returns:
        The rest of the filter, None for none; and its first part, None if it has none.
    """
    terms = () if expr is None else conjuncts(expr)
    for index, term in enumerate(terms):
        part = _part(term)
        if part is not None:
            rest = (*terms[:index], *terms[index + 1 :])
            return And(rest) if len(rest) > 1 else rest[0] if rest else None, part
    return expr, None


def _part(term: Expr) -> KeyPartition | None:
    """Return the part that a term selects, None if it selects none.

    Every record has a key, so a part that includes records without one is the same.
    """
    match term:
        case Or((choice, IsNull(operand))) if operand == _HASH:
            return _part(choice)
        case Comparison("=", Arithmetic("%", left, Literal(int(modulus))), Literal(int(remainder))):
            if left == _HASH and 0 < modulus <= _MAX_PARTS:
                return KeyPartition(modulus, remainder)
    return None


class KeyHashes:
    """The hashes of the keys of rows, each read when it is first needed.

    Args:
        store: the store of the records.
    """

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._hashes: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._is_known: NDArray[np.bool_] = np.zeros(0, np.bool_)

    def invalidate_row(self, row: int) -> None:
        """Discard the hash of a row, which belongs to another record from now on."""
        if row < len(self._is_known):
            self._is_known[row] = False

    def count_unread(self, rows: slice, mask: NDArray[np.bool_]) -> int:
        """Return the number of keys that would have to be read.

        Args:
            rows: which rows.
            mask: for each row, whether it has a record.
        """
        return int(np.count_nonzero(mask) - np.count_nonzero(mask & self._known_rows(rows)))

    def read_hashes(self, rows: slice, mask: NDArray[np.bool_]) -> NDArray[np.uint64]:
        """Return the hash of each row with a record; arbitrary values elsewhere.

        Args:
            rows: which rows.
            mask: for each row, whether it has a record.

        Raises:
            RecordStoreError: a record is lost.
        """
        read_record = self._store.read_record
        for offset in np.flatnonzero(mask & ~self._known_rows(rows)).tolist():
            row = rows.start + offset
            self._hashes[row] = key_hash(read_record(row).key)
            self._is_known[row] = True
        return self._hashes[rows]

    def _known_rows(self, rows: slice) -> NDArray[np.bool_]:
        if rows.stop > len(self._is_known):
            added_count = max(rows.stop, self._store.row_capacity) - len(self._is_known)
            self._hashes = np.concatenate([self._hashes, np.zeros(added_count, np.uint64)])
            self._is_known = np.concatenate([self._is_known, np.zeros(added_count, np.bool_)])
        return self._is_known[rows]
