"""Expressions as columns of a DataFrame, evaluated on Arrow batches by Spark's Python workers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.pandas.functions import arrow_udf

from pipeline.expressions.environment import Environment
from pipeline.expressions.variants import variants
from server.expressions import ContextKind, parse
from server.expressions.backends.columns import Column as ColumnOfValues
from server.expressions.backends.columns import column_of
from server.expressions.backends.compile_columns import ColumnBatch, ColumnFilter, ColumnValue
from server.expressions.inference import with_inferred_types
from server.expressions.message_context import MessageContext
from server.expressions.tree import Call, Reference, Slot, slots, walk
from server.storage.sow.keys.key_source import key_hash

if TYPE_CHECKING:
    from pyspark.sql import Column

    from server.expressions import Functions
    from server.expressions.tree import Expr
    from server.message_types.base import MessageType

_HERE: Final = Environment()
_BODY: Final = "body"
_PREVIOUS: Final = "previous"

_Evaluate: TypeAlias = Callable[[ColumnBatch], pa.Array]
_Compile: TypeAlias = "Callable[[Expr, Functions], _Evaluate]"


@dataclass(frozen=True)
class Message:
    """The input columns of an expression; fields without one are NULL.

    Attributes:
        body: the body, text or binary.
        message_type: the name of its message type.
        previous: the body of the previous record, for OF PREVIOUS.
        context: the values of functions like SOW_KEY(), by the attribute of `MessageContext`. The
            size of the body and the hash of the SOW key are derived from body and key.
    """

    body: Column
    message_type: str = "json"
    previous: Column | None = None
    context: Mapping[str, Column] = field(default_factory=dict)

    def columns(self) -> dict[str, Column]:
        """Return all columns by name."""
        previous = {} if self.previous is None else {_PREVIOUS: self.previous}
        return {_BODY: self.body, **previous, **self.context}


def matches(text: str, message: Message, environment: Environment = _HERE) -> Column:
    """Return a BOOLEAN column, never NULL, that is true where a filter matches.

    Args:
        text: the filter.
        message: the columns of the message.
        environment: the names that the filter may use.

    Raises:
        ExpressionError: the filter is not valid; the text has the position and the reason.
    """
    return _column(text, message, environment, _filter, "boolean")


def value(text: str, message: Message, environment: Environment = _HERE) -> Column:
    """Return the values of an expression, as a VARIANT column.

    Args:
        text: the expression.
        message: the columns of the message.
        environment: the names that the expression may use.

    Raises:
        ExpressionError: the expression is not valid; the text has the position and the reason.
    """
    return _column(text, message, environment, _value, "variant")


def _column(
    text: str,
    message: Message,
    environment: Environment,
    compile_tree: _Compile,
    result: str,
) -> Column:
    columns = message.columns()
    kind = ContextKind.FILTER if message.previous is None else ContextKind.ENRICHMENT
    # Report a mistake here and now, not in a worker later.
    parse(text, kind, environment.functions())
    environment.message_type(message.message_type)
    evaluate = _BatchEvaluator(
        compile_tree, text, kind, message.message_type, tuple(columns), environment
    )

    def evaluate_batch(*arrays: pa.Array) -> pa.Array:
        return evaluate(arrays)

    # The stubs have no overload for functions with any number of arrays.
    make: Callable[..., Callable[..., Column]] = arrow_udf
    return make(evaluate_batch, result)(*columns.values())


def _filter(tree: Expr, functions: Functions) -> _Evaluate:
    test = ColumnFilter(tree, functions)
    return lambda rows: pa.array(test(rows))


def _value(tree: Expr, functions: Functions) -> _Evaluate:
    evaluate = ColumnValue(tree, functions)
    return lambda rows: variants(evaluate(rows).to_values())


class _BatchEvaluator:
    """Evaluates an expression over Arrow batches.

    It is sent to the workers as text, and compiled when the first batch arrives.

    Args:
        compile_tree: compiles the expression to a function.
        text: the expression.
        kind: the kind of expression.
        message_type: the message type of the bodies.
        names: the names in `Message.columns` of the arrays of a batch.
        environment: the names that the expression may use.
    """

    def __init__(
        self,
        compile_tree: _Compile,
        text: str,
        kind: ContextKind,
        message_type: str,
        names: tuple[str, ...],
        environment: Environment,
    ) -> None:
        self._compile = compile_tree
        self._text = text
        self._kind = kind
        self._message_type = message_type
        self._names = names
        self._environment = environment
        self._evaluate: _Evaluate | None = None
        self._reader: _FieldReader | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without compiled parts."""
        return self.__dict__ | {"_evaluate": None, "_reader": None}

    def __call__(self, arrays: Sequence[pa.Array]) -> pa.Array:
        """Evaluate one batch."""
        if self._evaluate is None or self._reader is None:
            functions = self._environment.functions()
            tree = parse(self._text, self._kind, functions)
            message_type = self._environment.message_type(self._message_type)
            self._evaluate = self._compile(with_inferred_types(tree, message_type), functions)
            attributes = {
                functions[node.name].context_attribute
                for node in walk(tree)
                if isinstance(node, Call)
            }
            self._reader = _FieldReader(message_type, slots(tree), attributes)
        return self._evaluate(self._reader(dict(zip(self._names, arrays, strict=True))))


