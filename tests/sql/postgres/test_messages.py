"""Each message of clients and of servers against its bytes."""

from __future__ import annotations

import pytest

from server.sql.postgres import frontend_messages, messages, types
from server.sql.postgres.errors import Diagnostic
from server.sql.postgres.frontend_messages import (
    Bind,
    CancelRequest,
    Close,
    CopyData,
    CopyDone,
    CopyFail,
    Describe,
    Execute,
    Flush,
    FrontendMessage,
    FunctionCall,
    GssEncryptionRequest,
    InitialMessage,
    Parse,
    PasswordMessage,
    ProtocolViolationError,
    SaslInitialResponse,
    SimpleQuery,
    SslRequest,
    StartupMessage,
    Sync,
    Terminate,
)
from server.sql.postgres.messages import TransactionStatus
from server.sql.postgres.types import ResultColumn

MESSAGES: list[tuple[bytes, FrontendMessage]] = [
    (b"Q\0\0\0\x0dselect 1\0", SimpleQuery("select 1")),
    (b"P\0\0\0\x0as\0q\0\0\0", Parse("s", "q", ())),
    (b"P\0\0\0\x10\0q $1\0\0\1\0\0\0\x14", Parse("", "q $1", (20,))),
    (b"B\0\0\0\x0c\0\0\0\0\0\0\0\0", Bind("", "", (), (), ())),
    (
        b"B\0\0\0\x21p\0s\0\0\1\0\1\0\3\0\0\0\1\x05\xff\xff\xff\xff\0\0\0\0\0\2\0\0\0\1",
        Bind("p", "s", (1,), (b"\x05", None, b""), (0, 1)),
    ),
    (b"D\0\0\0\x07Ss\0", Describe(False, "s")),
    (b"D\0\0\0\x06P\0", Describe(True, "")),
    (b"C\0\0\0\x07Ss\0", Close(False, "s")),
    (b"C\0\0\0\x06P\0", Close(True, "")),
    (b"E\0\0\0\x0ap\0\0\0\0\x64", Execute("p", 100)),
    (b"E\0\0\0\x09\0\xff\xff\xff\xff", Execute("", 0)),
    (b"S\0\0\0\4", Sync()),
    (b"H\0\0\0\4", Flush()),
    (b"X\0\0\0\4", Terminate()),
    (b"d\0\0\0\6ab", CopyData(b"ab")),
    (b"c\0\0\0\4", CopyDone()),
    (b"f\0\0\0\7no\0", CopyFail("no")),
    (b"p\0\0\0\7pw\0", PasswordMessage(b"pw\0")),
    (b"F\0\0\0\x08\0\0\0\1", FunctionCall()),
]


@pytest.mark.parametrize(("data", "expected"), MESSAGES, ids=lambda one: type(one).__name__)
def test_messages_of_clients(data: bytes, expected: FrontendMessage) -> None:
    assert int.from_bytes(data[1:5], "big") == len(data) - 1
    assert frontend_messages.decode_message(data[0], data[5:]) == expected


@pytest.mark.parametrize(("data", "expected"), MESSAGES, ids=lambda one: type(one).__name__)
def test_cut_and_extended_messages(data: bytes, expected: FrontendMessage) -> None:
    """A message that is longer or shorter is refused, unless its content may be anything."""
    if isinstance(expected, CopyData | PasswordMessage | FunctionCall):
        return
    with pytest.raises(ProtocolViolationError):
        frontend_messages.decode_message(data[0], data[5:] + b"\0")
    for end in range(5, len(data)):
        with pytest.raises(ProtocolViolationError):
            frontend_messages.decode_message(data[0], data[5:end])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\4\xd2\x16\x2f", SslRequest()),
        (b"\4\xd2\x16\x30", GssEncryptionRequest()),
        (b"\4\xd2\x16\x2e\0\0\x12\x67\xde\xad\xbe\xef", CancelRequest(4711, 0xDEADBEEF)),
        (b"\0\3\0\0\0", StartupMessage(0, {})),
        (b"\0\3\0\2user\0ada\0\0", StartupMessage(2, {"user": "ada"})),
    ],
)
def test_initial_messages(content: bytes, expected: InitialMessage) -> None:
    assert frontend_messages.decode_initial_message(content) == expected


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "insufficient data"),
        (b"\0\2\0\0", "unsupported frontend protocol 2.0"),
        (b"\0\4\0\0", "unsupported frontend protocol 4.0"),
        (b"GET ", "unsupported frontend protocol"),
        (b"\0\3\0\0user\0ada\0", "invalid string"),
        (b"\0\3\0\0user\0\xff\0\0", "invalid byte sequence"),
        (b"\0\3\0\0\0\0", "invalid message format"),
        (b"\4\xd2\x16\x2e\0\0\x12\x67", "insufficient data"),
        (b"\4\xd2\x16\x2f\0", "invalid message format"),
    ],
)
def test_malformed_initial_messages(content: bytes, problem: str) -> None:
    with pytest.raises(ProtocolViolationError, match=problem):
        frontend_messages.decode_initial_message(content)


