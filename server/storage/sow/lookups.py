"""Finds the records for VALUE_LOOKUP, by hash indexes over the lookup fields.

The result of a lookup is up to date: its index follows each change of the topic. A field matches
a value if both are the same text.

Source: AMPS User Guide, Special-Purpose Functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from server.expressions import semantics
from server.expressions.functions.lookups import ValueLookup
from server.message_types.base import Extractor, Value
from server.storage.sow.indexes.hash_index import HashIndex
from server.storage.sow.record_table import RecordTable

if TYPE_CHECKING:
    from server.topics.record_source import RecordSource


class _LookupIndex(NamedTuple):
    """A lookup with an existing topic.

    Attributes:
        table: the topic's records.
        topic: the logical topic of the records to search, None for all.
        hash_index: the index over the lookup fields.
        read_keys: reads the lookup fields.
        read_result: reads the field to return.
    """

    table: RecordTable
    topic: str | None
    hash_index: HashIndex
    read_keys: Extractor
    read_result: Extractor


class ValueLookups:
    """The lookups of an instance. Before they are opened, nothing is found."""

    def __init__(self) -> None:
        self._open_lookups: Final[dict[ValueLookup, _LookupIndex]] = {}

    def open(
        self,
        declared: Iterable[ValueLookup],
        find_topic: Callable[[str, str], RecordSource | None],
    ) -> None:
        """Open the lookups with existing topics, instead of those opened before.

        Args:
            declared: the lookups.
            find_topic: finds the topic of a message type and name.
        """
        self._open_lookups.clear()
        for lookup in declared:
            topic = find_topic(lookup.message_type, lookup.topic)
            if topic is not None:
                table = topic.table
                self._open_lookups[lookup] = _LookupIndex(
                    table,
                    lookup.topic if table.options.has_pattern else None,
                    table.ensure_hash_index(lookup.keys),
                    table.extractor(lookup.keys),
                    table.extractor((lookup.result,)),
                )

    def find(self, lookup: ValueLookup, keys: tuple[str, ...]) -> Value:
        """Return the field of the record with these texts as lookup fields; NULL if none has."""
        index = self._open_lookups.get(lookup)
        if index is None:
            return None
        for row in index.hash_index.find_candidates(tuple((key,) for key in keys)):
            record = index.table.store.read_record(row)
            texts = tuple(map(semantics.text, index.read_keys(record.body)))
            if texts == keys and index.topic in (None, record.topic):
                return index.read_result(record.body)[0]
        return None
