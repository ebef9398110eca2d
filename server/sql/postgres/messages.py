"""Backend messages of PostgreSQL's protocol 3.0: encoding of the messages that servers send.

`frontend_messages` has the form of messages.
Source: PostgreSQL 16 documentation, 55.7 (message formats).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from struct import Struct
from typing import Final

from server.sql.postgres.errors import Diagnostic
from server.sql.postgres.types import TYPES, VARIABLE_LENGTH, ResultColumn

PROTOCOL_VERSION: Final = 3 << 16
"""The version that the server speaks: 3.0. Newer clients may ask for 3.2, and agree to 3.0."""

TEXT_FORMAT: Final = 0
BINARY_FORMAT: Final = 1

_INT16: Final = Struct(">H")
_INT32: Final = Struct(">I")
_TWO_INT32: Final = Struct(">II")
_FIELD: Final = Struct(">IHIhiH")


class TransactionStatus(Enum):
    """The state of a transaction that ReadyForQuery reports."""

    IDLE = b"I"
    ACTIVE = b"T"
    FAILED = b"E"


SSL_ACCEPTED: Final = b"S"
ENCRYPTION_REFUSED: Final = b"N"


def encode_message(code: bytes, content: bytes = b"") -> bytes:
    """Encode a message from its type and content."""
    return code + _INT32.pack(len(content) + 4) + content


def encode_string(text: str) -> bytes:
    """Encode a string. A zero byte would end it, and is left out."""
    return text.encode(errors="replace").replace(b"\0", b"") + b"\0"


AUTHENTICATION_OK: Final = encode_message(b"R", _INT32.pack(0))
AUTHENTICATION_CLEARTEXT_PASSWORD: Final = encode_message(b"R", _INT32.pack(3))
PARSE_COMPLETE: Final = encode_message(b"1")
BIND_COMPLETE: Final = encode_message(b"2")
CLOSE_COMPLETE: Final = encode_message(b"3")
NO_DATA: Final = encode_message(b"n")
EMPTY_QUERY_RESPONSE: Final = encode_message(b"I")
PORTAL_SUSPENDED: Final = encode_message(b"s")
COPY_DONE: Final = encode_message(b"c")


def authentication_sasl(mechanisms: Iterable[str]) -> bytes:
    """Encode the request to authenticate by one of the SASL mechanisms."""
    return encode_message(b"R", _INT32.pack(10) + b"".join(map(encode_string, mechanisms)) + b"\0")


def authentication_sasl_continue(data: bytes) -> bytes:
    """Encode the challenge of a SASL mechanism."""
    return encode_message(b"R", _INT32.pack(11) + data)


def authentication_sasl_final(data: bytes) -> bytes:
    """Encode the outcome of a SASL mechanism."""
    return encode_message(b"R", _INT32.pack(12) + data)


def negotiate_protocol_version(unknown_options: Sequence[str]) -> bytes:
    """Encode the answer to a startup message of a newer minor version, or with unknown options."""
    options = b"".join(map(encode_string, unknown_options))
    return encode_message(b"v", _TWO_INT32.pack(PROTOCOL_VERSION, len(unknown_options)) + options)


def parameter_status(name: str, value: str) -> bytes:
    """Encode the value of a setting that clients want to know."""
    return encode_message(b"S", encode_string(name) + encode_string(value))


def backend_key_data(process_id: int, secret: int) -> bytes:
    """Encode the numbers that a CancelRequest for this connection needs."""
    return encode_message(b"K", _TWO_INT32.pack(process_id, secret))


def ready_for_query(status: TransactionStatus) -> bytes:
    """Encode that the server waits for the next statement."""
    return encode_message(b"Z", status.value)


def row_description(columns: Sequence[ResultColumn], formats: Sequence[int]) -> bytes:
    """Encode the columns of a result.

    Args:
        columns: the columns.
        formats: the format of each; TEXT_FORMAT where it is not known yet.
    """
    parts = [_INT16.pack(len(columns))]
    for column, column_format in zip(columns, formats, strict=True):
        known = TYPES.get(column.type_oid)
        parts.append(encode_string(column.name))
        parts.append(
            _FIELD.pack(
                0,  # the OID of the table, and the number of its column: none
                0,
                column.type_oid,
                known.length if known is not None else VARIABLE_LENGTH,
                -1,  # the modifier of the type: none
                column_format,
            )
        )
    return encode_message(b"T", b"".join(parts))


def command_complete(tag: str) -> bytes:
    """Encode the end of a statement, such as "SELECT 5"."""
    return encode_message(b"C", encode_string(tag))


def parameter_description(types: Sequence[int]) -> bytes:
    """Encode the types of a prepared statement's parameters."""
    return encode_message(b"t", _INT16.pack(len(types)) + b"".join(map(_INT32.pack, types)))


def copy_out_response(formats: Sequence[int], *, binary: bool = False) -> bytes:
    """Encode the start of COPY TO STDOUT.

    Args:
        formats: the format of each column.
        binary: whether the data have the binary format of COPY.
    """
    head = bytes([binary]) + _INT16.pack(len(formats))
    return encode_message(b"H", head + b"".join(map(_INT16.pack, formats)))


def copy_in_response(column_count: int, *, binary: bool = False) -> bytes:
    """Encode the request for the data of COPY FROM STDIN.

    Args:
        column_count: the number of columns.
        binary: whether the data have the binary format of COPY.
    """
    head = bytes([binary]) + _INT16.pack(column_count)
    return encode_message(b"G", head + _INT16.pack(binary) * column_count)


def copy_data(data: bytes) -> bytes:
    """Encode data of COPY TO STDOUT, one row as a rule."""
    return encode_message(b"d", data)


def notification_response(process_id: int, channel: str, payload: str) -> bytes:
    """Encode a notification to a client that listens on a channel."""
    return encode_message(
        b"A", _INT32.pack(process_id) + encode_string(channel) + encode_string(payload)
    )


def error_response(diagnostic: Diagnostic) -> bytes:
    """Encode an error."""
    position = str(diagnostic.position) if diagnostic.position > 0 else ""
    fields = (
        (b"S", diagnostic.severity),
        (b"V", diagnostic.severity),  # not translated, since 9.6
        (b"C", diagnostic.sqlstate),
        (b"M", diagnostic.message),
        (b"D", diagnostic.detail),
        (b"H", diagnostic.hint),
        (b"P", position),
        (b"R", diagnostic.routine),
    )
    content = b"".join(code + encode_string(text) for code, text in fields if text)
    return encode_message(b"E", content + b"\0")
