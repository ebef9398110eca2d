"""The syntax tree of an expression, made by the parser and read by every back end.

Nodes are immutable and hashable. Two trees are equal when they mean the same text; positions do not
take part in comparison. Negated forms have no nodes of their own: `a NOT IN (1)` is
`Not(In(a, (1,)))`. Chains of AND and of OR are flat, so that their length does not add depth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal as OneOf
from typing import NamedTuple, TypeAlias

from server.message_types.paths import Path

StateQualifier: TypeAlias = OneOf["current", "previous"]
"""The state of a record that an identifier reads: OF CURRENT or OF PREVIOUS."""

Constant: TypeAlias = int | float | str | None


class Reference(NamedTuple):
    """A value that an expression reads: its path, and the message that it is read from.

    Back ends take one value per distinct reference. For expressions over a single message only
    `path` is set.
    """

    path: Path
    message_type: str | None = None
    topic: str | None = None
    state: StateQualifier | None = None


@dataclass(frozen=True, slots=True)
class Expr:
    """Any node.

    Attributes:
        position: offset of the node in its text, in characters.
    """

    position: int = field(default=0, compare=False, repr=False, kw_only=True)

    def children(self) -> tuple[Expr, ...]:
        """Return the operands and arguments, left to right."""
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class Literal(Expr):
    """NULL, a number or a text.

    `1` and `1.0` are different literals, since they divide differently.
    """

    value: Constant

    def __eq__(self, other: object) -> bool:
        """Return whether type and value are equal."""
        if not isinstance(other, Literal):
            return NotImplemented
        return type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        """Return a hash that is consistent with equality."""
        return hash((type(self.value), self.value))


@dataclass(frozen=True, slots=True, eq=False)
class FormParameter(Literal):
    """A constant of a form, in which filters of that form differ; see `filter_form`.

    Attributes:
        value: an example of its kind.
        number: its position among the constants.
    """

    number: int


@dataclass(frozen=True, slots=True)
class Pattern(Expr):
    """A regular expression: the right side of LIKE, or the pattern argument of a function.

    Attributes:
        text: the pattern as PCRE2 reads it, or the literal characters to find when `is_quoted`.
        is_quoted: the pattern was a raw string, whose characters stand for themselves.
    """

    text: str
    is_quoted: bool = False


@dataclass(frozen=True, slots=True)
class Identifier(Expr):
    """A field of a message.

    Attributes:
        reference: the value that is read, without the position in the text.
    """

    path: Path
    message_type: str | None = None
    topic: str | None = None
    state: StateQualifier | None = None
    reference: Reference = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Cache the reference, which is read very often."""
        reference = Reference(self.path, self.message_type, self.topic, self.state)
        object.__setattr__(self, "reference", reference)


@dataclass(frozen=True, slots=True)
class InferredField(Expr):
    """A field of untyped values: a text that is a number is read as that number.

    The parser never makes this node; see `inference`.
    """

    operand: Identifier

    def children(self) -> tuple[Expr, ...]:
        """Return the field."""
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Negate(Expr):
    """Unary minus."""

    operand: Expr

    def children(self) -> tuple[Expr, ...]:
        """Return the operand."""
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Arithmetic(Expr):
    """`left operator right`; the operator is one of + - * / %."""

    operator: str
    left: Expr
    right: Expr

    def children(self) -> tuple[Expr, ...]:
        """Return both operands."""
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class Comparison(Expr):
    """`left operator right`; the operator is one of = != < <= > >=."""

    operator: str
    left: Expr
    right: Expr

    def children(self) -> tuple[Expr, ...]:
        """Return both operands."""
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class Between(Expr):
    """`operand BETWEEN low AND high`, bounds included."""

    operand: Expr
    low: Expr
    high: Expr

    def children(self) -> tuple[Expr, ...]:
        """Return the operand and both bounds."""
        return (self.operand, self.low, self.high)


@dataclass(frozen=True, slots=True)
class In(Expr):
    """`operand IN (items)`."""

    operand: Expr
    items: tuple[Expr, ...]

    def children(self) -> tuple[Expr, ...]:
        """Return the operand, then the items."""
        return (self.operand, *self.items)


@dataclass(frozen=True, slots=True)
class Like(Expr):
    """`operand LIKE pattern`."""

    operand: Expr
    pattern: Pattern

    def children(self) -> tuple[Expr, ...]:
        """Return the operand and the pattern."""
        return (self.operand, self.pattern)


@dataclass(frozen=True, slots=True)
class Affix(Expr):
    """`operand BEGINS WITH (items)` or `operand ENDS WITH (items)`."""

    operator: OneOf["BEGINS WITH", "ENDS WITH"]
    operand: Expr
    items: tuple[Expr, ...]

    def children(self) -> tuple[Expr, ...]:
        """Return the operand, then the items."""
        return (self.operand, *self.items)


