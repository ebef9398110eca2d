"""The registry of functions: names, parameters, determinism and implementation.

A registry is immutable: adding functions returns a new one. Names are looked up in upper case. An
implementation is called with its arguments already converted to the kinds of its parameters, so it
handles one kind of value only; a NULL for a parameter that converts makes the result NULL without a
call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from typing import Literal as OneOf

from server.expressions import semantics
from server.expressions.tree import Expr
from server.message_types.base import Value


class Parameter(Enum):
    """The conversion of an argument before the call of the implementation."""

    TEXT = "text"
    """As the bytes of its text."""
    NUMBER = "number"
    """As an integer or a double, NaN for a text that is no number."""
    INTEGER = "integer"
    """As an integer, truncated towards zero; NULL for NaN and infinity."""
    ANY = "any value"
    """As it is, NULL included; an array as its first element."""
    ARRAY = "array"
    """As it is, arrays whole."""
    PATTERN = "pattern"
    """A quoted regular expression, compiled."""


_CONVERSIONS: Final[dict[Parameter, Callable[[Value], Any]]] = {
    Parameter.TEXT: semantics.octets,
    Parameter.NUMBER: semantics.number,
    Parameter.INTEGER: semantics.integer,
}
"""Conversions that turn NULL into None, which ends the call. The compilers handle the others."""

Implementation = Callable[..., Value]


@dataclass(frozen=True, slots=True)
class Function:
    """One scalar function.

    Attributes:
        name: in upper case.
        parameters: the required parameters.
        optional: further ones that may be left out, from the right.
        variadic: the parameter that may follow any number of times, if any.
        implementation: takes the converted arguments, returns a value; None where
            `context_attribute` is set.
        context_attribute: the attribute of the message context that is the result.
        summary: one line for the reference.
        section: the heading of its documentation.
        is_deterministic: the function returns the same value for the same message.
        is_lookup: the function reads other records, which only preprocessing and enrichment may do.
        find_argument_error: returns the error in the arguments of a call, or None; None if only the
            number of arguments is checked.
    """

    name: str
    section: str
    summary: str
    implementation: Implementation | None = None
    parameters: tuple[Parameter, ...] = ()
    optional: tuple[Parameter, ...] = ()
    variadic: Parameter | None = None
    context_attribute: str | None = None
    is_deterministic: bool = True
    is_lookup: bool = False
    find_argument_error: Callable[[Sequence[Expr]], str | None] | None = None

    @property
    def minimum(self) -> int:
        """The minimum number of arguments."""
        return len(self.parameters)

    @property
    def maximum(self) -> int | None:
        """The maximum number of arguments; None if there is no limit."""
        return None if self.variadic else len(self.parameters) + len(self.optional)

    def parameter(self, index: int) -> Parameter | None:
        """Return the parameter at an index, from 0; None beyond the last."""
        parameters = self.parameters + self.optional
        return parameters[index] if index < len(parameters) else self.variadic

    def bind(self, count: int) -> Implementation:
        """Return the implementation for a number of arguments, with their conversions.

        Args:
            count: the number of arguments of the call, within `minimum` and `maximum`.

        Returns:
            A function of `count` arguments: values, arrays where the parameter takes them, compiled
            patterns.
        """
        implementation = self.implementation
        if implementation is None:
            raise TypeError(f"{self.name} is read from the message context, not called")
        conversions = [
            (index, conversion)
            for index in range(count)
            if (kind := self.parameter(index)) and (conversion := _CONVERSIONS.get(kind))
        ]
        if not conversions:
            return implementation

        def call(*arguments: Any) -> Value:
            converted = list(arguments)
            for index, conversion in conversions:
                value = conversion(converted[index])
                if value is None:
                    return None
                converted[index] = value
            return implementation(*converted)

        return call


class AggregateFunction(NamedTuple):
    """One aggregate function.

    Attributes:
        arity: the least and the greatest number of arguments.
        result: the type of its result; "any" is that of the values.
        summary: one line for the reference.
    """

    arity: tuple[int, int]
    result: OneOf["integer", "double", "text", "any"]
    summary: str


AGGREGATES: Final[Mapping[str, AggregateFunction]] = MappingProxyType(
    {
        "ANY": AggregateFunction((1, 1), "any", "One of the values; which one is not promised."),
        "AVG": AggregateFunction((1, 1), "double", "The mean of the values."),
        "COUNT": AggregateFunction((1, 1), "integer", "How many values there are."),
        "COUNT_DISTINCT": AggregateFunction(
            (1, 1), "integer", "How many different values there are."
        ),
        "GROUP_CONCAT": AggregateFunction(
            (1, 2),
            "text",
            "The different values as texts, in order, with a literal or a comma between them.",
        ),
        "MAX": AggregateFunction((1, 1), "any", "The greatest value."),
        "MIN": AggregateFunction((1, 1), "any", "The least value."),
        "STDDEV_POP": AggregateFunction((1, 1), "double", "The population standard deviation."),
        "STDDEV_SAMP": AggregateFunction((1, 1), "double", "The sample standard deviation."),
        "SUM": AggregateFunction((1, 1), "double", "The sum of the values."),
        "UNIQUE": AggregateFunction(
            (1, 1), "any", "The value that all messages agree on, NULL if they do not."
        ),
    }
)
"""AMPS User Guide, Aggregate Functions. NULL values are left out of all of them."""

ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {"STREQ_I": "STREQUAL_I", "DATE.UTC": "DATE_UTC", "TODAY.UTC": "TODAY_UTC"}
)
"""Spellings of AMPS 5.2 and their present names."""


@dataclass(frozen=True, slots=True)
class Functions(Mapping[str, Function]):
    """The functions that can be called, by name.

    Attributes:
        absent: functions of known modules that are not loaded, by name: the module to load.
    """

    by_name: Mapping[str, Function]
    absent: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Function:
        """Return the function of a name in upper case, or of an older spelling."""
        function = self.by_name.get(name)
        return self.by_name[ALIASES.get(name, name)] if function is None else function

    def __iter__(self) -> Iterator[str]:
        """Return an iterator over the names, without older spellings."""
        return iter(self.by_name)

    def __len__(self) -> int:
        """Return the number of functions."""
        return len(self.by_name)

    def with_functions(self, functions: Iterable[Function]) -> Functions:
        """Return this registry with more functions; one of a known name replaces the other."""
        added = {function.name: function for function in functions}
        absent = {name: module for name, module in self.absent.items() if name not in added}
        return Functions(MappingProxyType({**self.by_name, **added}), MappingProxyType(absent))

    def with_absent(self, absent: Mapping[str, str]) -> Functions:
        """Return this registry with the modules of functions that it lacks: names to modules."""
        return Functions(self.by_name, MappingProxyType({**self.absent, **absent}))