@pytest.mark.parametrize(
    ("code", "content", "problem"),
    [
        ("B", b"\0\0\0\1\0\2\0\0\0\0", "invalid format code"),
        ("B", b"\0\0\0\0\0\1\xff\xff\xff\xfe\0\0", "invalid length"),
        ("B", b"\0\0\0\0\0\1\x7f\xff\xff\xff\0\0", "insufficient data"),
        ("B", b"\0\0\0\0\xff\xff\0\0", "more than 10000"),
        ("P", b"\0\0\xff\xff", "more than 10000"),
        ("P", b"\0\0\0\1", "insufficient data"),
        ("D", b"X\0", "invalid message subtype 0x58"),
        ("Q", b"\xc3\0", "invalid byte sequence"),
        ("Q", b"a\0b\0", "invalid message format"),
    ],
)
def test_malformed_messages(code: str, content: bytes, problem: str) -> None:
    with pytest.raises(ProtocolViolationError, match=problem) as caught:
        frontend_messages.decode_message(ord(code), content)
    assert caught.value.sqlstate == "08P01"


def test_answers_to_sasl() -> None:
    decode = frontend_messages.decode_sasl_initial_response
    assert decode(b"M\0\0\0\0\1x") == SaslInitialResponse("M", b"x")
    assert decode(b"M\0\xff\xff\xff\xff") == SaslInitialResponse("M", None)
    with pytest.raises(ProtocolViolationError):
        decode(b"M\0\0\0\0\2x")


FIELD = ResultColumn("n", types.NUMERIC)

ENCODED = [
    (messages.AUTHENTICATION_OK, b"R\0\0\0\x08\0\0\0\0"),
    (messages.AUTHENTICATION_CLEARTEXT_PASSWORD, b"R\0\0\0\x08\0\0\0\3"),
    (messages.authentication_sasl(["M"]), b"R\0\0\0\x0b\0\0\0\x0aM\0\0"),
    (messages.authentication_sasl_continue(b"x"), b"R\0\0\0\x09\0\0\0\x0bx"),
    (messages.authentication_sasl_final(b"x"), b"R\0\0\0\x09\0\0\0\x0cx"),
    (messages.negotiate_protocol_version([]), b"v\0\0\0\x0c\0\3\0\0\0\0\0\0"),
    (messages.negotiate_protocol_version(["_pq_.x"]), b"v\0\0\0\x13\0\3\0\0\0\0\0\1_pq_.x\0"),
    (messages.parameter_status("a", "b"), b"S\0\0\0\x08a\0b\0"),
    (messages.backend_key_data(1, 0xFFFFFFFF), b"K\0\0\0\x0c\0\0\0\1\xff\xff\xff\xff"),
    (messages.ready_for_query(TransactionStatus.IDLE), b"Z\0\0\0\5I"),
    (messages.ready_for_query(TransactionStatus.ACTIVE), b"Z\0\0\0\5T"),
    (messages.ready_for_query(TransactionStatus.FAILED), b"Z\0\0\0\5E"),
    (
        messages.row_description([FIELD], [1]),
        b"T\0\0\0\x1a\0\1n\0\0\0\0\0\0\0\0\0\x06\xa4\xff\xff\xff\xff\xff\xff\0\1",
    ),
    (
        messages.row_description([ResultColumn("é", types.INT8)], [0]),
        b"T\0\0\0\x1b\0\1\xc3\xa9\0\0\0\0\0\0\0\0\0\0\x14\0\x08\xff\xff\xff\xff\0\0",
    ),
    (messages.command_complete("SELECT 5"), b"C\0\0\0\x0dSELECT 5\0"),
    (messages.EMPTY_QUERY_RESPONSE, b"I\0\0\0\4"),
    (messages.PARSE_COMPLETE, b"1\0\0\0\4"),
    (messages.BIND_COMPLETE, b"2\0\0\0\4"),
    (messages.CLOSE_COMPLETE, b"3\0\0\0\4"),
    (messages.PORTAL_SUSPENDED, b"s\0\0\0\4"),
    (messages.NO_DATA, b"n\0\0\0\4"),
    (messages.parameter_description([20, 25]), b"t\0\0\0\x0e\0\2\0\0\0\x14\0\0\0\x19"),
    (messages.copy_out_response([0, 0]), b"H\0\0\0\x0b\0\0\2\0\0\0\0"),
    (messages.copy_out_response([1], binary=True), b"H\0\0\0\x09\1\0\1\0\1"),
    (messages.copy_data(b"1\n"), b"d\0\0\0\x061\n"),
    (messages.COPY_DONE, b"c\0\0\0\4"),
    (messages.notification_response(7, "c", "p"), b"A\0\0\0\x0c\0\0\0\7c\0p\0"),
    (
        messages.error_response(Diagnostic("42601", "m", detail="d", hint="h", position=7)),
        b"E\0\0\0\x26SERROR\0VERROR\0C42601\0Mm\0Dd\0Hh\0P7\0\0",
    ),
    (
        messages.error_response(Diagnostic("0A000", "m", routine="f")),
        b"E\0\0\0\x20SERROR\0VERROR\0C0A000\0Mm\0Rf\0\0",
    ),
    (
        messages.error_response(Diagnostic("00000", "a\0b")),
        b"E\0\0\0\x1eSERROR\0VERROR\0C00000\0Mab\0\0",
    ),
]


@pytest.mark.parametrize(("encoded", "expected"), ENCODED, ids=lambda one: chr(one[0]))
def test_messages_of_servers(encoded: bytes, expected: bytes) -> None:
    assert encoded == expected
    assert int.from_bytes(encoded[1:5], "big") == len(encoded) - 1
