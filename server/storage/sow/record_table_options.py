"""The options of a record table: indexes, keys, expiration, history."""

from __future__ import annotations

from dataclasses import dataclass

from server.expressions.functions.builtin import BUILTINS
from server.expressions.functions.registry import Functions
from server.message_types.paths import Path


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
