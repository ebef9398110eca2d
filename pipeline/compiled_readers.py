"""Fields of bodies of the types fix, nvfix, msgpack and bson as Arrow columns, in compiled code.

Compiled readers read values in the form that most publishers write: numbers, texts, booleans and
times, and in msgpack and bson structs of these. Bodies with other forms are read again, value by
value (`pipeline.fields`), and so are columns of other types: that code decides whether a value is
valid, and reports the problem if it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructType

from pipeline.arrow_fill import (
    OBJECT,
    ColumnFiller,
    ColumnRequest,
    FilledColumn,
    plain_kind,
    replace_values,
)
from pipeline.errors import UnfitError
from pipeline.native.bson_columns import BsonColumnReader
from pipeline.native.columns import ColumnReader
from pipeline.native.fix_columns import FixColumnReader
from pipeline.native.msgpack_columns import MsgpackColumnReader
from pipeline.packed_bodies import PackedBodies
from pipeline.times import TimeRule
from server.message_types.base import MessageType
from server.message_types.bson_type import BsonType
from server.message_types.fix import FixType
from server.message_types.msgpack_type import MsgpackType


class FieldReader(Protocol):
    """Reads the fields of bodies."""

    def columns(self, bodies: PackedBodies) -> dict[str, pa.Array]:
        """Return the columns of some bodies, by their names.

        Raises:
            PipelineError: a body does not fit; an UnfitError with its number, if known.
        """


ValueReaderFactory = Callable[[StructType], FieldReader]
"""Makes a reader that reads columns value by value."""


def plain_reader(
    schema: StructType, kind: MessageType, rule: TimeRule, by_value: ValueReaderFactory
) -> FieldReader:
    """Return a reader of fields that uses compiled code as far as possible.

    Args:
        schema: the fields.
        kind: the message type of the bodies.
        rule: the rule for times.
        by_value: makes the reader of the other fields.
    """
    compiled = _compiled(kind, rule)
    if compiled is None:
        return by_value(schema)
    fields = to_arrow_schema(schema, timezone="UTC")
    columns = [
        compiled.column(field, schema_field.dataType)
        for field, schema_field in zip(fields, schema, strict=True)
    ]
    compiled_columns = [column for column in columns if column is not None]
    if not compiled_columns:
        return by_value(schema)
    plain, rest = StructType(), StructType()
    for schema_field, column in zip(schema, columns, strict=True):
        (rest if column is None else plain).add(schema_field)
    filler = ColumnFiller(
        compiled_columns, compiled.make_reader([column.request for column in compiled_columns])
    )
    return _PlainReader(
        schema.names,
        _FastReader(plain.names, filler, by_value(plain), compiled.prepare),
        by_value(rest) if rest.fields else None,
    )


class _PlainReader:
    """Reads some columns in compiled code, and others value by value.

    Args:
        names: the names of all columns, in their order.
        fast_reader: reads some columns in compiled code.
        slow_reader: reads the others; None if there are none.
    """

    def __init__(
        self, names: Sequence[str], fast_reader: FieldReader, slow_reader: FieldReader | None
    ) -> None:
        self._names = names
        self._fast_reader = fast_reader
        self._slow_reader = slow_reader

    def columns(self, bodies: PackedBodies) -> dict[str, pa.Array]:
        compiled_columns = self._fast_reader.columns(bodies)
        if self._slow_reader is None:
            return compiled_columns
        compiled_columns |= self._slow_reader.columns(bodies)
        return {name: compiled_columns[name] for name in self._names}


class _FastReader:
    """Reads columns in compiled code, and odd bodies value by value.

    Args:
        names: the names of the columns.
        filler: fills the columns.
        value_reader: reads odd bodies.
        prepare: converts bodies for the filler.
    """

    def __init__(
        self,
        names: Sequence[str],
        filler: ColumnFiller,
        value_reader: FieldReader,
        prepare: Callable[[PackedBodies], PackedBodies],
    ) -> None:
        self._names = names
        self._filler = filler
        self._value_reader = value_reader
        self._prepare = prepare

    def columns(self, bodies: PackedBodies) -> dict[str, pa.Array]:
        columns, odd = self._filler.columns(self._prepare(bodies))
        if odd:
            columns = replace_values(columns, self._reread_odd_bodies(bodies, odd), odd)
        return dict(zip(self._names, columns, strict=True))

    def _reread_odd_bodies(self, bodies: PackedBodies, odd: Sequence[int]) -> Iterable[pa.Array]:
        try:
            return self._value_reader.columns(bodies.select(odd)).values()
        except UnfitError as problem:
            raise UnfitError(str(problem), odd[problem.number]) from None


class _CompiledReader:
    """A compiled reader of a message type.

    Args:
        reads_times: whether it reads times.
        reads_structs: whether it reads structs.
        make_reader: creates it.
        can_read: returns whether it can read a column with a name.
        prepare: converts bodies for it.
    """

    def __init__(
        self,
        *,
        reads_times: bool,
        reads_structs: bool,
        make_reader: Callable[[Sequence[ColumnRequest]], ColumnReader],
        can_read: Callable[[str], bool] = lambda _: True,
        prepare: Callable[[PackedBodies], PackedBodies] = lambda bodies: bodies,
    ) -> None:
        self._reads_times = reads_times
        self._reads_structs = reads_structs
        self._can_read = can_read
        self.make_reader = make_reader
        self.prepare = prepare

    def column(self, field: pa.Field, kind: DataType) -> FilledColumn | None:
        """Return a column, or a member of one; None if the reader does not read its type."""
        plain = plain_kind(kind, with_times=self._reads_times)
        if plain is not None:
            return FilledColumn(field, plain) if self._can_read(field.name) else None
        if not (self._reads_structs and isinstance(kind, StructType) and kind.fields):
            return None
        members = [
            self.column(field.type[number], schema_field.dataType)
            for number, schema_field in enumerate(kind)
        ]
        compiled_columns = [member for member in members if member is not None]
        return (
            FilledColumn(field, OBJECT, compiled_columns)
            if len(compiled_columns) == len(members)
            else None
        )


def _compiled(kind: MessageType, rule: TimeRule) -> _CompiledReader | None:
    """Return the compiled reader of a message type; None if there is none."""
    if isinstance(kind, FixType):
        return _of_fix(kind, rule)
    if isinstance(kind, MsgpackType):
        return _CompiledReader(
            reads_times=not rule.reads_fix,
            reads_structs=True,
            make_reader=lambda requests: MsgpackColumnReader(requests, rule.unit),
        )
    if isinstance(kind, BsonType):
        return _CompiledReader(
            reads_times=not rule.reads_fix,
            reads_structs=True,
            make_reader=lambda requests: BsonColumnReader(requests, rule.unit),
            can_read=lambda name: "\0" not in name,
        )
    return None


def _of_fix(kind: FixType, rule: TimeRule) -> _CompiledReader:
    separator = kind.separator
    no_tag = {"=", *map(chr, kind.separators)}

    def prepared(bodies: PackedBodies) -> PackedBodies:
        if len(kind.separators) == 1:
            return bodies
        return PackedBodies(kind.normalize_separators(bodies.data), bodies.starts, bodies.ends)

    return _CompiledReader(
        reads_times=not rule.unit,
        reads_structs=False,
        make_reader=lambda requests: FixColumnReader(requests, separator, fix_times=rule.reads_fix),
        can_read=no_tag.isdisjoint,
        prepare=prepared,
    )
