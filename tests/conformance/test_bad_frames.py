"""A peer that breaks the rules is disconnected with an entry in the log; all others go on."""

from __future__ import annotations

import struct
import time

import pytest

from tests.support.raw import frame
from tests.support.server import RunningServer

BROKEN_STREAMS = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no header": struct.pack(">I", 5) + b"hello",
    "empty frame": struct.pack(">I", 0),
    "header is no object": struct.pack(">I", 7) + b"[1, 2]}",
    "header without end": struct.pack(">I", 9) + b'{"c":"p",',
    "header cut in a string": struct.pack(">I", 14) + b'{"c":"p","t":"',
    "header is not utf-8": struct.pack(">I", 10) + b'{"c":"\xff\xfe"}',
    "oversized frame": struct.pack(">I", 200 * 1024 * 1024 + 1) + b"{}",
    "negative length": b"\xff\xff\xff\xff",
    "unknown command": frame({"c": "no_such_command"}),
    "no command": frame({"t": "orders"}),
}


@pytest.mark.parametrize("name", BROKEN_STREAMS)
@pytest.mark.parametrize("logged_on", [False, True])
def test_a_broken_stream_ends_its_connection_only(
    server: RunningServer, name: str, logged_on: bool
) -> None:
    """The offender is disconnected; a bystander does not notice."""
    with server.log_on("bystander") as bystander:
        bystander.subscribe("calm", "1")
        offender = server.log_on("offender") if logged_on else server.connect()
        with offender:
            offender.socket.sendall(BROKEN_STREAMS[name])
            assert offender.is_disconnected()
        bystander.publish("calm", b"{}")
        assert bystander.receive()[1] == b"{}"


def test_commands_before_the_broken_frame_are_carried_out(server: RunningServer) -> None:
    """What could be read was meant."""
    with server.log_on("offender") as offender, server.log_on("bystander") as bystander:
        bystander.subscribe("before", "1")
        offender.socket.sendall(frame({"c": "p", "t": "before"}, b"{}") + b"\xff\xff\xff\xff")
        assert bystander.receive()[1] == b"{}"
        assert offender.is_disconnected()
    assert server.logs("client[offender] sent an invalid frame")
    assert server.logs("client[offender] disconnected. Reason: unknown command")


def test_a_connection_that_ends_within_a_frame_is_logged(server: RunningServer) -> None:
    """A truncated frame is carried out by nobody, and does not go unnoticed."""
    with server.log_on("truncated") as peer:
        peer.socket.sendall(frame({"c": "p", "t": "truncated"}, b"{}")[:-1])
    assert server.logs("client[truncated] sent an invalid frame")


@pytest.mark.parametrize(
    ("key", "value"),
    [("s", "seven"), ("s", -1), ("s", 1 << 64), ("e", -1), ("e", 1 << 63), ("e", 0.5), ("e", " ")],
)
def test_a_key_with_an_impossible_value_is_refused_and_the_connection_goes_on(
    server: RunningServer, key: str, value: object
) -> None:
    """The frame is well-formed, so the next one can be trusted."""
    with server.log_on() as peer:
        ack = peer.ask({"c": "publish", "cid": "1", "t": "t", key: value, "a": "processed"})
        assert (ack["status"], ack["reason"]) == ("failure", "bad header")
        assert repr(value) in ack["detail"]
        peer.flush()


@pytest.mark.parametrize("pause", [False, True])
def test_frames_may_arrive_in_any_pieces(server: RunningServer, pause: bool) -> None:
    """Byte by byte or many at once makes no difference."""
    with server.log_on() as peer:
        peer.subscribe("pieces", "1")
        stream = b"".join(frame({"c": "p", "t": "pieces"}, b"%d" % n) for n in range(20))
        for position in range(0, len(stream), 7):
            peer.socket.sendall(stream[position : position + 7])
            if pause:
                time.sleep(0.001)
        assert [peer.receive()[1] for _ in range(20)] == [b"%d" % n for n in range(20)]


@pytest.mark.parametrize(
    "header",
    [
        b'{"c":"publish","t":"odd","x":"}"}',
        b'{"c":"publish","t":"odd","f":"a \\" } {"}',
        b'{"unknown":true,"c":"publish","t":"odd","l":"5"}',
        b'{ "c" : "publish" ,\n "t" : "odd", "s": "12" }',
        b'{"c":"\\u0070ublish","t":"odd"}',
    ],
)
def test_headers_are_json_however_written(server: RunningServer, header: bytes) -> None:
    """Braces in strings, escapes, white space, unknown keys and quoted numbers are all fine."""
    body = b'{"b":"}"}'
    with server.log_on() as peer:
        peer.subscribe("odd", "1")
        peer.socket.sendall(struct.pack(">I", len(header) + len(body)) + header + body)
        assert peer.receive()[1] == body


@pytest.mark.parametrize(
    ("command", "key", "length", "reason"),
    [
        ("logon", "client_name", 1025, "bad header"),
        ("logon", "client_name", 60_000, "bad header"),
        ("logon", "user_id", 1025, "bad header"),
        ("subscribe", "cid", 1025, "bad header"),
        ("subscribe", "sub_id", 1025, "invalid subscription id"),
        ("subscribe", "t", 65_536, "bad header"),
        ("publish", "x", 65_536, "bad header"),
        ("publish", "k", 65_536, "bad header"),
        ("unsubscribe", "query_id", 1_000_001, "bad header"),
    ],
)
def test_texts_have_limits(
    server: RunningServer, command: str, key: str, length: int, reason: str
) -> None:
    """A text that is too long is refused with its length, and does not fill the log."""
    with server.connect() as peer:
        if command != "logon":
            peer.log_on()
        header = {"c": command, "cid": "1", "t": "t", "mt": "json", "a": "processed"}
        ack = peer.ask(header | {key: "n" * length})
        assert (ack["status"], ack["reason"]) == ("failure", reason)
        assert str(length) in ack["detail"]
        if command == "logon":
            assert peer.log_on()["status"] == "success"
        peer.flush()
    assert "n" * 10_000 not in server.log()


def test_texts_within_the_limits_pass(server: RunningServer) -> None:
    """The longest names that there can be; long filters are shortened in the log."""
    name = "n" * 1024
    with server.connect() as peer:
        assert peer.log_on(name)["client_name"] == name
        assert peer.subscribe("long", name, f=f"/a = '{'f' * 50_000}'")["status"] == "success"
        peer.flush()
    assert server.logs("characters more ...")
    assert "f" * 10_000 not in server.log()
