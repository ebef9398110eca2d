"""Infers a schema from a sample of messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from pipeline.errors import OptionError, PipelineError
from pipeline.rows import BODY, MESSAGE_METADATA
from server.message_types.base import BodyError
from server.message_types.pretty import TreeDecoder
from server.message_types.registry import MessageTypes

if TYPE_CHECKING:
    from pipeline.expressions.environment import Environment

BodyDecoder: TypeAlias = Callable[[bytes], Any]

TYPED_MODULES: Final = ("json", "bson", "msgpack", "bflat")
"""Modules of message types with typed values."""

_LONG_END = 2**63


class SchemaInferenceError(PipelineError):
    """There are no messages or fields, or a field has values of several types."""


def decoder(message_type: str | None, environment: Environment | None) -> BodyDecoder | None:
    """Return the decoder of whole bodies; None if their values have no types.

    Args:
        message_type: the message type of the bodies.
        environment: the message types of a configuration; None without one.
    """
    if message_type is None:
        return None
    module = message_type if environment is None else environment.module(message_type)
    if module == "json":
        return msgspec.json.decode
    if module not in TYPED_MODULES:
        return None
    find = MessageTypes().get if environment is None else environment.message_type
    kind = find(message_type)
    return kind.tree if isinstance(kind, TreeDecoder) else None


def infer_schema(
    bodies: Iterable[bytes], decode: BodyDecoder = msgspec.json.decode, message_type: str = "JSON"
) -> StructType:
    """Return the fields of some bodies, with their types.

    Args:
        bodies: the sample.
        decode: decodes a body.
        message_type: the name of the type for messages.

    Returns:
        The fields in the order in which they first occur. A field that is always NULL is a text.

    Raises:
        SchemaInferenceError: there are no fields, or a field has values of several types.
        PipelineError: a field has the name of another column, or a message cannot be decoded.
    """
    inferred: DataType = NullType()
    for body in bodies:
        try:
            value = decode(body)
        except (msgspec.DecodeError, BodyError) as error:
            raise OptionError(
                f"option sample: a message is not valid {message_type}: {error};"
                f" message: {body[:200]!r}"
            ) from None
        inferred = _joined(inferred, _type_of(value), "the body")
    if not isinstance(inferred, StructType) or not inferred.fields:
        raise SchemaInferenceError(
            "option sample: the topic has no messages with fields to infer a schema from;"
            " specify one with .schema()"
        )
    for name in inferred.names:
        if name == BODY or (name.startswith("_") and name[1:] in MESSAGE_METADATA):
            raise OptionError(
                f"option sample: the messages have a field {name!r}, which is the name of a"
                " metadata column; specify a schema without it with .schema()"
            )
    return _replace_null_types(inferred)


def _type_of(value: object) -> DataType:
    match value:
        case None:
            return NullType()
        case bool():
            return BooleanType()
        case int():
            return LongType() if -_LONG_END <= value < _LONG_END else DoubleType()
        case float():
            return DoubleType()
        case str():
            return StringType()
        case list():
            element: DataType = NullType()
            for item in value:
                element = _joined(element, _type_of(item), "an array")
            return ArrayType(element)
        case dict():
            return StructType([StructField(name, _type_of(item)) for name, item in value.items()])
    raise AssertionError(f"{value!r} is not a JSON value")


def _joined(kind: DataType, other_kind: DataType, where: str) -> DataType:
    if kind == other_kind or isinstance(other_kind, NullType):
        return kind
    if isinstance(kind, NullType):
        return other_kind
    if {type(kind), type(other_kind)} == {LongType, DoubleType}:
        return DoubleType()
    if isinstance(kind, ArrayType) and isinstance(other_kind, ArrayType):
        return ArrayType(_joined(kind.elementType, other_kind.elementType, where))
    if isinstance(kind, StructType) and isinstance(other_kind, StructType):
        fields = {field.name: field.dataType for field in kind}
        for field in other_kind:
            known = fields.get(field.name, NullType())
            fields[field.name] = _joined(known, field.dataType, f"field {field.name!r}")
        return StructType([StructField(name, kind) for name, kind in fields.items()])
    raise SchemaInferenceError(
        f"option sample: {where} is {kind.simpleString()} in one message and"
        f" {other_kind.simpleString()} in another; specify a schema with .schema(), or read bodies"
    )


def _replace_null_types(kind: StructType) -> StructType:
    return StructType([StructField(field.name, _without_null(field.dataType)) for field in kind])


def _without_null(kind: DataType) -> DataType:
    if isinstance(kind, NullType):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(_without_null(kind.elementType))
    if isinstance(kind, StructType):
        return _replace_null_types(kind)
    return kind
