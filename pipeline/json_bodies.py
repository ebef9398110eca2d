"""JSON bodies from columns, in batches, by compiled code (`pipeline.native.json_write`).

The body of a row has no field for a NULL; within structs and arrays, NULL is `null`. Maps, and
other types that compiled code does not write, are first encoded as JSON value by value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from pipeline.errors import SchemaError
from pipeline.native.json_write import Form, Source, Writer
from pipeline.packed_bodies import PackedBodies

_encode: Final = msgspec.json.Encoder(decimal_format="number").encode


class _ValueFormat(NamedTuple):
    """How values are written: their form and width."""

    form: Form
    width: int = 0


_PLAIN: Final[Mapping[pa.DataType, _ValueFormat]] = {
    pa.int8(): _ValueFormat(Form.WHOLE, 1),
    pa.int16(): _ValueFormat(Form.WHOLE, 2),
    pa.int32(): _ValueFormat(Form.WHOLE, 4),
    pa.int64(): _ValueFormat(Form.WHOLE, 8),
    pa.float32(): _ValueFormat(Form.REAL, 4),
    pa.float64(): _ValueFormat(Form.REAL, 8),
    pa.bool_(): _ValueFormat(Form.TRUTH),
    pa.date32(): _ValueFormat(Form.DAY),
    pa.timestamp("us"): _ValueFormat(Form.CLOCK),
    pa.string(): _ValueFormat(Form.TEXT),
    pa.binary(): _ValueFormat(Form.BYTES),
}
_MOMENT: Final = _ValueFormat(Form.MOMENT)
_LARGE: Final[Mapping[pa.DataType, pa.DataType]] = {
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}


class JsonWriter:
    """Writes bodies of the type `json`."""

    def __init__(self) -> None:
        self._writer = Writer()

    def bodies(self, batch: pa.RecordBatch) -> PackedBodies:
        """Return the bodies of some rows.

        Raises:
            PipelineError: a column has a value that cannot be written.
        """
        sources = [
            _source(column, name, name)
            for column, name in zip(batch.columns, batch.schema.names, strict=True)
        ]
        try:
            data, ends = self._writer.write(sources, batch.num_rows)
        except OverflowError as error:
            raise SchemaError(f"schema: a row cannot be published: {error}") from None
        places = np.frombuffer(ends, np.int64)
        return PackedBodies(data, np.concatenate([np.zeros(1, np.int64), places])[:-1], places)


def _source(array: pa.Array, name: str | None, path: str) -> Source:
    """Return the source of a column, a struct member, or array elements, which have no name.

    Args:
        array: the values.
        name: the name in the body.
        path: the path, for errors.
    """
    key = b"" if name is None else _encode(name) + b":"
    kind = array.type
    if kind in _LARGE:
        array = array.cast(_LARGE[kind])
    written = _MOMENT if _is_moment(kind) else _PLAIN.get(array.type)
    if written is not None:
        if written.form == Form.TEXT:
            _check_text(array, path)
        valid, *buffers = array.buffers()
        places = buffers[0] if len(buffers) == 2 else None
        return Source(key, *written, array.offset, valid, buffers[-1], places, ())
    if pa.types.is_struct(kind) and len({field.name for field in kind}) == kind.num_fields:
        members = [
            _source(array.field(number), field.name, f"{path}.{field.name}")
            for number, field in enumerate(kind)
        ]
        return Source(key, Form.OBJECT, 0, array.offset, array.buffers()[0], None, None, members)
    if pa.types.is_list(kind):
        valid, places = array.buffers()[:2]
        elements = _source(array.values, None, f"{path}.element")
        return Source(key, Form.ARRAY, 0, array.offset, valid, None, places, (elements,))
    texts = array.cast(pa.string()) if pa.types.is_decimal(kind) else _encoded(array, path)
    valid, places, values = texts.buffers()
    return Source(key, Form.JSON, 0, texts.offset, valid, values, places, ())


def _is_moment(kind: pa.DataType) -> bool:
    """Return whether values are timestamps of any time zone; they are written in UTC."""
    return pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz is not None


def _check_text(array: pa.Array, path: str) -> None:
    """Refuse invalid UTF-8, which Spark accepts."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raise SchemaError(
            f"schema: column {path!r} has a string that is not UTF-8, which JSON requires;"
            " decode it, or convert it to binary"
        ) from None


def _encoded(array: pa.Array, path: str) -> pa.Array:
    """Encode values of other types as JSON texts."""
    try:
        values = array.to_pylist(maps_as_pydicts="strict")
        return pa.array(
            [None if value is None else _encode(value) for value in values], pa.binary()
        )
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise SchemaError(f"schema: column {path!r} cannot be published: {error}") from None
