"""Frontend messages of PostgreSQL's protocol 3.0: decoding of the messages that clients send.

    type (1 byte; the first messages have none), length (4 bytes, itself included), content

Strings end with a zero byte. Numbers are big-endian.
Source: PostgreSQL 16 documentation, 55.7 (message formats).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from struct import unpack
from types import MappingProxyType
from typing import Final, NamedTuple

from server.sql.postgres.messages import BINARY_FORMAT, TEXT_FORMAT
from server.sql.sqlstate import PROTOCOL_VIOLATION

PROTOCOL_MAJOR: Final = 3
CANCEL_REQUEST_CODE: Final = 80877102
SSL_REQUEST_CODE: Final = 80877103
GSSENC_REQUEST_CODE: Final = 80877104

MAX_STARTUP_PACKET: Final = 10_000  # as PostgreSQL
MAX_SMALL_MESSAGE: Final = 10_000  # of messages that name something; as PostgreSQL
MAX_AUTHENTICATION_MESSAGE: Final = 65_535  # as PostgreSQL
MAX_PARAMETERS: Final = 10_000
"""Parameters of a statement, and columns of its result whose formats a client names."""

_FORMATS: Final = frozenset((TEXT_FORMAT, BINARY_FORMAT))


class ProtocolViolationError(ValueError):
    """Bytes that the protocol does not allow. The rest of the stream cannot be trusted.

    The text goes to the log and to the client. It quotes no bytes of the client: they may be a
    password.

    Attributes:
        sqlstate: the code for the client.
    """

    def __init__(self, message: str, sqlstate: str = PROTOCOL_VIOLATION) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class StartupMessage(NamedTuple):
    """The first message of a session.

    Attributes:
        minor_version: the minor version of the protocol that the client asks for.
        parameters: the settings, such as user and database.
    """

    minor_version: int
    parameters: Mapping[str, str]


class SslRequest(NamedTuple):
    """The request to encrypt the connection by TLS, in place of a startup message."""


class GssEncryptionRequest(NamedTuple):
    """The request to encrypt the connection by GSSAPI, in place of a startup message."""


class CancelRequest(NamedTuple):
    """The request to cancel the statement of another connection, in place of a startup message.

    Attributes:
        process_id: the number of that connection, from its BackendKeyData.
        secret: its secret.
    """

    process_id: int
    secret: int


class PasswordMessage(NamedTuple):
    """An answer to an authentication request. Its content depends on the request.

    Attributes:
        content: the bytes after the length.
    """

    content: bytes


class SimpleQuery(NamedTuple):
    """One or more statements, to be executed at once (Query).

    Attributes:
        text: the statements.
    """

    text: str


class Parse(NamedTuple):
    """A statement to prepare.

    Attributes:
        name: the name of the prepared statement; empty for the unnamed one.
        text: the statement.
        parameter_types: OIDs of the first parameters; 0 for a type that the server determines.
    """

    name: str
    text: str
    parameter_types: tuple[int, ...]


class Bind(NamedTuple):
    """Values for the parameters of a prepared statement, which make a portal of it.

    Attributes:
        portal: the name of the portal; empty for the unnamed one.
        statement: the name of the prepared statement.
        parameter_formats: none for text, one for all, or one for each parameter.
        parameters: the values; None for NULL.
        result_formats: none for text, one for all, or one for each column of the result.
    """

    portal: str
    statement: str
    parameter_formats: tuple[int, ...]
    parameters: tuple[bytes | None, ...]
    result_formats: tuple[int, ...]


class Describe(NamedTuple):
    """The request for the columns of a prepared statement or of a portal.

    Attributes:
        is_portal: whether it is a portal.
        name: its name.
    """

    is_portal: bool
    name: str


class Close(NamedTuple):
    """The end of a prepared statement or of a portal.

    Attributes:
        is_portal: whether it is a portal.
        name: its name.
    """

    is_portal: bool
    name: str


class Execute(NamedTuple):
    """The request for rows of a portal.

    Attributes:
        portal: its name.
        row_limit: the number of rows to send; 0 for all.
    """

    portal: str
    row_limit: int


class Sync(NamedTuple):
    """The end of a sequence of messages of the extended protocol."""


class Flush(NamedTuple):
    """The request to send the answers so far."""


class CopyData(NamedTuple):
    """Data of COPY FROM STDIN.

    Attributes:
        data: any number of bytes.
    """

    data: bytes


class CopyDone(NamedTuple):
    """The end of the data of COPY FROM STDIN."""


class CopyFail(NamedTuple):
    """The client ends COPY FROM STDIN with an error.

    Attributes:
        reason: its message.
    """

    reason: str


class FunctionCall(NamedTuple):
    """A call of a function by its OID, which no driver sends any more; its content is ignored."""


class Terminate(NamedTuple):
    """The end of the session."""


FrontendMessage = (
    PasswordMessage
    | SimpleQuery
    | Parse
    | Bind
    | Describe
    | Close
    | Execute
    | Sync
    | Flush
    | CopyData
    | CopyDone
    | CopyFail
    | FunctionCall
    | Terminate
)
InitialMessage = StartupMessage | SslRequest | GssEncryptionRequest | CancelRequest


class SaslInitialResponse(NamedTuple):
    """The first answer of a client to a SASL request, the content of a PasswordMessage.

    Attributes:
        mechanism: the mechanism that the client has chosen.
        data: its first message; None for none.
    """

    mechanism: str
    data: bytes | None


class _Content:
    """Reads fields from the content of a message; every error is a ProtocolViolationError.

    Args:
        content: the content.
    """

    __slots__ = ("_content", "_position")

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def read_bytes(self, size: int) -> bytes:
        start = self._position
        if size > len(self._content) - start:
            raise ProtocolViolationError("insufficient data left in message")
        self._position = start + size
        return self._content[start : self._position]

    def read_int16(self) -> int:
        return int.from_bytes(self.read_bytes(2), "big")

    def read_int32(self) -> int:
        return int.from_bytes(self.read_bytes(4), "big")

    def read_signed_int32(self) -> int:
        return int.from_bytes(self.read_bytes(4), "big", signed=True)

    def read_string(self) -> str:
        end = self._content.find(b"\0", self._position)
        if end < 0:
            raise ProtocolViolationError("invalid string in message")
        found = self._content[self._position : end]
        self._position = end + 1
        return _decode(found)

    def read_kind(self) -> bool:
        """Read S or P, and return True for a portal."""
        kind = self.read_bytes(1)
        if kind not in (b"S", b"P"):
            raise ProtocolViolationError(f"invalid message subtype 0x{kind[0]:02x}")
        return kind == b"P"

    def read_formats(self) -> tuple[int, ...]:
        formats = self.read_numbers("H", 2)
        if not _FORMATS.issuperset(formats):
            raise ProtocolViolationError("invalid format code")
        return formats

    def read_numbers(self, code: str, size: int) -> tuple[int, ...]:
        """Read a count and as many numbers, of a format character and size of struct."""
        count = self.read_count()
        return unpack(f">{count}{code}", self.read_bytes(count * size))

    def read_count(self) -> int:
        count = self.read_int16()
        if count > MAX_PARAMETERS:
            raise ProtocolViolationError(f"more than {MAX_PARAMETERS} parameters or formats")
        return count

    def read_value(self) -> bytes | None:
        size = self.read_signed_int32()
        if size < -1:
            raise ProtocolViolationError("invalid length of a value in message")
        return None if size == -1 else self.read_bytes(size)

    @property
    def rest(self) -> int:
        return len(self._content) - self._position

    def end(self) -> None:
        if self.rest:
            raise ProtocolViolationError("invalid message format")


def _decode(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ProtocolViolationError("invalid byte sequence for encoding UTF8") from None


def decode_initial_message(content: bytes) -> InitialMessage:
    """Decode a message without a type, as the first ones of a connection are.

    Args:
        content: the bytes after the length.

    Raises:
        ProtocolViolationError: it is none.
    """
    reader = _Content(content)
    code = reader.read_int32()
    if code == SSL_REQUEST_CODE:
        reader.end()
        return SslRequest()
    if code == GSSENC_REQUEST_CODE:
        reader.end()
        return GssEncryptionRequest()
    if code == CANCEL_REQUEST_CODE:
        request = CancelRequest(reader.read_int32(), reader.read_int32())
        reader.end()
        return request
    major, minor = code >> 16, code & 0xFFFF
    if major != PROTOCOL_MAJOR:
        raise ProtocolViolationError(
            f"unsupported frontend protocol {major}.{minor}: server supports 3.0", "0A000"
        )
    parameters: dict[str, str] = {}
    while name := reader.read_string():
        parameters[name] = reader.read_string()
    reader.end()
    return StartupMessage(minor, parameters)


def decode_message(code: int, content: bytes) -> FrontendMessage:
    """Decode a message.

    Args:
        code: its type, one of FRONTEND_LIMITS.
        content: the bytes after the length.

    Raises:
        ProtocolViolationError: the content does not have the form of this type.
    """
    reader = _Content(content)
    message = _DECODERS[code](reader)
    reader.end()
    return message


def decode_sasl_initial_response(content: bytes) -> SaslInitialResponse:
    """Decode the content of a PasswordMessage that answers a SASL request.

    Raises:
        ProtocolViolationError: it is something else.
    """
    reader = _Content(content)
    response = SaslInitialResponse(reader.read_string(), reader.read_value())
    reader.end()
    return response


def decode_password(content: bytes) -> str:
    """Decode the content of a PasswordMessage that answers the request for a password.

    Raises:
        ProtocolViolationError: it is something else.
    """
    reader = _Content(content)
    password = reader.read_string()
    reader.end()
    return password


def _decode_password_message(reader: _Content) -> PasswordMessage:
    return PasswordMessage(reader.read_bytes(reader.rest))


def _decode_query(reader: _Content) -> SimpleQuery:
    return SimpleQuery(reader.read_string())


def _decode_parse(reader: _Content) -> Parse:
    name, text = reader.read_string(), reader.read_string()
    return Parse(name, text, reader.read_numbers("I", 4))


def _decode_bind(reader: _Content) -> Bind:
    portal, statement = reader.read_string(), reader.read_string()
    formats = reader.read_formats()
    parameters = tuple(reader.read_value() for _ in range(reader.read_count()))
    return Bind(portal, statement, formats, parameters, reader.read_formats())


def _decode_describe(reader: _Content) -> Describe:
    return Describe(reader.read_kind(), reader.read_string())


def _decode_close(reader: _Content) -> Close:
    return Close(reader.read_kind(), reader.read_string())


def _decode_execute(reader: _Content) -> Execute:
    return Execute(reader.read_string(), max(reader.read_signed_int32(), 0))


def _decode_copy_data(reader: _Content) -> CopyData:
    return CopyData(reader.read_bytes(reader.rest))


def _decode_copy_fail(reader: _Content) -> CopyFail:
    return CopyFail(reader.read_string())


def _decode_function_call(reader: _Content) -> FunctionCall:
    reader.read_bytes(reader.rest)
    return FunctionCall()


class _Size(Enum):
    """How long a message may be."""

    SMALL = MAX_SMALL_MESSAGE
    AUTHENTICATION = MAX_AUTHENTICATION_MESSAGE
    ANY = None


_FRONTEND: Final[Mapping[int, tuple[_Size, Callable[[_Content], FrontendMessage]]]] = (
    MappingProxyType(
        {
            ord("p"): (_Size.AUTHENTICATION, _decode_password_message),
            ord("Q"): (_Size.ANY, _decode_query),
            ord("P"): (_Size.ANY, _decode_parse),
            ord("B"): (_Size.ANY, _decode_bind),
            ord("D"): (_Size.SMALL, _decode_describe),
            ord("C"): (_Size.SMALL, _decode_close),
            ord("E"): (_Size.SMALL, _decode_execute),
            ord("S"): (_Size.SMALL, lambda _: Sync()),
            ord("H"): (_Size.SMALL, lambda _: Flush()),
            ord("d"): (_Size.ANY, _decode_copy_data),
            ord("c"): (_Size.SMALL, lambda _: CopyDone()),
            ord("f"): (_Size.SMALL, _decode_copy_fail),
            ord("F"): (_Size.ANY, _decode_function_call),
            ord("X"): (_Size.SMALL, lambda _: Terminate()),
        }
    )
)
_DECODERS: Final = {code: decoder for code, (_, decoder) in _FRONTEND.items()}
FRONTEND_LIMITS: Final[Mapping[int, int | None]] = MappingProxyType(
    {code: size.value for code, (size, _) in _FRONTEND.items()}
)
"""The types of messages, with the limit of their content; None for the connection's own limit."""