class _FieldReader:
    """Reads the fields of an expression from the bodies of a batch.

    Args:
        message_type: the message type of the bodies.
        layout: the slots of the expression.
        attributes: the attributes of the context that the expression reads.
    """

    def __init__(
        self, message_type: MessageType, layout: Sequence[Slot], attributes: Collection[str | None]
    ) -> None:
        self._context_attributes = frozenset(name for name in attributes if name is not None)
        self._layout = [slot for slot in layout if isinstance(slot, Reference)]
        self._extractors = {
            of_previous: message_type.extractor(
                [slot.path for slot in self._layout if _is_of_previous(slot) == of_previous]
            )
            for of_previous in (False, True)
        }

    def __call__(self, arrays: dict[str, pa.Array]) -> ColumnBatch:
        """Return the columns of one batch."""
        bodies = _octets(arrays.pop(_BODY))
        before = arrays.pop(_PREVIOUS, None)
        previous = [b""] * len(bodies) if before is None else _octets(before)
        columns = {
            of_previous: iter(self._read_columns(read, of_previous))
            for of_previous, read in ((False, bodies), (True, previous))
        }
        return ColumnBatch(
            [next(columns[_is_of_previous(slot)]) for slot in self._layout],
            len(bodies),
            self._make_contexts(bodies, arrays) if self._context_attributes else None,
        )

    def _read_columns(self, bodies: Sequence[bytes], of_previous: bool) -> list[ColumnOfValues]:
        extract = self._extractors[of_previous]
        return [column_of(values) for values in zip(*map(extract, bodies), strict=True)]

    def _make_contexts(
        self, bodies: Sequence[bytes], known: dict[str, pa.Array]
    ) -> list[MessageContext]:
        attributes_by_name = {name: _attributes(array) for name, array in known.items()}
        if "message_size" in self._context_attributes:
            attributes_by_name.setdefault("message_size", [len(body) for body in bodies])
        if "sow_key_hash" in self._context_attributes and "sow_key" in attributes_by_name:
            hashes = [key and key_hash(key) for key in attributes_by_name["sow_key"]]
            attributes_by_name.setdefault("sow_key_hash", hashes)
        contexts = [MessageContext() for _ in bodies]
        for name in self._context_attributes & attributes_by_name.keys():
            for context, attribute in zip(contexts, attributes_by_name[name], strict=True):
                setattr(context, name, attribute)
        return contexts


def _attributes(array: pa.Array) -> list[Any]:
    """Return attributes of contexts; unsigned 64-bit integers come as decimals."""
    attributes: list[Any] = array.to_pylist()
    if pa.types.is_decimal(array.type):
        return [None if number is None else int(number) for number in attributes]
    return attributes


def _is_of_previous(slot: Reference) -> bool:
    return slot.state == "previous"


def _octets(bodies: pa.Array) -> list[bytes]:
    if not pa.types.is_binary(bodies.type):
        bodies = bodies.cast(pa.binary())
    octets: list[bytes] = bodies.fill_null(b"").to_pylist()
    return octets
