"""Generates the Python source of one compiled expression.

Constants are arguments of the function that wraps the source. So expressions that differ only by
their constants have one source, which Python compiles once; each then takes the memory of a
function and its constants, and none for code.

The function of a form (`filter_form`) takes the constants of its parameters and the positions of
its fields with each call. So forms that differ only by their fields share one function.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from server.expressions import semantics
from server.expressions.functions.registry import Functions
from server.expressions.message_context import NO_CONTEXT
from server.expressions.regex.budget import SearchCounter
from server.expressions.tree import (
    Affix,
    Aggregate,
    And,
    Between,
    Comparison,
    Expr,
    FormParameter,
    Identifier,
    In,
    IsNan,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Reference,
    Slot,
)

_INLINE_DEPTH: Final = 20
"""Levels of the tree in one function: Python limits the nesting depth of parentheses."""

_MAX_KEPT_LENGTH: Final = 2_000
"""Maximum length of a cached source, in characters, for expressions that differ by constants."""

_LOGICAL: Final = (Comparison, Between, In, Like, Affix, IsNull, IsNan, Not, And, Or)
"""Nodes with a truth as their value: true, false or None."""


class NodeWriters(NamedTuple):
    """The writers of each kind of node, by the question that the source answers.

    Attributes:
        true: is it true? By default, is the truth of its value true?
        false: is it false? By default, is the truth of its value false?
        value: which value does it have?
    """

    true: Mapping[type[Expr], NodeWriter]
    false: Mapping[type[Expr], NodeWriter]
    value: Mapping[type[Expr], NodeWriter]


class SourceBuilder:
    """Writes source text for nodes, and collects the objects that it names, and helper functions.

    Args:
        is_form: whether to write the function of a form.

    Attributes:
        functions: implementations of the functions that the expression calls.
        search_counter: counts long searches; None to leave them uncounted.
    """

    def __init__(
        self,
        functions: Functions,
        layout: Sequence[Slot] | Mapping[Reference, int],
        writers: NodeWriters,
        search_counter: SearchCounter | None = None,
        *,
        is_form: bool = False,
    ) -> None:
        self.functions = functions
        self.search_counter = search_counter
        self._is_form = is_form
        self._arguments = "v, m, k, p" if is_form else "v, m"
        self._writers = writers
        self._slot_indexes: Mapping[Any, int] = (
            layout
            if isinstance(layout, Mapping)
            else {slot: index for index, slot in enumerate(layout)}
        )
        self._shared: dict[Hashable, str] = {}
        self._constants: list[object] = []
        self._helpers: list[str] = []
        self._depth = 0

    def compile_function(self, body: str) -> Any:
        """Compile a function of values `v` and context `m` that returns the value of `body`.

        That of a form also takes a filter `k` and the positions `p` of its fields in `v`.
        """
        default = "" if self._is_form else f"={self.name(NO_CONTEXT)}"
        arguments = self._arguments.replace("m", f"m{default}")
        self._helpers.append(f" def expression({arguments}): return {body}\n")
        names = ", ".join(map("k{}".format, range(len(self._constants))))
        source = f"def make({names}):\n{''.join(self._helpers)} return expression\n"
        shared = tuple(self._shared)
        if len(source) > _MAX_KEPT_LENGTH:
            return _make(source, shared)(*self._constants)
        if not self._constants:
            return _made_without_constants(source, shared)
        return _made(source, shared)(*self._constants)

    def true(self, node: Expr) -> str:
        """Return source of a bool: is the node true?"""
        return self._write(self._writers.true, node, _value_is_true)

    def false(self, node: Expr) -> str:
        """Return source of a bool: is the node false?"""
        return self._write(self._writers.false, node, _value_is_false)

    def value(self, node: Expr) -> str:
        """Return source of the node's value."""
        return self._write(self._writers.value, node, None)

    def truth(self, node: Expr) -> str:
        """Return source of the node's truth: True, False or None."""
        if isinstance(node, _LOGICAL):
            return self.value(node)
        return f"{self.name(semantics.truth)}({self.value(node)})"

    def scalar(self, node: Expr) -> str:
        """Return source of the node's scalar: an array's first element, None for the empty text."""
        if isinstance(node, _LOGICAL):
            return self.value(node)
        if isinstance(node, Literal):
            return self.constant(None) if node.value == "" else self.literal(node)
        return f"{self.name(semantics.first)}({self.value(node)})"

    def name(self, shared: Hashable) -> str:
        """Return a name in the source for an object that expressions share."""
        return self._shared.setdefault(shared, f"s{len(self._shared)}")

    def constant(self, value: object) -> str:
        """Return a name in the source for a constant of this expression alone."""
        self._constants.append(value)
        return f"k{len(self._constants) - 1}"

    def literal(self, node: Literal) -> str:
        """Return source of a literal: a name, or the constant of the filter for a parameter."""
        return (
            f"k[{node.number + 1}]"
            if isinstance(node, FormParameter)
            else self.constant(node.value)
        )

    def slot(self, node: Identifier | Aggregate) -> str:
        """Return source that reads a field or the result of an aggregate."""
        slot: Slot = node.reference if isinstance(node, Identifier) else node
        return self._value_at(self._slot_indexes[slot])

    def local(self, node: Identifier) -> tuple[str, str]:
        """Return source that reads a field into a local variable, and the variable's name."""
        index = self._slot_indexes[node.reference]
        return f"(x{index} := {self._value_at(index)})", f"x{index}"

    def _value_at(self, index: int) -> str:
        return f"v[p[{index}]]" if self._is_form else f"v[{index}]"

    def _write(
        self, writers: Mapping[type[Expr], NodeWriter], node: Expr, otherwise: NodeWriter | None
    ) -> str:
        writer = writers.get(type(node), otherwise)
        if writer is None:
            raise TypeError(f"a {type(node).__name__} has no value of its own")
        outside = self._depth
        if outside < _INLINE_DEPTH:
            self._depth = outside + 1
            source = writer(self, node)
        else:
            self._depth = 0
            source = self._helper(writer(self, node))
        self._depth = outside
        return source

    def _helper(self, source: str) -> str:
        name = f"part{len(self._helpers)}"
        self._helpers.append(f" def {name}({self._arguments}): return {source}\n")
        return f"{name}({self._arguments})"


def _make(source: str, shared: tuple[Hashable, ...]) -> Callable[..., Any]:
    """Return the factory that a source defines: it takes the constants and returns the function."""
    names: dict[str, Any] = {f"s{number}": value for number, value in enumerate(shared)}
    # The source consists of our own templates only; fields enter it as indexes.
    exec(source, names)  # noqa: S102  # see above
    # Removed from its own globals, which would refer back to it otherwise: a cycle.
    factory: Callable[..., Any] = names.pop("make")
    return factory


_made: Final = lru_cache(maxsize=1024)(_make)


@lru_cache(maxsize=1024)
def _made_without_constants(source: str, shared: tuple[Hashable, ...]) -> Callable[..., Any]:
    """Return the function that a source without constants defines."""
    function: Callable[..., Any] = _make(source, shared)()
    return function


NodeWriter: TypeAlias = Callable[[SourceBuilder, Any], str]
"""Writes the source for one kind of node."""


def _value_is_true(builder: SourceBuilder, node: Expr) -> str:
    return f"({builder.name(semantics.truth)}({builder.value(node)}) is True)"


def _value_is_false(builder: SourceBuilder, node: Expr) -> str:
    return f"({builder.name(semantics.truth)}({builder.value(node)}) is False)"
