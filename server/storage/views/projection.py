"""A compiled projection: its inputs from every message, and its fields for a group of messages.

    <Field>/sym</Field>                                   inputs       /sym /qty /px
    <Field>SUM(/qty * /px) / SUM(/qty) AS /vwap</Field>   arguments    /qty * /px, /qty
    <Grouping><Field>/sym</Field></Grouping>              kept         a Total of each

A message becomes a *row*, its values for the inputs. A row determines its group, and the values of
the arguments, which are added to accumulators. A group's fields are computed from its most recent
row (as AMPS does for fields that are neither grouped nor aggregated) and from the results of the
accumulators.

Source: AMPS User Guide, Defining Projections; Constructing View Fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from server.expressions import semantics
from server.expressions.backends.compile_message import compile_values
from server.expressions.inference import with_inferred
from server.expressions.tree import Aggregate, Expr, Identifier, aggregates, references
from server.message_types.base import Value
from server.message_types.paths import Path
from server.storage.sow.record_context import asks_for_context
from server.storage.views.aggregates import Accumulator, function_of

if TYPE_CHECKING:
    from server.expressions import Functions
    from server.expressions.message_context import MessageContext
    from server.expressions.tree import Field, Reference, Slot

ProjectionRow: TypeAlias = tuple[Value, ...]
"""A message's values for the inputs of a projection."""
GroupKey: TypeAlias = tuple[str | None, ...]
"""The identity of a group: the texts of the values that messages are grouped by."""


class GroupAccumulator(NamedTuple):
    """One accumulator of a group.

    Attributes:
        make: creates it.
        argument_index: the place in `Projection.compute_arguments` of its values.
    """

    make: Callable[[], Accumulator]
    argument_index: int


class _AggregateResult(NamedTuple):
    """The result of an aggregate: how to read it from the accumulator at a place."""

    accumulator_index: int
    read: Callable[[Any], Value]


class Projection:
    """The fields of a view or of an aggregated subscription, compiled.

    Args:
        fields: the fields.
        grouping: the fields that messages are grouped by.
        functions: implementations of the functions that the fields call.
        source_of: returns the place of the topic that a reference reads, among the joined topics; a
            row has the values of each topic together, in this order.
        is_untyped: returns True if the message type of a reference does not type its values.

    Attributes:
        inputs: the references read from every message, in the order of a row.
        compute_arguments: computes the values of the distinct aggregated expressions for a row.
        accumulator_specs: the accumulators of every group.
        arguments_need_context: arguments read the message's context.
        destinations: the paths of the fields in the result.
        fields_need_context: parts outside of aggregates read the message's context.
    """

    def __init__(
        self,
        fields: Sequence[Field],
        grouping: Sequence[Identifier],
        functions: Functions,
        source_of: Callable[[Reference], int] = lambda _: 0,
        is_untyped: Callable[[Reference], bool] = lambda _: False,
    ) -> None:
        inputs = dict.fromkeys(identifier.reference for identifier in grouping)
        for field in fields:
            inputs.update(dict.fromkeys(references(field.source)))
        self.inputs: Final[tuple[Reference, ...]] = tuple(sorted(inputs, key=source_of))
        self.grouping: Final = tuple(grouping)
        self.fields: Final = tuple(fields)
        self._grouping_positions: Final = tuple(
            self.inputs.index(identifier.reference) for identifier in grouping
        )
        expressions = [with_inferred(field.source, is_untyped) for field in fields]
        calls = dict.fromkeys(call for expr in expressions for call in aggregates(expr))
        arguments = dict.fromkeys(call.arguments[0] for call in calls)
        indexes = {argument: index for index, argument in enumerate(arguments)}
        self.compute_arguments: Final = compile_values(list(arguments), functions, self.inputs)
        self.arguments_need_context: Final = any(
            asks_for_context(argument, functions) for argument in arguments
        )
        self.fields_need_context: Final = any(
            _asks_outside(field.source, functions) for field in fields
        )
        specs: dict[GroupAccumulator, int] = {}
        self._results: Final[list[_AggregateResult]] = []
        for call in calls:
            function = function_of(call)
            spec = GroupAccumulator(function.make_accumulator, indexes[call.arguments[0]])
            index = specs.setdefault(spec, len(specs))
            self._results.append(_AggregateResult(index, function.read_result))
        self.accumulator_specs: Final = tuple(specs)
        layout: tuple[Slot, ...] = (*self.inputs, *calls)
        self._compute_values: Final = compile_values(expressions, functions, layout)
        self.destinations: Final = [field.destination for field in fields]
        self._optional_positions: Final = frozenset(
            index for index, field in enumerate(fields) if field.is_optional
        )

    def group_key(self, row: ProjectionRow) -> GroupKey:
        """Return the key of a row's group; values are compared as texts."""
        grouping_positions = self._grouping_positions
        if len(grouping_positions) == 1:
            value = row[grouping_positions[0]]
            return (value if value.__class__ is str and value else semantics.text(value),)
        return tuple([semantics.text(row[index]) for index in grouping_positions])

    def shown_grouping(self, is_same: Callable[[Reference, Reference], bool]) -> list[Path | None]:
        """Return the path of each grouping field in the result; None for one not projected.

        Args:
            is_same: returns True if two references read the same value.
        """
        copied = [
            (field.source.reference, field.destination)
            for field in self.fields
            if isinstance(field.source, Identifier)
        ]
        return [
            next((path for source, path in copied if is_same(source, identifier.reference)), None)
            for identifier in self.grouping
        ]

    def compute_fields(
        self, last: ProjectionRow, accumulators: Sequence[Accumulator], context: MessageContext
    ) -> list[tuple[Path, Value]]:
        """Compute the fields of a group.

        Args:
            last: the most recent row.
            accumulators: the group's accumulators, one for each of `accumulator_specs`.
            context: the context of the most recent message, for functions.
        """
        results = [read(accumulators[index]) for index, read in self._results]
        fields = list(
            zip(self.destinations, self._compute_values((*last, *results), context), strict=True)
        )
        if self._optional_positions:
            fields = [
                field
                for index, field in enumerate(fields)
                if field[1] is not None or index not in self._optional_positions
            ]
        return fields


def _asks_outside(expr: Expr, functions: Functions) -> bool:
    """Return True if an expression reads the message's context outside of its aggregates."""
    return any(asks_for_context(part, functions) for part in _parts_outside_aggregates(expr))


def _parts_outside_aggregates(expr: Expr) -> Iterable[Expr]:
    """Yield the largest parts of an expression that contain no aggregates."""
    if not aggregates(expr):
        yield expr
    elif not isinstance(expr, Aggregate):
        for child in expr.children():
            yield from _parts_outside_aggregates(child)
