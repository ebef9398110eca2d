"""Whatever a client sends, the protocol object answers, or ends the connection by its own error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from server.sql.postgres import types
from server.sql.postgres.errors import Diagnostic
from server.sql.postgres.events import (
    BindRequested,
    DescribePortalRequested,
    DescribeStatementRequested,
    ExecuteRequested,
    ParseRequested,
    PasswordGiven,
    ProtocolFailed,
    Reply,
    SaslContinued,
    SaslStarted,
    StartupRequested,
    StatementRequested,
    SyncRequested,
    Terminated,
    TlsRequested,
)
from server.sql.postgres.frontend_messages import CancelRequest
from server.sql.postgres.messages import TransactionStatus
from server.sql.postgres.protocol import PostgresProtocol
from server.sql.postgres.types import ResultColumn
from tests.sql.postgres import support
from tests.sql.postgres.support import bind, close, describe, execute, message, parse, query, text
from tests.support.chances import examples

MAX_SIZE = 2000
COLUMNS = [ResultColumn("n", types.INT8)]
NAMES = st.sampled_from(["", "a", "b"])
FORMATS = st.lists(st.sampled_from([0, 1]), max_size=2).map(tuple)
VALUES = st.lists(st.none() | st.binary(max_size=9) | st.just(b"7"), max_size=2)

FIRST = st.one_of(
    st.sampled_from([support.SSL_REQUEST, support.GSSENC_REQUEST, support.CANCEL]),
    st.builds(
        lambda version, user: support.startup(version, user=user, options="-c a=b"),
        st.sampled_from([196608, 196610, 131072]),
        st.sampled_from(["ada", "", "sasl", "password"]),
    ),
)
LATER = st.one_of(
    st.builds(query, st.sampled_from(["", "begin", "commit", "wrong", "select 1"])),
    st.builds(parse, st.sampled_from(["", "wrong", "select $1"]), NAMES, FORMATS),
    st.builds(
        lambda values, portal, statement, formats, results: bind(
            *values, portal=portal, statement=statement, formats=formats, results=results
        ),
        VALUES,
        NAMES,
        NAMES,
        FORMATS,
        FORMATS,
    ),
    st.builds(describe, st.sampled_from("SPX"), NAMES),
    st.builds(close, st.sampled_from("SP"), NAMES),
    st.builds(execute, NAMES, st.integers(-1, 2)),
    st.sampled_from([support.SYNC, support.FLUSH, support.SYNC, support.TERMINATE]),
    st.sampled_from([message("F", b"abc"), message("d", b"x"), message("c"), message("f", b"\0")]),
    st.builds(support.password, st.text(max_size=3)),
    st.just(message("p", text("SCRAM-SHA-256"), b"\0\0\0\1x")),
    st.just(message("p", text("SCRAM-SHA-256-PLUS"), b"\0\0\0\3p=x")),
    st.binary(max_size=12),
)
MUTATIONS = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 3), st.binary(max_size=4)), max_size=3
)
CUTS = st.lists(st.integers(1, 60), max_size=20)


def mutated(data: bytes, mutations: list[tuple[int, int, bytes]]) -> bytes:
    """Bytes of which some are replaced, removed or inserted."""
    for place, removed, inserted in mutations:
        place %= len(data) + 1
        data = data[:place] + inserted + data[place + removed :]
    return data


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    """Bytes in pieces of these sizes, and the rest."""
    for cut in cuts:
        yield data[:cut]
        data = data[cut:]
    yield data


class Caller:
    """Answers all events, and checks the order of messages and the memory held."""

    def __init__(self) -> None:
        self.cursors = 0
        self.protocol: PostgresProtocol[str, int] = PostgresProtocol(
            self.release, max_message_size=MAX_SIZE
        )
        self.events: list[object] = []
        self.out = b""

    def release(self, _: object) -> None:
        self.cursors -= 1

    def feed(self, data: bytes) -> None:
        self.protocol.feed(data)
        while (event := self.protocol.next_event()) is not None:
            self.events.append(event)
            if not isinstance(event, Reply | ProtocolFailed | CancelRequest | Terminated):
                assert self.protocol.next_event() is None
            self.out += self.answer(event)
        assert self.protocol.buffered_size <= 70_000  # a password; the size of a piece
        if self.protocol.is_open:
            assert self.protocol.buffered_size <= max(MAX_SIZE, 10_000) + 5
        if self.protocol.is_closed:
            assert self.protocol.buffered_size == 0
            assert self.cursors == 0

    def answer(self, event: Any) -> bytes:
        protocol = self.protocol
        match event:
            case Reply(data) | ProtocolFailed(_, data):
                return data
            case CancelRequest() | Terminated():
                return b""
            case TlsRequested():
                return protocol.refuse_tls()
            case StartupRequested("sasl"):
                return protocol.request_sasl(binds_channel=True)
            case StartupRequested("password"):
                return protocol.request_password()
            case SaslStarted():
                return protocol.continue_sasl(b"x")
            case StartupRequested() | PasswordGiven() | SaslContinued():
                return protocol.accept(1, 2, {"a": "b"})
            case _:
                return self.answer_statement(event)

    def answer_statement(self, event: Any) -> bytes:
        protocol = self.protocol
        match event:
            case StatementRequested("wrong") | ParseRequested(_, "wrong"):
                return protocol.fail(Diagnostic("42601", "wrong"))
            case StatementRequested(statement):
                if statement == "begin":
                    protocol.transaction_status = TransactionStatus.ACTIVE
                elif statement == "commit":
                    protocol.transaction_status = TransactionStatus.IDLE
                return protocol.ready()
            case SyncRequested():
                return protocol.ready()
            case ParseRequested(_, statement, _):
                return protocol.complete_parse(statement, [types.INT8] * statement.count("$"))
            case BindRequested():
                self.cursors += 1
                return protocol.complete_bind(self.cursors)
            case DescribeStatementRequested() | DescribePortalRequested():
                return protocol.complete_describe(COLUMNS)
            case ExecuteRequested(_, limit):
                return protocol.suspend() if limit else protocol.complete_execute("SELECT 0")
        raise AssertionError(event)


def run(data: bytes, cuts: list[int]) -> Caller:
    caller = Caller()
    for piece in pieces(data, cuts):
        caller.feed(piece)
    return caller


def check_output(out: bytes) -> None:
    """The output is N for each encryption that is refused, and then messages."""
    for _ in range(2):
        out = out.removeprefix(b"N") if out[1:2] != b"\0" else out
    kinds = support.kinds(out)
    assert set(kinds) <= set("vRSKZTtnDCIs123E")


@settings(max_examples=examples(200), deadline=None)
@given(first=st.lists(FIRST, max_size=3), later=st.lists(LATER, max_size=12), cuts=CUTS)
def test_messages_in_any_order_and_any_pieces(
    first: list[bytes], later: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(first + later)
    caller = run(data, cuts)
    whole = run(data, [])
    if not {support.SSL_REQUEST, support.GSSENC_REQUEST} & set(first):
        assert caller.events == whole.events  # after a request for encryption, pieces matter
    check_output(caller.out)
    caller.protocol.close()
    assert caller.cursors == 0


@given(
    user=st.sampled_from(["ada", "sasl", "password"]),
    later=st.lists(LATER, max_size=12),
    mutations=MUTATIONS,
    cuts=CUTS,
)
@settings(max_examples=examples(300), deadline=None)
def test_damaged_messages(
    user: str, later: list[bytes], mutations: list[tuple[int, int, bytes]], cuts: list[int]
) -> None:
    data = mutated(b"".join([support.startup(user=user), *later]), mutations)
    caller = run(data, cuts)
    assert caller.events == run(data, []).events
    check_output(caller.out)


@given(data=st.binary(max_size=200), opened=st.booleans(), cuts=CUTS)
def test_arbitrary_bytes(data: bytes, opened: bool, cuts: list[int]) -> None:
    data = support.startup(user="ada") * opened + data
    check_output(run(data, cuts).out)


def test_one_byte_at_a_time() -> None:
    data = (
        support.startup(196610, user="password")
        + support.password("x")
        + query("begin")
        + parse("select $1", "a")
        + bind(b"7", statement="a")
        + describe("P")
        + execute(limit=1)
        + support.SYNC
        + support.TERMINATE
    )
    caller = run(data, [1] * len(data))
    assert caller.events == run(data, []).events
    assert isinstance(caller.events[-1], Terminated)
    assert support.kinds(caller.out) == "vRRSKZZ12TsZ"
