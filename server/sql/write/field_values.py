"""Values of a result as values of fields.

A text for a column of numbers, booleans or arrays is converted, as in PostgreSQL. Other values keep
their types: a column is widened by a value, the value is not narrowed by the column. So a number in
a column of texts stays a number, whatever values the server has happened to see before.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Final, cast

import msgspec

from server.message_types.json_type import JsonType
from server.sql.query.errors import SqlError
from server.sql.query.tables import SqlType
from server.sql.sqlstate import (
    DATATYPE_MISMATCH,
    FEATURE_NOT_SUPPORTED,
    INVALID_PARAMETER_VALUE,
    INVALID_TEXT_REPRESENTATION,
    NOT_NULL_VIOLATION,
    NUMERIC_VALUE_OUT_OF_RANGE,
)

if TYPE_CHECKING:
    from server.message_types.base import FieldValue, MessageType, Value

_JSON_OIDS: Final = frozenset({114, 3802})
_UUID_OID: Final = 2950
_INT64: Final = 1 << 63
_MAX_NUMBER_LENGTH: Final = 400
"""Characters of a text that may be a number."""

_TRUE: Final = frozenset({"t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"})
_FALSE: Final = frozenset({"f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"})


class FieldTarget:
    """A column that is written.

    Args:
        name: the column's name.
        sql_type: the type of the values that it has; None if it has none yet.
        message_type: the type of the messages.
        has_fields: whether the column consists of others: a scalar would replace an object.
    """

    def __init__(
        self,
        name: str,
        sql_type: SqlType | None,
        message_type: MessageType,
        *,
        has_fields: bool = False,
    ) -> None:
        self._has_fields: Final = has_fields
        self._name: Final = name
        self._type: Final = sql_type
        self._is_typed: Final = message_type.capabilities.typed
        self._has_objects: Final = isinstance(message_type, JsonType)

    def to_value(self, value: object, oid: int) -> Value:
        """Return a value of a result as the value of the field.

        Args:
            value: the value, as Arrow returns it.
            oid: the type of the result's column.

        Raises:
            SqlError: the column does not take the value.
        """
        plain = self._to_plain(value, oid)
        if self._has_fields and not isinstance(plain, list | dict | None):
            raise self._error(
                DATATYPE_MISMATCH,
                "it consists of other columns",
                hint="Set these, or a value of type jsonb.",
            )
        is_exact = oid in _JSON_OIDS  # the client has chosen the type
        if plain is None or self._type is None or is_exact or not self._is_typed:
            return plain
        return self._to_column_type(plain)

    def _to_plain(self, value: object, oid: int) -> Value:
        match value:
            case None | bool():
                return value
            case str() if oid in _JSON_OIDS:
                return self._from_json(value)
            case str() | int():
                return value
            case float():
                if not math.isfinite(value):
                    raise self._error(NUMERIC_VALUE_OUT_OF_RANGE, f"{value} is no finite number")
                return value
            case Decimal():
                return self._from_decimal(value)
            case datetime() | date() | time():
                return value.isoformat()
            case bytes() if oid == _UUID_OID and len(value) == 16:
                return str(uuid.UUID(bytes=value))
            case bytes():
                raise self._error(
                    DATATYPE_MISMATCH,
                    "it has no values of type bytea",
                    hint="Write bytes as a whole message, by the column _body, or as text.",
                )
            case list():
                return [self._to_plain(element, 0) for element in value]
            case _:
                raise self._error(
                    DATATYPE_MISMATCH,
                    "it has no values of this type",
                    hint="Cast the value to text, a number, a boolean or jsonb.",
                )

    def _from_decimal(self, value: Decimal) -> Value:
        if not self._is_typed:
            return format(value, "f")
        exponent = value.as_tuple().exponent
        if exponent == 0 or (self._type is SqlType.BIGINT and value == value.to_integral_value()):
            return int(value)
        return float(value)

    def _from_json(self, text: str) -> Value:
        """Decode a value of json or jsonb; objects are for messages that nest."""
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            raise self._error(
                INVALID_TEXT_REPRESENTATION, f'invalid input syntax for type json: "{text[:60]}"'
            ) from None
        if not self._has_objects and _has_object(value):
            raise self._error(
                FEATURE_NOT_SUPPORTED,
                "messages of this type have no objects as values",
                hint="Write the fields of the object as columns.",
            )
        return cast("Value", value)

    def _to_column_type(self, value: Value) -> Value:
        match self._type:
            case SqlType.BOOLEAN:
                if isinstance(value, str):
                    return self._to_boolean(value)
                is_fitting = isinstance(value, bool)
            case SqlType.BIGINT | SqlType.DOUBLE:
                if isinstance(value, str):
                    return self._to_number(value)
                if self._type is SqlType.BIGINT and isinstance(value, float):
                    is_whole = value.is_integer() and abs(value) < _INT64
                    return int(value) if is_whole else value
                is_fitting = isinstance(value, int | float) and not isinstance(value, bool)
            case SqlType.JSONB:
                if isinstance(value, str):
                    return self._from_json(value)
                is_fitting = isinstance(value, list | dict)
            case _:
                is_fitting = True
        if not is_fitting:
            raise self._error(DATATYPE_MISMATCH, "the expression is of another type")
        return value

    def _to_boolean(self, text: str) -> bool:
        word = text.strip().lower()
        if word in _TRUE:
            return True
        if word in _FALSE:
            return False
        raise self._error(
            INVALID_TEXT_REPRESENTATION, f'invalid input syntax for type boolean: "{text[:60]}"'
        )

    def _to_number(self, text: str) -> int | float:
        word = text.strip()
        number: int | float
        if len(word) <= _MAX_NUMBER_LENGTH and word.isascii() and "_" not in word:
            try:
                number = int(word)
            except ValueError:
                try:
                    number = float(word)
                except ValueError:
                    number = math.nan
            if math.isfinite(number):
                return number
        assert self._type is not None  # noqa: S101 - by the caller
        raise self._error(
            INVALID_TEXT_REPRESENTATION,
            f'invalid input syntax for type {self._type.sql_name}: "{text[:60]}"',
        )

    def _error(self, sqlstate: str, problem: str, *, hint: str | None = None) -> SqlError:
        kind = "" if self._type is None else f" of type {self._type.sql_name}"
        return SqlError(sqlstate, f'column "{self._name}"{kind}: {problem}', hint=hint)


def to_body(value: object, *, is_binary: bool) -> bytes:
    """Return a value of the column `_body` as a message.

    Args:
        value: the value.
        is_binary: the column is of type bytea: a text that begins with `\\x` has hex digits.

    Raises:
        SqlError: it is NULL, or neither a text nor bytes.
    """
    match value:
        case bytes():
            return value
        case str():
            if is_binary and value.startswith("\\x"):
                try:
                    return bytes.fromhex(value[2:])
                except ValueError:
                    raise SqlError(
                        INVALID_TEXT_REPRESENTATION, "invalid input syntax for type bytea"
                    ) from None
            return value.encode("utf-8", "surrogateescape")
        case None:
            raise SqlError(
                NOT_NULL_VIOLATION, 'null value in column "_body" violates not-null constraint'
            )
        case _:
            raise SqlError(DATATYPE_MISMATCH, 'column "_body" is of type text or bytea')


def check_verbatim(message_type: MessageType, fields: Sequence[FieldValue], body: bytes) -> None:
    """Raise an error if messages of texts cannot have some values as they are.

    A separator within a value of `fix`, or a character that XML lacks, would be replaced.

    Args:
        message_type: the type of the message.
        fields: the fields that it was built from.
        body: the message.

    Raises:
        SqlError: a value reads otherwise than it was written.
    """
    if message_type.capabilities.typed:
        return
    texts = [(path, value) for path, value in fields if isinstance(value, str | list)]
    read = message_type.extractor([path for path, _ in texts])(body)
    for (path, value), found in zip(texts, read, strict=True):
        if [text for text in _flat(value) if isinstance(text, str)] != [
            text for text in _flat(found) if isinstance(text, str)
        ] and not _has_other(value):
            raise SqlError(
                INVALID_PARAMETER_VALUE,
                f'messages of type {message_type.name} cannot have this value of "'
                + ".".join(map(str, path))
                + '"',
                hint="It has a separator or a character that the format does not allow.",
            )


def _flat(value: Value) -> list[Value]:
    values = value if isinstance(value, list) else [value]
    return [element for element in values if element not in (None, "")]


def _has_other(value: Value) -> bool:
    """Return whether a list has values that are no texts, which are written as texts."""
    return any(not isinstance(element, str) for element in _flat(value))


def _has_object(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_has_object, value))
    return isinstance(value, dict)
