"""The options of a record table: indexes, keys, expiration, history."""

from __future__ import annotations

from dataclasses import dataclass

from config_schema.spec.sow import TopicSpec
from server.expressions import ContextKind, parse_field, parse_identifier
from server.expressions.functions.builtin import BUILTINS
from server.expressions.functions.registry import Functions
from server.message_types.paths import Path, overlap
from server.storage.sow.keys.key_source import EVENTS


@dataclass(frozen=True, slots=True)
class RecordTableOptions:
    """The options of a record table.

    Attributes:
        hash_indexes: the fields of each hash index.
        memo_fields: fields that are indexed before any query uses them.
        key_fields: the fields that SOW keys are made from, if queries may find records by them.
        key_domain: the key domain, where there are `key_fields`.
        has_pattern: the table holds records of many logical topics.
        has_expiration: records expire at their stamps.
        history_window_ns: retention of past states, in nanoseconds; None for no history.
        history_granularity_ns: the least time between past states, in nanoseconds.
        functions: implementations of the functions that expressions call.
    """

    hash_indexes: tuple[tuple[Path, ...], ...] = ()
    memo_fields: tuple[Path, ...] = ()
    key_fields: tuple[Path, ...] = ()
    key_domain: str = ""
    has_pattern: bool = False
    has_expiration: bool = False
    history_window_ns: int | None = None
    history_granularity_ns: int = 0
    functions: Functions = BUILTINS


def table_options(spec: TopicSpec, functions: Functions) -> RecordTableOptions:
    """Return how a topic's records are indexed, and their lifetimes."""
    keys = tuple(field_path(text) for text in spec.keys)
    enriched = {
        parse_field(text, ContextKind.ENRICHMENT, functions).destination for text in spec.enrichment
    }
    is_findable = not (
        spec.name.startswith(EVENTS)
        or any(overlap(key, field) for key in keys for field in enriched)
    )
    return RecordTableOptions(
        hash_indexes=tuple(tuple(map(field_path, index)) for index in spec.hash_indexes),
        memo_fields=tuple(field_path(text) for text in spec.indexes),
        key_fields=keys if is_findable and spec.key_generator is None else (),
        key_domain=spec.key_domain,
        has_pattern=spec.pattern is not None,
        has_expiration=spec.expiration_enabled,
        history_window_ns=spec.history.window if spec.history else None,
        history_granularity_ns=spec.history.granularity if spec.history else 0,
        functions=functions,
    )


def field_path(text: str) -> Path:
    """Return the path of a field that the configuration names."""
    return parse_identifier(text, ContextKind.PATH).path