@dataclass(frozen=True, slots=True)
class IsNull(Expr):
    """`operand IS NULL`."""

    operand: Expr

    def children(self) -> tuple[Expr, ...]:
        """Return the operand."""
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class IsNan(Expr):
    """`operand IS NAN`."""

    operand: Expr

    def children(self) -> tuple[Expr, ...]:
        """Return the operand."""
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Not(Expr):
    """`NOT operand`."""

    operand: Expr

    def children(self) -> tuple[Expr, ...]:
        """Return the operand."""
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class And(Expr):
    """Two or more operands, none of which is itself an And."""

    operands: tuple[Expr, ...]

    def children(self) -> tuple[Expr, ...]:
        """Return the operands."""
        return self.operands


@dataclass(frozen=True, slots=True)
class Or(Expr):
    """Two or more operands, none of which is itself an Or."""

    operands: tuple[Expr, ...]

    def children(self) -> tuple[Expr, ...]:
        """Return the operands."""
        return self.operands


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """A function called with arguments; the name is the registry's spelling."""

    name: str
    arguments: tuple[Expr, ...]

    def children(self) -> tuple[Expr, ...]:
        """Return the arguments."""
        return self.arguments


@dataclass(frozen=True, slots=True)
class Aggregate(Expr):
    """An aggregate function over the messages of a group."""

    name: str
    arguments: tuple[Expr, ...]

    def children(self) -> tuple[Expr, ...]:
        """Return the arguments."""
        return self.arguments


@dataclass(frozen=True, slots=True)
class Field:
    """A constructed field: `source AS destination HINT ...`.

    Attributes:
        source: the expression that computes the value.
        destination: the field that the value is written to.
        is_optional: HINT OPTIONAL, a NULL is left out instead of written.
        set_current: HINT SET_CURRENT, later fields of the same stage see the value.
    """

    source: Expr
    destination: Path
    is_optional: bool = False
    set_current: bool = False


@dataclass(frozen=True, slots=True)
class OrderTerm:
    """One identifier of an OrderBy."""

    identifier: Identifier
    is_descending: bool = False


@dataclass(frozen=True, slots=True)
class Join:
    """A join of two topics: both values are compared as texts."""

    left: Identifier
    right: Identifier


Slot: TypeAlias = Reference | Aggregate
"""The content of one place in the tuple of values: a field, or the result of an aggregate."""


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield every node, parents before children, left to right. Does not recurse."""
    pending = [expr]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, Literal):  # lists of thousands of values are usual
            pending.extend(reversed(node.children()))


def height(expr: Expr) -> int:
    """Return the number of nodes on the longest path from the root to a leaf. Does not recurse."""
    levels = 0
    level: Sequence[Expr] = [expr]
    while level:
        levels += 1
        inner = [node for node in level if not isinstance(node, Literal)]
        level = [child for node in inner for child in node.children()]
    return levels


def references(expr: Expr) -> tuple[Reference, ...]:
    """Return the distinct references, in order of first appearance.

    Compiled expressions take one value for each.
    """
    if (  # a fast path for the form of nearly all filters that are sent in great numbers
        isinstance(expr, Comparison)
        and isinstance(expr.left, Identifier)
        and isinstance(expr.right, Literal)
    ):
        return (expr.left.reference,)
    distinct: dict[Reference, None] = {}
    pending = [expr]
    while pending:  # inlined `walk`, which is slow here
        node = pending.pop()
        if isinstance(node, Identifier):
            distinct[node.reference] = None
        elif isinstance(node, Comparison):
            pending += node.right, node.left
        elif not isinstance(node, Literal):
            pending.extend(reversed(node.children()))
    return tuple(distinct)


def paths(expr: Expr) -> tuple[Path, ...]:
    """Return the paths of `references(expr)`, in the same order: the input of an extractor."""
    return tuple(reference.path for reference in references(expr))


def slots(expr: Expr) -> tuple[Slot, ...]:
    """Return the slots that the compiled expression takes values for, in order.

    These are references and whole aggregates; without aggregates, `references(expr)`. References
    within aggregates do not count.
    """
    distinct: dict[Slot, None] = {}
    pending = [expr]
    while pending:
        node = pending.pop()
        if isinstance(node, Identifier):
            distinct[node.reference] = None
        elif isinstance(node, Aggregate):
            distinct[node] = None
        else:
            pending.extend(reversed(node.children()))
    return tuple(distinct)


def aggregates(expr: Expr) -> tuple[Aggregate, ...]:
    """Return the distinct aggregate calls, in order of first appearance."""
    return tuple(dict.fromkeys(node for node in walk(expr) if isinstance(node, Aggregate)))


def conjuncts(expr: Expr) -> tuple[Expr, ...]:
    """Return the terms that must all be true for the expression to be true."""
    return expr.operands if isinstance(expr, And) else (expr,)
