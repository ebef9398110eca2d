"""Clients of gRPC that misbehave: they get errors, and nobody else notices."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pyarrow as pa
import pytest
from pyarrow import flight

from tests.security.users import USERS
from tests.sql.flight.support import FlightServer, field, flight_server, packed, query_command
from tests.sql.support import ORDERS
from tests.support.waiting import WAIT_SECONDS, comes_true

SERVICE = "/arrow.flight.protocol.FlightService"
PREPARED_QUERY = "CommandPreparedStatementQuery"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlightServer]:
    with flight_server(tmp_path_factory.mktemp("flight")) as running:
        running.sql.publish("orders", *ORDERS[:3])
        yield running


@pytest.fixture(autouse=True)
def others(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test, others are served, and the server has found no defect of its own."""
    yield
    if "server" in request.fixturenames:
        server: FlightServer = request.getfixturevalue("server")
        assert server.query("SELECT count(*) AS n FROM orders") == [{"n": 3}]
        assert "16-0034" not in server.sql.server.log()


@pytest.fixture
def channel(server: FlightServer) -> Iterator[grpc.Channel]:
    target = server.address.removeprefix("grpc://")
    with grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) as opened:
        yield opened


def random_bytes(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


GARBAGE = [
    b"",
    b"\xff" * 100,
    random_bytes(1, 1000),
    packed("CommandGetTables", b"\xff\xff"),
    packed("CommandGetTables", field(2, b"\xff\xfe")),
    packed("NoSuchCommand"),
    packed("CommandStatementQuery", field(1, b"\xff\xfe")),
    packed("TicketStatementQuery", field(1, b"")),
    packed("TicketStatementQuery", field(1, b"Q")),
    packed("TicketStatementQuery", field(1, b"Q12345678\xff\xfe")),
    packed("TicketStatementQuery", field(1, b"C99999999999999999999999")),
    packed("TicketStatementQuery", field(1, b"Cx")),
    packed(PREPARED_QUERY, field(1, b"nothing")),
    packed("ActionClosePreparedStatementRequest"),
    field(1, b"x" * 5000),
]


@pytest.mark.parametrize("content", GARBAGE)
def test_garbage_is_refused_wherever_it_is(server: FlightServer, content: bytes) -> None:
    with server.raw() as client:
        descriptor = flight.FlightDescriptor.for_command(content)
        calls: list[Callable[[], object]] = [
            lambda: client.get_flight_info(descriptor),
            lambda: client.get_schema(descriptor),
            lambda: client.do_get(flight.Ticket(content)).read_all(),
            lambda: list(client.do_action(flight.Action("CreatePreparedStatement", content))),
            lambda: list(client.do_action(flight.Action("CancelQuery", content))),
            lambda: list(client.do_action(flight.Action("NoSuchAction", content))),
        ]
        for call in calls:
            with pytest.raises((pa.ArrowException, KeyError)) as refused:
                call()
            assert "SQLSTATE" in str(refused.value)


def test_paths_are_no_flights(server: FlightServer) -> None:
    with server.raw() as client:
        assert list(client.list_flights()) == []
        with pytest.raises(pa.ArrowNotImplementedError, match="no paths"):
            client.get_flight_info(flight.FlightDescriptor.for_path("orders"))


def test_messages_have_a_limit(server: FlightServer) -> None:
    with server.raw() as client:
        client.list_actions()  # which logs on
        command = query_command("SELECT 1") + b"\0" * 17_000_000
        with pytest.raises(pa.ArrowException, match="larger than max"):
            client.get_flight_info(flight.FlightDescriptor.for_command(command))


@pytest.mark.parametrize(
    "stream",
    [
        [],
        [b""],
        [b"\xff\xff"],
        [field(1, b"\x08\x02")],
        [field(2, b"garbage")],
    ],
)
def test_streams_of_parameters_that_are_garbage(channel: grpc.Channel, stream: list[bytes]) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        list(channel.stream_stream(f"{SERVICE}/DoPut")(iter(stream)))
    assert "SQLSTATE" in refused.value.details()


def prepare(client: flight.FlightClient, text: str) -> bytes:
    """Prepare a statement; its handle, which has 16 bytes."""
    body = packed("ActionCreatePreparedStatementRequest", field(1, text.encode()))
    (result,) = client.do_action(flight.Action("CreatePreparedStatement", body))
    answer: bytes = result.body.to_pybytes()
    start = answer.index(field(1, b"x" * 16)[:2], answer.index(b"Result"))
    return answer[start + 2 : start + 18]


@pytest.mark.parametrize("seed", range(20))
def test_batches_of_parameters_that_are_damaged(
    server: FlightServer, channel: grpc.Channel, seed: int
) -> None:
    """Every byte may be another one: the server refuses the batch, or takes other values."""
    chance = random.Random(seed)
    with server.raw() as client:
        handle = prepare(client, "SELECT $1::text, $2::bigint")
        table = pa.table({"1": ["abc" * 10] * 8, "2": list(range(8))})
        command = packed(PREPARED_QUERY, field(1, handle))
        messages = []
        reader = pa.ipc.MessageReader.open_stream(_stream_of(table))
        for message in reader:
            header = bytearray(message.metadata.to_pybytes())
            body = bytearray(message.body.to_pybytes() if message.body is not None else b"")
            damaged = chance.choice([header, body]) or header
            for _ in range(chance.randrange(4)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            messages.append((bytes(header), bytes(body)))
        descriptor = field(1, b"\x08\x02" + field(2, command))
        stream = [
            (b"" if number else descriptor)
            + field(2, header)
            + (b"\xc2\x3e" + field(1, body)[1:] if body else b"")
            for number, (header, body) in enumerate(messages)
        ]
        try:
            list(channel.stream_stream(f"{SERVICE}/DoPut")(iter(stream)))
        except grpc.RpcError as refused:
            assert "SQLSTATE" in refused.details()  # noqa: PT017 - it need not be refused


def _stream_of(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def test_compressed_parameters_are_refused(server: FlightServer) -> None:
    options = flight.FlightCallOptions(write_options=pa.ipc.IpcWriteOptions(compression="zstd"))
    with server.raw() as client:
        command = packed(PREPARED_QUERY, field(1, prepare(client, "SELECT $1::text")))
        descriptor = flight.FlightDescriptor.for_command(command)
        table = pa.table({"1": ["a" * 1_000_000]})
        writer, _ = client.do_put(descriptor, table.schema, options)
        writer.write_table(table)
        with pytest.raises(pa.ArrowNotImplementedError, match="compressed batches"):
            writer.close()


def test_bytes_that_are_no_http(server: FlightServer) -> None:
    for content in (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        random_bytes(2, 100_000),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + random_bytes(3, 1000),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0" * 10_000,
    ):
        with socket.create_connection(("127.0.0.1", server.sql.port), WAIT_SECONDS) as peer:
            try:
                peer.sendall(content)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(65536):
                    pass
            except ConnectionError:
                pass


def test_many_connections_and_calls_that_send_nothing(server: FlightServer) -> None:
    target = server.address.removeprefix("grpc://")
    over = threading.Event()
    with ExitStack() as stack:
        stack.callback(over.set)
        for _ in range(100):
            stack.enter_context(
                socket.create_connection(("127.0.0.1", server.sql.port), WAIT_SECONDS)
            )
        for number in range(10):
            options = [("grpc.use_local_subchannel_pool", 1), ("number", number)]
            channel = stack.enter_context(grpc.insecure_channel(target, options))
            for name in ("Handshake", "DoPut", "DoPut", "DoExchange"):
                channel.stream_stream(f"{SERVICE}/{name}")(_silent(over))
        assert server.query("SELECT 1 AS one") == [{"one": 1}]


def _silent(over: threading.Event) -> Iterator[bytes]:
    """A stream that sends nothing, until the test is over."""
    over.wait()
    yield from ()


def test_a_client_that_has_not_logged_on_can_send_little(tmp_path: Path) -> None:
    with flight_server(tmp_path, users=USERS) as server:
        with server.raw() as client:
            command = query_command("SELECT 1") + b"\0" * 4_000_000
            with pytest.raises(pa.ArrowException):
                client.get_flight_info(flight.FlightDescriptor.for_command(command))
        assert server.sql.server.logs("over the limit of 1048576 bytes")
        with socket.create_connection(("127.0.0.1", server.sql.port), WAIT_SECONDS) as idle:
            assert comes_true(lambda: idle.recv(65536) == b"")
        assert server.sql.server.logs("no logon within 10 seconds")
