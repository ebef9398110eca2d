"""The state of a connection: which events follow which bytes, and which answers are right."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from server.sql.postgres import types
from server.sql.postgres.errors import Diagnostic
from server.sql.postgres.events import (
    BindRequested,
    DescribePortalRequested,
    DescribeStatementRequested,
    ExecuteRequested,
    ParseRequested,
    Reply,
    StatementRequested,
    SyncRequested,
    Terminated,
)
from server.sql.postgres.messages import TransactionStatus
from server.sql.postgres.portals import MAX_PREPARED_STATEMENTS
from server.sql.postgres.protocol import (
    MAX_READ_AHEAD,
    ProtocolMisuseError,
)
from server.sql.postgres.types import ResultColumn
from tests.sql.postgres.protocol_events import Protocol, failed, open_protocol, refused
from tests.sql.postgres.support import (
    FLUSH,
    SYNC,
    TERMINATE,
    bind,
    close,
    describe,
    error_fields,
    execute,
    kinds,
    message,
    parse,
    password,
    query,
    text,
)

ONE_COLUMN = [ResultColumn("n", types.INT8)]
PROBLEM = Diagnostic("42601", "wrong")


# The simple protocol


def test_statements_come_one_by_one() -> None:
    protocol = open_protocol()
    protocol.feed(query("begin") + query("select 1") + TERMINATE)
    assert protocol.next_event() == StatementRequested("begin")
    assert protocol.next_event() is None
    protocol.transaction_status = TransactionStatus.ACTIVE
    assert protocol.ready() == b"Z\0\0\0\5T"
    assert protocol.next_event() == StatementRequested("select 1")
    failure = protocol.fail(PROBLEM)
    assert kinds(failure) == "EZ"
    assert failure.endswith(b"E")
    assert protocol.next_event() == Terminated()
    assert protocol.is_closed


@pytest.mark.parametrize(
    "data",
    [
        b"Y\0\0\0\4",
        b"\0",
        password("late"),
        b"Q\0\0\0\3",
        b"Q\x7f\xff\xff\xff",
        b"S\0\0\0\5\0",
        b"D\0\1\0\0",
        message("Q", b"no end"),
    ],
)
def test_wrong_messages(data: bytes) -> None:
    protocol = open_protocol()
    protocol.feed(data)
    failed(protocol)


def test_the_limit_of_statements() -> None:
    protocol = open_protocol(max_message_size=100)
    protocol.feed(query("x" * 99))
    assert protocol.next_event() == StatementRequested("x" * 99)
    protocol.ready()
    protocol.feed(query("x" * 100)[:5])
    failed(protocol)


def test_function_calls_are_refused() -> None:
    protocol = open_protocol()
    protocol.feed(message("F", b"\0\0\0\1") + query("select 1"))
    reply = protocol.next_event()
    assert isinstance(reply, Reply)
    assert kinds(reply.data) == "EZ"
    assert error_fields(reply.data)["C"] == "0A000"
    assert protocol.next_event() == StatementRequested("select 1")


def test_data_of_a_refused_copy_are_ignored() -> None:
    protocol = open_protocol()
    rest = message("d", b"1,2\n") + message("c") + message("f", text("no"))
    protocol.feed(rest + query("select 1"))
    assert protocol.next_event() == StatementRequested("select 1")


# The extended protocol


def test_a_statement_with_parameters() -> None:
    protocol = open_protocol()
    protocol.feed(
        parse("select $1, $2", "s", (0, types.DATE))
        + bind(b"7", b"\0\0\x27\x10", statement="s", formats=(0, 1), results=(1,))
        + describe("S", "s")
        + describe("P")
        + execute(limit=5)
        + FLUSH
        + execute()
        + SYNC
    )
    assert protocol.next_event() == ParseRequested("s", "select $1, $2", (0, types.DATE))
    assert protocol.complete_parse("plan", [types.INT8, types.INT8]) == b"1\0\0\0\4"
    bound = protocol.next_event()
    assert isinstance(bound, BindRequested)
    assert bound.statement.parameter_types == (types.INT8, types.DATE)
    assert (bound.portal, bound.statement.plan) == ("", "plan")
    assert bound.parameters == (7, date(2027, 5, 19))
    assert protocol.complete_bind("cursor") == b"2\0\0\0\4"
    described = protocol.next_event()
    assert isinstance(described, DescribeStatementRequested)
    described_bytes = protocol.complete_describe(ONE_COLUMN)
    assert kinds(described_bytes) == "tT"
    assert described_bytes.endswith(b"\0\0")
    portal = protocol.next_event()
    assert isinstance(portal, DescribePortalRequested)
    assert portal.portal.cursor == "cursor"
    assert protocol.complete_describe(ONE_COLUMN).endswith(b"\0\1")
    first = protocol.next_event()
    assert isinstance(first, ExecuteRequested)
    assert first.row_limit == 5
    assert first.portal.formats(3) == (1, 1, 1)
    assert kinds(protocol.suspend()) == "s"
    second = protocol.next_event()
    assert isinstance(second, ExecuteRequested)
    assert second.row_limit == 0
    assert kinds(protocol.complete_execute("SELECT 1")) == "C"
    assert protocol.next_event() == SyncRequested()
    assert kinds(protocol.ready()) == "Z"
    assert protocol.next_event() is None


def prepared(
    statement: str = "select $1", types_: tuple[int, ...] = (20,), **arguments: Any
) -> Protocol:
    """A connection with a prepared statement s."""
    protocol = open_protocol(**arguments)
    protocol.feed(parse(statement, "s"))
    protocol.next_event()
    protocol.complete_parse("plan", types_)
    return protocol


def test_after_an_error_all_is_skipped_up_to_sync() -> None:
    protocol = open_protocol()
    protocol.feed(parse("wrong") + bind() + query("select 1") + message("F") + close("S") + SYNC)
    assert isinstance(protocol.next_event(), ParseRequested)
    assert kinds(protocol.fail(PROBLEM)) == "E"
    assert protocol.next_event() == SyncRequested()
    protocol.ready()
    protocol.feed(query("select 1"))
    assert protocol.next_event() == StatementRequested("select 1")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (bind(statement="other"), "26000"),
        (bind(), "26000"),
        (describe("S", "other"), "26000"),
        (describe("P"), "34000"),
        (execute("other"), "34000"),
        (parse("select 2", "s"), "42P05"),
        (parse("select 2", "n" * 1001), "42622"),
        (bind(b"1", statement="s", portal="n" * 1001), "42622"),
        (bind(statement="s"), "08P01"),
        (bind(b"1", b"2", statement="s"), "08P01"),
        (bind(b"1", statement="s", formats=(0, 0)), "08P01"),
        (bind(b"x", statement="s"), "22P02"),
        (bind(b"1", statement="s", formats=(1,)), "22P03"),
        (bind(b"9223372036854775808", statement="s"), "22003"),
        (bind(b"\xff", statement="s"), "22021"),
    ],
)
def test_errors_that_the_protocol_finds(data: bytes, code: str) -> None:
    protocol = prepared()
    protocol.feed(data + parse("select 3") + SYNC)
    refused(protocol, code)
    assert protocol.next_event() == SyncRequested()
    protocol.ready()


@pytest.mark.parametrize(
    ("values", "type_oid", "binary"),
    [
        ([b"{" + b"1," * 10_000 + b"1}"], 1007, False),
        ([b"{" + b"1," * 5000 + b"1}"] * 2, 1007, False),
        ([b"x" * 40_004], 1007, True),
        ([b"a\\\\" * 30_000], types.BYTEA, False),
    ],
)
def test_parameters_of_too_many_values(values: list[bytes], type_oid: int, binary: bool) -> None:
    protocol = prepared(types_=(type_oid,) * len(values))
    protocol.feed(bind(*values, statement="s", formats=(int(binary),)))
    refused(protocol, "54000")


def test_an_error_that_the_protocol_finds_fails_the_transaction() -> None:
    protocol = prepared()
    protocol.transaction_status = TransactionStatus.ACTIVE
    protocol.feed(bind(b"x", statement="s") + SYNC)
    refused(protocol, "22P02")
    assert protocol.next_event() == SyncRequested()
    assert protocol.ready() == b"Z\0\0\0\5E"


def test_the_number_of_result_formats() -> None:
    protocol = prepared()
    protocol.feed(bind(b"1", statement="s", results=(0, 1)) + describe("P") + execute() + SYNC)
    protocol.next_event()
    protocol.complete_bind("cursor")
    protocol.next_event()
    assert error_fields(protocol.complete_describe(ONE_COLUMN))["C"] == "08P01"
    assert protocol.next_event() == SyncRequested()


def bound(protocol: Protocol, portal: str = "", cursor: object = None) -> None:
    protocol.feed(bind(b"1", statement="s", portal=portal))
    assert isinstance(protocol.next_event(), BindRequested)
    protocol.complete_bind(cursor)


def test_portals_end_with_the_transaction() -> None:
    released: list[object] = []
    protocol = prepared(release=lambda portal: released.append(portal.cursor))
    bound(protocol, "a", "one")
    bound(protocol, "", "two")
    bound(protocol, "", "three")
    assert released == ["two"]
    protocol.feed(close("P", "a") + close("P", "a"))
    assert protocol.next_event() == Reply(b"3\0\0\0\4") == protocol.next_event()
    assert released == ["two", "one"]
    bound(protocol, "b", "four")
    protocol.transaction_status = TransactionStatus.ACTIVE
    protocol.feed(SYNC)
    protocol.next_event()
    protocol.ready()
    assert released == ["two", "one"]
    protocol.transaction_status = TransactionStatus.IDLE
    protocol.feed(SYNC)
    protocol.next_event()
    protocol.ready()
    assert released == ["two", "one", "four", "three"] or released[2:] == ["three", "four"]
    protocol.feed(execute("b"))
    refused(protocol, "34000")


def test_portals_end_with_the_connection() -> None:
    released: list[object] = []
    protocol = prepared(release=lambda portal: released.append(portal.cursor))
    bound(protocol, "a", "one")
    protocol.close()
    protocol.close()
    assert released == ["one"]
    assert protocol.next_event() is None


def test_a_portal_keeps_its_name_to_itself() -> None:
    protocol = prepared()
    bound(protocol, "a")
    protocol.feed(bind(b"1", statement="s", portal="a"))
    refused(protocol, "42P03")


def test_closed_statements() -> None:
    protocol = prepared()
    protocol.feed(close("S", "s") + bind(b"1", statement="s"))
    assert protocol.next_event() == Reply(b"3\0\0\0\4")
    refused(protocol, "26000")


def test_deallocate() -> None:
    protocol = prepared()
    assert not protocol.deallocate("other")
    assert protocol.deallocate("s")
    assert not protocol.deallocate("s")
    assert protocol.deallocate(None)


def test_a_simple_query_ends_the_unnamed_statement() -> None:
    protocol = open_protocol()
    protocol.feed(parse("select 1") + query("select 2") + bind())
    protocol.next_event()
    protocol.complete_parse(None, [])
    protocol.next_event()
    protocol.ready()
    refused(protocol, "26000")


def test_a_failed_parse_leaves_no_unnamed_statement() -> None:
    protocol = open_protocol()
    protocol.feed(parse("select 1") + parse("wrong") + SYNC + bind())
    protocol.next_event()
    protocol.complete_parse(None, [])
    protocol.next_event()
    protocol.fail(PROBLEM)
    protocol.next_event()
    protocol.ready()
    refused(protocol, "26000")


def test_statements_without_rows() -> None:
    protocol = prepared("", ())
    protocol.feed(describe("S", "s") + bind(statement="s") + describe("P") + execute())
    protocol.next_event()
    assert kinds(protocol.complete_describe(None)) == "tn"
    protocol.next_event()
    protocol.complete_bind(None)
    protocol.next_event()
    assert kinds(protocol.complete_describe(None)) == "n"
    protocol.next_event()
    assert kinds(protocol.complete_execute("")) == "I"


def test_the_number_of_statements_is_limited() -> None:
    protocol = open_protocol()
    for number in range(MAX_PREPARED_STATEMENTS):
        protocol.feed(parse("select 1", f"s{number}"))
        protocol.next_event()
        protocol.complete_parse(None, [])
    protocol.feed(parse("select 1", "last"))
    refused(protocol, "53400")


def test_the_size_of_statements_and_of_portals_is_limited() -> None:
    protocol = prepared("x" * 500, max_message_size=1000)
    protocol.feed(parse("x" * 501, "t") + SYNC)
    refused(protocol, "53400")
    protocol.next_event()
    protocol.ready()
    for number in range(2):
        protocol.feed(bind(b"0" * 399 + b"1", statement="s", portal=f"p{number}"))
        refused(protocol, "22P02")  # an integer of 400 digits
        protocol.feed(SYNC)
        protocol.next_event()
        protocol.ready()
    protocol.deallocate("s")
    protocol.feed(parse("x", "s"))
    protocol.next_event()
    protocol.complete_parse(None, [types.TEXT])
    for number in range(2):
        protocol.feed(bind(b"x" * 500, statement="s", portal=f"p{number}"))
        protocol.next_event()
        protocol.complete_bind(None)
    protocol.feed(bind(b"x", statement="s", portal="last"))
    refused(protocol, "53400")


# The caller


def test_answers_that_fit_no_event() -> None:
    protocol = open_protocol()
    for answer in (
        protocol.ready,
        protocol.suspend,
        protocol.request_password,
        lambda: protocol.complete_describe(None),
    ):
        with pytest.raises(ProtocolMisuseError):
            answer()
    protocol.feed(query("select 1"))
    protocol.next_event()
    with pytest.raises(ProtocolMisuseError):
        protocol.complete_execute("SELECT 1")
    protocol.ready()


def test_reading_pauses_while_a_statement_runs() -> None:
    protocol = open_protocol()
    statement = query("x" * 1000)
    protocol.feed(statement * (MAX_READ_AHEAD // len(statement) + 2))
    assert not protocol.wants_pause
    assert protocol.next_event() is not None
    assert protocol.wants_pause
    while protocol.wants_pause:
        protocol.ready()
        assert protocol.next_event() is not None
    assert protocol.buffered_size < MAX_READ_AHEAD


def test_the_end_by_the_server() -> None:
    protocol = open_protocol()
    protocol.feed(query("select 1"))
    protocol.next_event()
    fields = error_fields(protocol.end(Diagnostic("57P01", "shutdown")))
    assert (fields["S"], fields["C"]) == ("FATAL", "57P01")
    assert protocol.next_event() is None
