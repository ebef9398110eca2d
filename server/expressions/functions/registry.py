"""What functions there are: names, parameters, determinism and implementation.

A registry is a value: adding functions gives a new one. Names are looked up in upper case. An
implementation is called with its arguments already converted as its parameters say, so it deals
with one kind of value only; a NULL for a parameter that converts makes the result NULL without a
call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from typing import Literal as OneOf

from server.expressions import semantics
from server.message_types.base import Value


class Parameter(Enum):
    """How an argument reaches the implementation."""

    TEXT = "text"
    """As the bytes of its text."""
    NUMBER = "number"
    """As an integer or a double, NaN for a text that is no number."""
    INTEGER = "integer"
    """As an integer, cut towards zero; NULL for NaN and infinity."""
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
"""Those that turn NULL into None, which ends the call. The others are the compilers' business."""

Implementation = Callable[..., Value]


@dataclass(frozen=True, slots=True)
class Function:
    """One scalar function.

    Attributes:
        name: in upper case.
        parameters: the parameters that have to be given.
        optional: further ones that may be left out, from the right.
        rest: the parameter that may follow any number of times, if any.
        implementation: takes the converted arguments, gives a value; None where `reads` is set.
        reads: the attribute of the message context that is the result.
        summary: one line for the reference.
        section: the heading it is documented under.
        deterministic: whether it gives the same value for the same message.
        lookup: it reads other records, which only preprocessing and enrichment may do.
    """

    name: str
    section: str
    summary: str
    implementation: Implementation | None = None
    parameters: tuple[Parameter, ...] = ()
    optional: tuple[Parameter, ...] = ()
    rest: Parameter | None = None
    reads: str | None = None
    deterministic: bool = True
    lookup: bool = False

    @property
    def minimum(self) -> int:
        """The least number of arguments."""
        return len(self.parameters)

    @property
    def maximum(self) -> int | None:
        """The greatest number of arguments; None where there is no limit."""
        return None if self.rest else len(self.parameters) + len(self.optional)

    def parameter(self, index: int) -> Parameter | None:
        """How the argument at an index, from 0, is converted; None beyond the last."""
        given = self.parameters + self.optional
        return given[index] if index < len(given) else self.rest

    def bind(self, count: int) -> Implementation:
        """The implementation for a number of arguments, converting them.

        Args:
            count: how many arguments the call has, within `minimum` and `maximum`.

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
"""Spellings of AMPS 5.2 and what they are called now."""


@dataclass(frozen=True, slots=True)
class Functions(Mapping[str, Function]):
    """The functions that can be called, by name.

    Attributes:
        absent: functions of known modules that are not loaded, by name: the module to load.
    """

    by_name: Mapping[str, Function]
    absent: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Function:
        """The function of a name in upper case; older spellings are known too."""
        found = self.by_name.get(name)
        return self.by_name[ALIASES.get(name, name)] if found is None else found

    def __iter__(self) -> Iterator[str]:
        """The names, without older spellings."""
        return iter(self.by_name)

    def __len__(self) -> int:
        """How many functions there are."""
        return len(self.by_name)

    def adding(self, functions: Iterable[Function]) -> Functions:
        """This registry with more functions; one of a known name takes the place of the other."""
        more = {function.name: function for function in functions}
        absent = {name: module for name, module in self.absent.items() if name not in more}
        return Functions(MappingProxyType({**self.by_name, **more}), MappingProxyType(absent))

    def expecting(self, absent: Mapping[str, str]) -> Functions:
        """This registry, knowing which modules have functions that it has not: names to modules."""
        return Functions(self.by_name, MappingProxyType({**self.absent, **absent}))
