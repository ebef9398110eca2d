"""LDAP: directories that misbehave let nobody in, and keep nobody waiting."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.security.ldap.support import elements, logs_on, options_for, server_for
from tests.support.raw import RawPeer
from tests.support.server import free_port, running_server

Talk = Callable[[socket.socket], object]


@contextmanager
def misbehaving(talk: Talk) -> Iterator[int]:
    """A directory whose answers are a test's own; its port."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    def one(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            talk(connection)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def message(number: int, tag: int, content: bytes) -> bytes:
    inner = bytes([2, 1, number, tag, len(content)]) + content
    return bytes([0x30, len(inner)]) + inner


GOOD: Final = b"\x0a\x01\x00\x04\x00\x04\x00"
ANN: Final = b"\x04\x04cn=a\x30\x0e\x30\x0c\x04\x03uid\x31\x05\x04\x03ann"
NAMELESS: Final = b"\x04\x00" + ANN[6:]


def says(*answers: bytes) -> Talk:
    """Answers requests in turn, whatever they are; then listens until the other end closes."""

    def talk(connection: socket.socket) -> None:
        for answer in answers:
            if not connection.recv(65_536):
                return
            connection.sendall(answer)
        while connection.recv(65_536):
            pass

    return talk


BOUND: Final = message(1, 0x61, GOOD)
DONE: Final = message(2, 0x65, GOOD)


@pytest.mark.parametrize(
    ("talk", "logged"),
    [
        (lambda connection: None, "cannot be asked"),
        (lambda connection: connection.recv(65_536), "has closed the connection"),
        (says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "tag 0x48 where a message was expected"),
        (says(b"\x30\x84\x7f\xff\xff\xff"), "a message of 2147483653 bytes"),
        (says(b"\x30\x80"), "a length of another form than LDAP has"),
        (says(b"\x30\x03\x02\x05\x01"), "an element that ends behind what contains it"),
        (says(message(1, 0x65, GOOD)), "tag 0x65, which does not match the request"),
        (says(message(7, 0x61, GOOD)), "message 7 where 1 was expected"),
        (says(message(1, 0x61, b"")), "nothing where tag 0x0a was expected"),
        (says(message(1, 0x61, b"\x0a\x01\x34\x04\x00\x04\x00")), "unavailable (52)"),
        (
            says(message(0, 0x78, b"\x0a\x01\x34\x04\x00\x04\x00")),
            "it closes the connection, unavailable",
        ),
        (
            says(message(1, 0x61, b"\x0a\x01\x01\x04\x00\x04\x07a\nb\x1bc\xff\xfe")),
            "operationsError (1), 'a b c\ufffd\ufffd'",
        ),
        (says(BOUND, message(2, 0x64, NAMELESS) + DONE), "gives an entry without a name"),
        (
            says(BOUND, message(2, 0x64, ANN.replace(b"ann", b"bob")) + DONE),
            "does not have the name that was given",
        ),
        (says(BOUND, message(2, 0x64, ANN) * 2 + DONE), "several entries"),
        (says(BOUND, message(2, 0x73, b"\x04\x00") * 40), "more than 32 answers to a search"),
        (says(BOUND, message(2, 0x64, ANN[:-2]) + DONE), "an element that ends behind"),
        (
            says(BOUND, message(2, 0x65, b"\x0a\x01\x0a\x04\x00\x04\x00")),
            "ends with referral (10)",
        ),
        (
            says(
                BOUND,
                message(2, 0x64, ANN) + DONE,
                message(3, 0x61, b"\x0a\x01\x0a\x04\x00\x04\x00"),
            ),
            "answers the bind as 'cn=a' with referral (10)",
        ),
    ],
)
def test_a_directory_that_misbehaves(tmp_path: Path, talk: Talk, logged: str) -> None:
    with misbehaving(talk) as port, server_for(tmp_path, port) as server:
        assert not logs_on(server, "ann", "ann-s3cret")
        assert server.logs(logged)
        assert "Traceback" not in server.log()
        assert "s3cret" not in server.log()


