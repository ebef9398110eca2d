"""VALUE_LOOKUP: a field of a record of another topic, by the values of its lookup fields.

Source: AMPS User Guide, Special-Purpose Functions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from config_schema.spec import ModuleSpec
from server.expressions import semantics
from server.expressions.errors import ExpressionError
from server.expressions.functions.registry import Function, Parameter
from server.expressions.tokens import PathToken, tokenize
from server.expressions.tree import Expr, Literal
from server.message_types.base import Value
from server.message_types.paths import Path

EXPERIMENTAL_MODULE: Final = "libamps_udf_experimental.so"
LOOKUP_OPTION: Final = "Lookup"
VALUE_LOOKUP: Final = "VALUE_LOOKUP"


@dataclass(frozen=True, slots=True)
class ValueLookup:
    """One declared lookup.

    Attributes:
        name: the lookup's name, the first argument of VALUE_LOOKUP.
        message_type: the message type of the topic.
        topic: the topic of the records.
        result: the field whose value is the result.
        keys: the fields that must equal the given values, in order.
    """

    name: str
    message_type: str
    topic: str
    result: Path
    keys: tuple[Path, ...]


LookupFunction: TypeAlias = Callable[[ValueLookup, tuple[str, ...]], Value]
"""Finds a record by the values of its keys, as texts; returns the result field, or NULL."""


def parse_lookup(text: str) -> ValueLookup:
    """Read the module's Lookup option.

    `name;parameter count;message type;topic;return field;lookup field;...`

    Raises:
        ValueError: a part is missing or invalid; the message names it.
    """
    parts = [part.strip() for part in text.split(";")]
    if len(parts) < 6 or not all(parts):
        raise ValueError(
            "expected name;parameter count;message type;topic;return field;lookup field, "
            f"with as many lookup fields as parameters, found {text.strip()}"
        )
    name, count, message_type, topic, result, *keys = parts
    if count != str(len(keys)):
        raise ValueError(
            f"the lookup {name} declares {count} parameters and has {len(keys)} lookup fields"
        )
    return ValueLookup(name, message_type, topic, _path(result), tuple(_path(key) for key in keys))


def _path(text: str) -> Path:
    try:
        token, *_ = tokenize(text)
    except ExpressionError as error:
        raise ValueError(str(error)) from None
    if not isinstance(token.value, PathToken):
        raise ValueError(f"expected a field such as /name, found {text}")  # noqa: TRY004  # a configuration error
    return token.value.path


def declared_lookups(modules: Iterable[ModuleSpec]) -> list[ValueLookup]:
    """Return the lookups that the modules of a configuration declare, without invalid ones."""
    lookups: list[ValueLookup] = []
    for module in modules:
        if module.library_name == EXPERIMENTAL_MODULE:
            for text in module.options.all(LOOKUP_OPTION):
                with contextlib.suppress(ValueError):  # the check of the configuration reports it
                    lookups.append(parse_lookup(text))
    return lookups


def null_lookup(_lookup: ValueLookup, _keys: tuple[str, ...]) -> Value:
    """Return NULL: for expressions that are only checked."""
    return None


def value_lookup(lookups: Iterable[ValueLookup], find: LookupFunction) -> Function:
    """Make VALUE_LOOKUP.

    Args:
        lookups: the lookups that the module's options declare.
        find: looks up a record.
    """
    by_name: Mapping[str, ValueLookup] = {lookup.name: lookup for lookup in lookups}

    def look_up(name: Value, *values: Value) -> Value:
        lookup = by_name.get(semantics.text(name) or "")
        keys = tuple(text for value in values if (text := semantics.text(value)) is not None)
        if lookup is None or len(keys) != len(lookup.keys):
            return None
        return semantics.text(find(lookup, keys))

    def refuse(arguments: Sequence[Expr]) -> str | None:
        name = arguments[0]
        if not isinstance(name, Literal):
            return None  # known only when it is called
        lookup = by_name.get(name.value) if isinstance(name.value, str) else None
        if lookup is None:
            declared = ", ".join(by_name) or "none"
            return f"there is no lookup {name.value!r}: the module declares {declared}"
        if len(arguments) - 1 != len(lookup.keys):
            plural = "s" if len(lookup.keys) > 1 else ""
            return (
                f"the lookup {lookup.name} takes {len(lookup.keys)} value{plural}, "
                f"{len(arguments) - 1} given"
            )
        return None

    return Function(
        VALUE_LOOKUP,
        "Lookups",
        "A field of a record of another topic: the name of a declared lookup, then its values.",
        look_up,
        (Parameter.ANY, Parameter.ANY),
        variadic=Parameter.ANY,
        is_deterministic=False,
        is_lookup=True,
        find_argument_error=refuse,
    )
