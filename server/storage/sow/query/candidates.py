"""Candidates of a query: the records that SOW keys or a hash index leave to be tested.

Source: AMPS User Guide, Indexing SOW Topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import NamedTuple

from server.message_types.paths import Path
from server.storage.sow.indexes.hash_index import ascending_rows, key_texts, make_probe_texts
from server.storage.sow.record_table import RecordTable


class CandidateLookup(NamedTuple):
    """The rows that may match, found and not listed yet.

    Attributes:
        max_rows: how many they are at most.
        is_by_key: whether they are found by their SOW keys, each by itself.
        list_rows: returns them in ascending order.
    """

    max_rows: int
    is_by_key: bool
    list_rows: Callable[[], list[int]]


def find_lookup(
    table: RecordTable, restricted: Mapping[Path, tuple[str, ...]]
) -> CandidateLookup | None:
    """Return the rows that SOW keys or a hash index leave; None if they leave all.

    Args:
        table: the table to query, as it is now.
        restricted: the fields that the filter restricts to some texts.
    """
    if not restricted:
        return None
    if table.key_hash is not None:
        probe_texts = make_probe_texts(table.options.key_fields, restricted)
        spellings = None if probe_texts is None else key_texts(probe_texts)
        if spellings is not None:
            hash_values = table.key_hash.hash_values
            return CandidateLookup(
                prod(map(len, spellings)),
                True,
                lambda: _rows(table, set(map(hash_values, product(*spellings))), past=False),
            )
    for index in table.hash_indexes:
        probe_texts = make_probe_texts(index.fields, restricted)
        if probe_texts is not None:
            row_sets = index.find_row_sets(probe_texts)
            return CandidateLookup(
                sum(map(len, row_sets)), False, partial(ascending_rows, row_sets)
            )
    return None


def rows_of_keys(
    table: RecordTable,
    keys: Sequence[str],
    topics: Callable[[str], bool] | None,
    *,
    past: bool,
) -> list[int]:
    """Return the rows that may be the records of SOW keys, in ascending order.

    Args:
        table: the table to query.
        keys: the SOW keys that are queried.
        topics: the logical topics that are queried, None for all.
        past: past states are queried as well.
    """
    return _rows(table, table.identities(keys, topics), past=past)


def _rows(table: RecordTable, identities: Iterable[str], *, past: bool) -> list[int]:
    rows: list[int] = []
    for identity in identities:
        row = table.store.find_row(identity)
        if row is not None:
            rows.append(row)
        if past and table.history is not None:
            rows.extend(table.history.past_rows(identity))
    return sorted(rows)