def test_a_directory_that_says_yes_to_everything_is_believed(tmp_path: Path) -> None:
    """So that the table above would fail if its answers were wrong in other ways than it says."""
    talk = says(BOUND, message(2, 0x64, ANN) + DONE, message(3, 0x61, GOOD))
    with misbehaving(talk) as port, server_for(tmp_path, port) as server:
        assert logs_on(server, "ann", "ann-s3cret")


@pytest.mark.parametrize(("version", "answer"), [("2", True), ("3", False)])
def test_references_are_passed_over_in_version_2_as_well(
    tmp_path: Path, version: str, answer: bool
) -> None:
    """A search that comes upon some ends with partialResults there; in version 3 that is none."""
    partial = message(2, 0x65, b"\x0a\x01\x09\x04\x00\x04\x00")
    talk = says(BOUND, message(2, 0x64, ANN) + partial, message(3, 0x61, GOOD))
    with (
        misbehaving(talk) as port,
        server_for(tmp_path, port, ProtocolVersion=version) as server,
    ):
        assert logs_on(server, "ann", "ann-s3cret") is answer


def test_encryption_where_none_is_spoken_is_told(tmp_path: Path) -> None:
    def talk(connection: socket.socket) -> None:
        connection.recv(65_536)

    with misbehaving(talk) as port, server_for(tmp_path, port, Encryption="ldaps") as server:
        assert not logs_on(server, "ann", "ann-s3cret")
        assert server.logs("it has ended the connection; LDAP.Encryption ldaps needs a port that")


def test_nothing_that_comes_before_encryption_counts(tmp_path: Path) -> None:
    """Somebody in between could send the answers to come along with that to StartTLS."""
    talk = says(message(1, 0x78, GOOD) + message(2, 0x61, GOOD))
    given = {"Encryption": "starttls", "ProtocolVersion": "3"}
    with misbehaving(talk) as port, server_for(tmp_path, port, **given) as server:
        assert not logs_on(server, "ann", "ann-s3cret")
        assert server.logs("bytes behind the answer to StartTLS")


def test_a_directory_that_refuses_encryption_gets_no_password(tmp_path: Path) -> None:
    got = []

    def talk(connection: socket.socket) -> None:
        got.append(connection.recv(65_536))
        connection.sendall(message(1, 0x78, b"\x0a\x01\x02\x04\x00\x04\x00"))
        while data := connection.recv(65_536):
            got.append(data)

    given = {"Encryption": "starttls", "ProtocolVersion": "3"}
    with misbehaving(talk) as port, server_for(tmp_path, port, **given) as server:
        assert not logs_on(server, "ann", "ann-s3cret")
        assert server.logs("refuses StartTLS: protocolError (2)")
    assert b"s3cret" not in b"".join(got)


def test_a_directory_that_is_slow_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    """Messages go on, and somebody else's logon is decided, while one waits for the directory."""
    waits = threading.Event()

    def talk(connection: socket.socket) -> None:
        waits.set()
        while connection.recv(65_536):
            pass

    with misbehaving(talk) as port:
        other = free_port()
        transport = f"""
        <Transport>
          <Name>open</Name><Type>tcp</Type><InetAddr>127.0.0.1:{other}</InetAddr>
          <Protocol>amps</Protocol>
          <Authentication><Module>amps-default-authentication-module</Module></Authentication>
        </Transport>"""
        (tmp_path / "account.txt").write_text("x")
        with (
            running_server(
                tmp_path, elements=elements(options_for(port)), transports=transport
            ) as server,
            server.connect() as waiting,
        ):
            waiting.send(
                {"c": "logon", "cid": "1", "a": "processed", "mt": "json"}
                | {"user_id": "ann", "pw": "ann-s3cret", "client_name": "w"}
            )
            assert waits.wait(60)
            with RawPeer(other) as quick:
                assert quick.log_on("quick")["status"] == "success"
                quick.flush()
            assert waiting.receive_header()["detail"] == (
                "the credentials cannot be checked at the moment"
            )
            assert server.logs("has not answered within 10 seconds")
