"""The first messages of a connection: startup, encryption, cancellation, authentication."""

from __future__ import annotations

import pytest

from server.sql.postgres.errors import Diagnostic
from server.sql.postgres.events import (
    PasswordGiven,
    Reply,
    SaslContinued,
    SaslStarted,
    StartupRequested,
    TlsRequested,
)
from server.sql.postgres.frontend_messages import CancelRequest
from server.sql.postgres.protocol import (
    PostgresProtocol,
)
from tests.sql.postgres import support
from tests.sql.postgres.protocol_events import Protocol, failed
from tests.sql.postgres.support import (
    error_fields,
    kinds,
    message,
    password,
    query,
    startup,
    text,
)

PROBLEM = Diagnostic("42601", "wrong")


def test_startup() -> None:
    protocol: Protocol = PostgresProtocol()
    protocol.feed(startup(user="ada", database="db", application_name="psql"))
    event = protocol.next_event()
    assert event == StartupRequested("ada", "db", {"application_name": "psql"})
    assert protocol.next_event() is None
    assert not protocol.is_open
    protocol.accept(1, 2, {})
    assert protocol.is_open


def test_options() -> None:
    protocol: Protocol = PostgresProtocol()
    options = r"-c a=1 -cb=x\ y --search-path=z -S 5 -c"
    protocol.feed(startup(user="ada", options=options, a="2"))
    event = protocol.next_event()
    assert isinstance(event, StartupRequested)
    assert event.parameters == {"a": "2", "b": "x y", "search_path": "z"}


@pytest.mark.parametrize(
    ("version", "option", "answer"),
    [(196610, "", []), (196608, "_pq_.new", ["_pq_.new"]), (206607, "_pq_.new", ["_pq_.new"])],
)
def test_newer_versions_are_negotiated(version: int, option: str, answer: list[str]) -> None:
    protocol: Protocol = PostgresProtocol()
    protocol.feed(startup(version, user="ada", **({option: "1"} if option else {})))
    reply = protocol.next_event()
    assert isinstance(reply, Reply)
    ((kind, content),) = support.split(reply.data)
    names = b"".join(map(text, answer))
    assert (kind, content) == ("v", support.int32(196608, len(answer)) + names)
    assert protocol.next_event() == StartupRequested("ada", "ada", {})
    assert protocol.next_event() is None


def test_tls() -> None:
    protocol: Protocol = PostgresProtocol()
    protocol.feed(support.SSL_REQUEST)
    assert protocol.next_event() == TlsRequested()
    assert protocol.accept_tls() == b"S"
    protocol.feed(startup(user="ada"))
    assert isinstance(protocol.next_event(), StartupRequested)


def test_refused_encryption() -> None:
    protocol: Protocol = PostgresProtocol()
    protocol.feed(support.GSSENC_REQUEST)
    assert protocol.next_event() == Reply(b"N")
    protocol.feed(support.SSL_REQUEST)
    assert protocol.next_event() == TlsRequested()
    assert protocol.refuse_tls() == b"N"
    protocol.feed(startup(user="ada"))
    assert isinstance(protocol.next_event(), StartupRequested)


def test_bytes_before_the_handshake_are_refused() -> None:
    """Otherwise someone in the middle could put statements before those that are encrypted."""
    protocol: Protocol = PostgresProtocol()
    protocol.feed(support.SSL_REQUEST + startup(user="ada"))
    failed(protocol)
    protocol = PostgresProtocol()
    protocol.feed(support.SSL_REQUEST)
    protocol.next_event()
    protocol.feed(startup(user="ada"))
    protocol.accept_tls()
    failed(protocol)


def test_a_second_request_for_tls() -> None:
    protocol: Protocol = PostgresProtocol()
    protocol.feed(support.SSL_REQUEST)
    protocol.next_event()
    protocol.accept_tls()
    protocol.feed(support.SSL_REQUEST)
    failed(protocol)


def test_cancel() -> None:
    protocol: Protocol = PostgresProtocol()
    protocol.feed(support.CANCEL)
    assert protocol.next_event() == CancelRequest(4711, 0xDEADBEEF)
    assert protocol.is_closed


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (startup(), "28000"),
        (startup(user=""), "28000"),
        (startup(user="ada", replication="database"), "0A000"),
        (startup(131072, user="ada"), "0A000"),
        (b"GET / HTTP/1.1\r\n\r\n", "08P01"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", "08P01"),  # TLS without a request for it
        (b"\0\0\0\3", "08P01"),
        (b"\0\0\x27\x15", "08P01"),  # more than 10,000 bytes
        (b"\0\0\0\4", "08P01"),
    ],
)
def test_wrong_first_messages(data: bytes, code: str) -> None:
    protocol: Protocol = PostgresProtocol()
    protocol.feed(data)
    failed(protocol, code)


def test_password() -> None:
    protocol: Protocol = PostgresProtocol()
    protocol.feed(startup(user="ada"))
    protocol.next_event()
    assert protocol.request_password() == b"R\0\0\0\x08\0\0\0\3"
    assert protocol.next_event() is None
    protocol.feed(password("geheim"))
    event = protocol.next_event()
    assert event == PasswordGiven("geheim")
    assert "geheim" not in repr(event)
    refusal = protocol.end(Diagnostic("28P01", "no"))
    assert error_fields(refusal)["S"] == "FATAL"
    assert protocol.is_closed


def test_sasl() -> None:
    protocol: Protocol = PostgresProtocol()
    protocol.feed(startup(user="ada"))
    protocol.next_event()
    assert support.split(protocol.request_sasl()) == [("R", b"\0\0\0\x0aSCRAM-SHA-256\0\0")]
    protocol.feed(message("p", text("SCRAM-SHA-256"), support.int32(1), b"x"))
    assert protocol.next_event() == SaslStarted("SCRAM-SHA-256", b"x")
    assert support.split(protocol.continue_sasl(b"y")) == [("R", b"\0\0\0\x0by")]
    protocol.feed(message("p", b"z"))
    assert protocol.next_event() == SaslContinued(b"z")
    assert kinds(protocol.accept(1, 2, {}, b"ok")) == "RRKZ"


def test_other_mechanisms_are_refused() -> None:
    protocol: Protocol = PostgresProtocol()
    protocol.feed(startup(user="ada"))
    protocol.next_event()
    protocol.request_sasl()
    protocol.feed(message("p", text("PLAIN"), support.int32(-1)))
    failed(protocol)


@pytest.mark.parametrize(
    "data", [query("select 1"), message("p", b"x" * 65_536), message("p", b"no end"), b"Q"]
)
def test_anything_but_a_password(data: bytes) -> None:
    protocol: Protocol = PostgresProtocol()
    protocol.feed(startup(user="ada"))
    protocol.next_event()
    protocol.request_password()
    protocol.feed(data)
    failed(protocol)


def test_the_length_of_a_password_is_checked_before_its_bytes_come() -> None:
    protocol: Protocol = PostgresProtocol()
    protocol.feed(startup(user="ada"))
    protocol.next_event()
    protocol.request_password()
    protocol.feed(b"p\x7f\xff\xff\xff")
    failed(protocol)
