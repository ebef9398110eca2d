"""Candidates of a query: the records that SOW keys or a hash index leave to be tested.

Source: AMPS User Guide, Indexing SOW Topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

from server.message_types.paths import Path
from server.storage.sow.indexes.hash_index import HashIndex, ProbeTexts, key_texts, make_probe_texts
from server.storage.sow.record_table import RecordTable


def candidates(
    table: RecordTable,
    restricted: Mapping[Path, tuple[str, ...]],
    keys: Sequence[str] | None,
    topics: Callable[[str], bool] | None,
    *,
    past: bool,
) -> list[int] | None:
    """Return the rows that may match, in ascending order; None if all rows have to be tested.

    Args:
        table: the table to query.
        restricted: the fields that the filter restricts to some texts.
        keys: the SOW keys that are queried, None for all.
        topics: the logical topics that are queried, None for all.
        past: past states are queried, which are in no hash index.
    """
    if keys is not None:
        return _rows(table, table.identities(keys, topics), past=past)
    if past or not restricted:
        return None
    spellings = _key_spellings(table, restricted)
    if spellings is not None and table.key_hash is not None:
        identities = set(map(table.key_hash.hash_values, product(*spellings)))
        return _rows(table, identities, past=False)
    found = _find_index(table, restricted)
    return None if found is None else found.hash_index.find_candidates(found.probe_texts)


def max_candidates(table: RecordTable, restricted: Mapping[Path, tuple[str, ...]]) -> int | None:
    """Return how many rows SOW keys or a hash index leave at most; None if they leave all."""
    spellings = _key_spellings(table, restricted)
    if spellings is not None:
        return prod(map(len, spellings))
    return max_index_candidates(table, restricted)


def max_index_candidates(
    table: RecordTable, restricted: Mapping[Path, tuple[str, ...]]
) -> int | None:
    """Return how many rows a hash index leaves at most; None if keys are used, or there is none."""
    if _key_spellings(table, restricted) is not None:
        return None
    found = _find_index(table, restricted)
    return None if found is None else found.hash_index.max_candidates(found.probe_texts)


class _IndexLookup(NamedTuple):
    hash_index: HashIndex
    probe_texts: ProbeTexts


def _key_spellings(
    table: RecordTable, restricted: Mapping[Path, tuple[str, ...]]
) -> ProbeTexts | None:
    """Return the texts of the key fields to look up; None if keys do not leave few."""
    if table.key_hash is None:
        return None
    probe_texts = make_probe_texts(table.options.key_fields, restricted)
    return None if probe_texts is None else key_texts(probe_texts)


def _find_index(
    table: RecordTable, restricted: Mapping[Path, tuple[str, ...]]
) -> _IndexLookup | None:
    for index in table.hash_indexes:
        probe_texts = make_probe_texts(index.fields, restricted)
        if probe_texts is not None:
            return _IndexLookup(index, probe_texts)
    return None


def _rows(table: RecordTable, identities: Iterable[str], *, past: bool) -> list[int]:
    rows: list[int] = []
    for identity in identities:
        row = table.store.find_row(identity)
        if row is not None:
            rows.append(row)
        if past and table.history is not None:
            rows.extend(table.history.past_rows(identity))
    return sorted(rows)
