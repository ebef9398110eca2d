"""Decodes the messages that a server sends, for a client within this process.

The client that needs them (server/sql/local_client.py) speaks to this server only, so messages are
well formed; messages that tell it nothing are skipped. Source: PostgreSQL 16 documentation, 55.7.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from server.sql.postgres.errors import Diagnostic
from server.sql.postgres.messages import (
    PROTOCOL_VERSION,
    TransactionStatus,
    encode_message,
    encode_string,
)

_HEAD: Final = Struct(">cI")
_INT16: Final = Struct(">H")
_INT32: Final = Struct(">I")
_SIGNED_INT32: Final = Struct(">i")
_TWO_INT32: Final = Struct(">II")
_FIELD: Final = Struct(">IHIhiH")


class ColumnsMessage(NamedTuple):
    """RowDescription: the rows that follow have these columns.

    Attributes:
        columns: the name and the OID of the type of each.
    """

    columns: Sequence[tuple[str, int]]


class RowMessage(NamedTuple):
    """DataRow: a row.

    Attributes:
        values: the values in their text format; None for NULL.
    """

    values: Sequence[str | None]


class TagMessage(NamedTuple):
    """CommandComplete: a statement has been executed.

    Attributes:
        tag: the tag of the statement, such as "SELECT 5"; empty for an empty text.
    """

    tag: str


class ErrorMessage(NamedTuple):
    """ErrorResponse: a statement, or the connection, has failed.

    Attributes:
        diagnostic: the error.
    """

    diagnostic: Diagnostic


class CopyInMessage(NamedTuple):
    """CopyInResponse: a statement asks for data."""


class KeyMessage(NamedTuple):
    """BackendKeyData: the key with which a statement of the connection is cancelled.

    Attributes:
        process_id: the number of the connection.
        secret: its secret.
    """

    process_id: int
    secret: int


class ReadyMessage(NamedTuple):
    """ReadyForQuery: the server waits for the next statements.

    Attributes:
        status: the state of the transaction.
    """

    status: TransactionStatus


ServerMessage: TypeAlias = (
    ColumnsMessage
    | RowMessage
    | TagMessage
    | ErrorMessage
    | CopyInMessage
    | KeyMessage
    | ReadyMessage
)


def startup_message(parameters: dict[str, str]) -> bytes:
    """Encode the first message of a client.

    Args:
        parameters: `user`, and settings of the session.
    """
    texts = [part for pair in parameters.items() for part in pair]
    content = _INT32.pack(PROTOCOL_VERSION) + b"".join(map(encode_string, texts)) + b"\0"
    return encode_message(b"", content)


def query_message(text: str) -> bytes:
    """Encode the request to execute statements (Query)."""
    return encode_message(b"Q", encode_string(text))


def copy_fail_message(reason: str) -> bytes:
    """Encode the refusal to send data (CopyFail)."""
    return encode_message(b"f", encode_string(reason))


class ServerMessageReader:
    """Splits the bytes of a server into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[ServerMessage]:
        """Take bytes, and yield the messages that they complete."""
        buffer = self._buffer
        buffer += data
        position = 0
        while len(buffer) - position >= _HEAD.size:
            code, length = _HEAD.unpack_from(buffer, position)
            end = position + 1 + length
            if len(buffer) < end:
                break
            message = _decode(code, bytes(buffer[position + _HEAD.size : end]))
            position = end
            if message is not None:
                yield message
        del buffer[:position]


def _decode(code: bytes, content: bytes) -> ServerMessage | None:
    """Return a message; None for one that a client need not know."""
    match code:
        case b"D":
            return RowMessage(_row_values(content))
        case b"T":
            return ColumnsMessage(list(_columns(content)))
        case b"C":
            return TagMessage(content[:-1].decode())
        case b"I":
            return TagMessage("")
        case b"E":
            return ErrorMessage(_diagnostic(content))
        case b"G":
            return CopyInMessage()
        case b"K":
            return KeyMessage(*_TWO_INT32.unpack(content))
        case b"Z":
            return ReadyMessage(TransactionStatus(content))
        case _:
            return None


def _row_values(content: bytes) -> list[str | None]:
    values: list[str | None] = []
    position = _INT16.size
    while position < len(content):
        (length,) = _SIGNED_INT32.unpack_from(content, position)
        position += _SIGNED_INT32.size
        if length < 0:
            values.append(None)
            continue
        values.append(content[position : position + length].decode())
        position += length
    return values


def _columns(content: bytes) -> Iterator[tuple[str, int]]:
    position = _INT16.size
    while position < len(content):
        end = content.index(0, position)
        name = content[position:end].decode()
        type_oid = _FIELD.unpack_from(content, end + 1)[2]
        position = end + 1 + _FIELD.size
        yield name, type_oid


def _diagnostic(content: bytes) -> Diagnostic:
    fields = {part[:1]: part[1:].decode() for part in content.split(b"\0") if part}
    return Diagnostic(
        fields.get(b"C", ""),
        fields.get(b"M", ""),
        fields.get(b"S", ""),
        fields.get(b"D", ""),
        fields.get(b"H", ""),
        int(fields.get(b"P", "0")),
    )
