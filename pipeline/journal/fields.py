"""Fields of messages as columns: what a schema asks for, decoded from the bodies.

One row class is made for a schema. JSON is decoded into it by msgspec, which skips every field that
is not asked for; of other message types an extractor reads the fields. A message that does not fit
the row class is looked at field by field: a string column takes anything as its JSON text, numbers
fit wider ones. What still does not fit is an error, or NULL if asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Final, TypedDict

import msgspec
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipeline.journal.errors import JournalReadError
from server.message_types.base import MessageTypeError
from server.message_types.registry import MessageTypes

Row = msgspec.Struct
Decode = Callable[[bytes], Row]
Complain = Callable[[int, str], JournalReadError]
"""Makes the error for a message: its number in the block, and what is wrong."""

_SIMPLE: Final[dict[type[DataType], Any]] = {
    BooleanType: bool,
    StringType: str,
    FloatType: float,
    DoubleType: float,
    DateType: date,
    TimestampType: datetime,
    DecimalType: Decimal,
}
_BITS: Final[dict[type[DataType], int]] = {
    ByteType: 8,
    ShortType: 16,
    IntegerType: 32,
    LongType: 64,
}


class FieldReader:
    """Reads the fields of a schema from messages.

    Args:
        fields: the columns.
        arrow_types: theirs in Arrow.
        is_permissive: whether what does not fit is NULL.

    Raises:
        JournalReadError: a column has a type that no field of a message has.
    """

    def __init__(
        self,
        fields: Sequence[StructField],
        arrow_types: Sequence[pa.DataType],
        *,
        is_permissive: bool,
    ) -> None:
        self.names = tuple(field.name for field in fields)
        self._types = tuple(_python_type(field.dataType, field.name) for field in fields)
        self._arrow = tuple(arrow_types)
        self._labels = tuple(field.dataType.simpleString() for field in fields)
        self._slots = tuple(f"f{number}" for number in range(len(fields)))
        self._is_permissive = is_permissive
        self._row = msgspec.defstruct(
            "Row",
            [
                (slot, kind | None, None)
                for slot, kind in zip(self._slots, self._types, strict=True)
            ],
            rename=dict(zip(self._slots, self.names, strict=True)),
            gc=False,
        )
        self._json = msgspec.json.Decoder(self._row)
        self._decoders: dict[str, Decode] = {"json": self._json.decode}
        self._message_types = MessageTypes()

    def rows(self, bodies: Sequence[bytes], kinds: Sequence[str], complain: Complain) -> list[Row]:
        """Decode messages.

        Args:
            bodies: the messages.
            kinds: the message type of each.
            complain: makes the error for one that does not fit.

        Raises:
            JournalReadError: one does not fit the schema.
        """
        if set(kinds) <= {"json"}:
            decode = self._json.decode
            try:
                return [decode(body) for body in bodies]
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass  # one by one, then
        rows = []
        for number, (body, kind) in enumerate(zip(bodies, kinds, strict=True)):
            try:
                rows.append(self._decoder(kind)(body))
            except (msgspec.DecodeError, UnicodeDecodeError):
                rows.append(self._by_field(number, body, complain))
            except _DoesNotFitError as problem:
                raise complain(number, str(problem)) from problem
        return rows

    def column(self, name: str, rows: Sequence[Row]) -> pa.Array:
        """One column of decoded messages."""
        place = self.names.index(name)
        slot, kind = self._slots[place], self._arrow[place]
        return pa.array([getattr(row, slot) for row in rows], kind)

    def values(self, name: str) -> Callable[[Row], Any]:
        """A function from a decoded message to one of its fields."""
        slot = self._slots[self.names.index(name)]
        return lambda row: getattr(row, slot)

    def _decoder(self, kind: str) -> Decode:
        decode = self._decoders.get(kind)
        if decode is None:
            try:
                message_type = self._message_types.get(kind)
            except MessageTypeError as problem:
                raise JournalReadError(
                    f"fields of message type {kind} cannot be read: {problem}; read the column body"
                ) from problem
            extract = message_type.extractor([(name,) for name in self.names])
            decode = self._decoders[kind] = lambda body: self._fit(extract(body))
        return decode

    def _by_field(self, number: int, body: bytes, complain: Complain) -> Row:
        """A JSON message that does not fit the row as it stands."""
        try:
            document = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            if self._is_permissive:
                return self._row()
            raise complain(number, f"the message is no JSON: {problem}") from problem
        if not isinstance(document, dict):
            document = {}
        try:
            return self._fit([document.get(name) for name in self.names])
        except _DoesNotFitError as problem:
            raise complain(number, str(problem)) from problem

    def _fit(self, values: Sequence[Any]) -> Row:
        fitted = [
            None if value is None else self._fit_value(place, value)
            for place, value in enumerate(values)
        ]
        return self._row(*fitted)

    def _fit_value(self, place: int, value: Any) -> Any:
        kind = self._types[place]
        if kind is str:
            return value if isinstance(value, str) else msgspec.json.encode(value).decode()
        try:
            return msgspec.convert(value, kind, strict=False)
        except msgspec.ValidationError as problem:
            if self._is_permissive:
                return None
            raise _DoesNotFitError(
                f"field {self.names[place]}: the schema says {self._labels[place]}, the message "
                f"has {value!r:.60}; the option mode=permissive makes it NULL"
            ) from problem


class _DoesNotFitError(Exception):
    """A value is not what the schema says."""


def _python_type(kind: DataType, name: str) -> Any:
    """What msgspec has to decode for a column."""
    for spark_type, bits in _BITS.items():
        if isinstance(kind, spark_type):
            limit = 1 << (bits - 1)
            return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)]
    if isinstance(kind, ArrayType):
        return list[_python_type(kind.elementType, name) | None]  # type: ignore[misc]
    if isinstance(kind, StructType):
        inner = {one.name: _python_type(one.dataType, name) | None for one in kind.fields}
        return TypedDict(f"Struct_{id(kind)}", inner, total=False)  # type: ignore[operator]
    for spark_type, python_type in _SIMPLE.items():
        if isinstance(kind, spark_type):
            return python_type
    raise JournalReadError(
        f"column {name}: {kind.simpleString()} cannot be read from messages; read the column body"
    )
