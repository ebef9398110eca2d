"""How a connection of a tcp transport may begin: frames, an HTTP preflight, compression."""

from __future__ import annotations

import itertools
import socket
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amperage.wire.compression import Compression
from amperage.wire.framing import FrameError
from amperage.wire.protocol_detection import ProtocolDetector
from tests.support.raw import SILENCE_SECONDS, RawPeer, frame
from tests.support.server import RunningServer, module_server
from tests.support.waiting import WAIT_SECONDS
from tests.transports.support import CompressedPeer

PREFLIGHT = (
    b"GET /amps/json HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: TCP\r\n"
    b"Cookie: a=1; b=2\r\n"
)
SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: TCP\r\nConnection: Upgrade\r\n\r\n"


server = module_server()


@contextmanager
def preflight(server: RunningServer, request: bytes = PREFLIGHT + b"\r\n") -> Iterator[RawPeer]:
    """A connection after its preflight."""
    with server.connect() as peer:
        peer.socket.sendall(request)
        assert peer.take(len(SWITCHING)) == SWITCHING
        yield peer


def receive_all(peer: RawPeer) -> bytes:
    """Everything until the server closes the connection."""
    received = b""
    while chunk := peer.socket.recv(65536):
        received += chunk
    return received


@pytest.mark.parametrize("level", [0, 1, -1, 9])
def test_compression_is_found_out(server: RunningServer, level: int) -> None:
    """A connection that begins with a zlib stream is compressed in both directions."""
    body = b"0123456789" * 100_000
    with CompressedPeer(server.port, level) as peer, server.log_on() as plain:
        assert peer.log_on()["status"] == "success"
        peer.subscribe(f"to-compressed-{level}", "1")
        plain.subscribe(f"to-plain-{level}", "1")
        for _ in range(3):
            plain.publish(f"to-compressed-{level}", body)
            peer.publish(f"to-plain-{level}", body)
            assert peer.receive()[1] == body
            assert plain.receive()[1] == body


def test_what_is_sent_leaves_at_once(server: RunningServer) -> None:
    """Nothing waits in the compressor for more."""
    with CompressedPeer(server.port) as peer:
        peer.log_on()
        for _ in range(20):
            peer.flush()


@pytest.mark.parametrize(
    "data",
    [
        b"x\x00garbage",
        zlib.compress(b"garbage")[:4] + b"\xff" * 20,
        zlib.compress(frame({"c": "logon"})) + b"more",
        zlib.compress(b"GET / HTTP/1.1\r\n\r\n"),
        zlib.compress(zlib.compress(frame({"c": "logon"}))),
    ],
)
def test_a_damaged_stream_ends_the_connection(server: RunningServer, data: bytes) -> None:
    """A compressed stream that cannot be read closes the connection; the log says why."""
    with server.connect() as peer:
        peer.socket.sendall(data)
        assert receive_all(peer) == b""
    assert server.logs("sent an invalid frame")


def peak_memory(server: RunningServer) -> int:
    """The most memory that a server has used, in bytes."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def test_a_bomb_costs_no_memory(server: RunningServer) -> None:
    """A few bytes that stand for a frame above the limit are refused before they are unpacked."""
    before = peak_memory(server)
    # Made before the connection, whose time before its logon is limited.
    bomb = zlib.compress(struct.pack(">I", 300 * 1024 * 1024) + b"{}" + b"\x00" * 100_000_000)
    with CompressedPeer(server.port) as peer:
        peer.socket.sendall(bomb)
        assert peer.is_disconnected()
    assert peak_memory(server) - before < 50_000_000


@pytest.mark.parametrize("cut", [1, 2, 50, len(PREFLIGHT), len(PREFLIGHT) + 1])
def test_a_preflight_is_answered(server: RunningServer, cut: int) -> None:
    """After an HTTP upgrade request the connection is an ordinary one, however the bytes come."""
    with server.connect() as peer:
        request = PREFLIGHT + b"\r\n"
        peer.socket.sendall(request[:cut])
        peer.socket.settimeout(SILENCE_SECONDS / 10)
        with pytest.raises(TimeoutError):
            peer.socket.recv(1)
        peer.socket.settimeout(WAIT_SECONDS)
        peer.socket.sendall(request[cut:])
        assert peer.take(len(SWITCHING)) == SWITCHING
        assert peer.log_on()["status"] == "success"
        peer.subscribe("preflight", "1")
        peer.publish("preflight", b"body")
        assert peer.receive()[1] == b"body"


def test_a_client_need_not_wait_for_the_answer(server: RunningServer) -> None:
    """The logon may follow the preflight in the same packet."""
    logon = frame({"c": "logon", "cid": "1", "mt": "json", "a": "processed"})
    with preflight(server, PREFLIGHT + b"\r\n" + logon) as peer:
        assert peer.receive_header()["status"] == "success"


def test_a_preflight_of_a_websocket_kind_is_answered_in_kind(server: RunningServer) -> None:
    """Proxies that take the preflight for a websocket's want its key answered (RFC 6455)."""
    key = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    with server.connect() as peer:
        peer.socket.sendall(PREFLIGHT.replace(b"TCP", b"websocket") + key)
        response = peer.socket.recv(1000)
        assert b"\r\nUpgrade: websocket\r\n" in response
        assert b"\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in response
        assert peer.log_on()["status"] == "success"


def test_compression_may_follow_a_preflight(server: RunningServer) -> None:
    """Both can be used on one connection."""
    with CompressedPeer(server.port) as peer:
        peer.socket.sendall(PREFLIGHT + b"\r\n")
        assert peer.socket.recv(len(SWITCHING)) == SWITCHING
        assert peer.log_on()["status"] == "success"


@pytest.mark.parametrize(
    ("request_bytes", "answer"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 426 Upgrade Required\r\n"),
        (b"GET / HTTP/1.1\r\nUpgrade: \x01\r\n\r\n", b"HTTP/1.1 426 Upgrade Required\r\n"),
        (b"GET /\r\n\r\n", b""),
        (b"GIVE me HTTP/1.1\r\n\r\n", b""),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 4_000, b""),
        (b"POST / HTTP/1.1\r\n\r\n", b""),
        ((PREFLIGHT + b"\r\n") * 2, SWITCHING),
    ],
)
def test_other_requests_are_refused(
    server: RunningServer, request_bytes: bytes, answer: bytes
) -> None:
    """A request that is no preflight gets an answer where it can be understood, and an end."""
    with server.connect() as peer:
        peer.socket.sendall(request_bytes)
        assert receive_all(peer).startswith(answer)
    with socket.create_connection(("127.0.0.1", server.port)) as survivor:
        assert survivor


@given(st.data())
def test_openings_do_not_depend_on_how_bytes_come(data: st.DataObject) -> None:
    """Cut anywhere, the same bytes give the same answers and the same rest."""
    before = data.draw(st.sampled_from([b"", PREFLIGHT + b"\r\n"]))
    stream = data.draw(st.sampled_from([frame({"c": "logon"}), zlib.compress(b"abc")]))
    sent = before + stream
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=8)))
    opening = ProtocolDetector()
    replies, rest = b"", b""
    for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        chunk = sent[start:end]
        rest += chunk if opening.is_complete else opening.feed(chunk)
        replies += opening.reply
        opening.reply = b""
    assert (replies, rest) == (SWITCHING if before else b"", stream)
    assert opening.is_complete
    assert opening.is_compressed == (stream[0] == 0x78)


@given(st.lists(st.binary(max_size=300)), st.booleans())
def test_openings_survive_anything(chunks: list[bytes], begins_like_a_request: bool) -> None:
    """Whatever comes is passed on, waited for within limits, or refused with the one error."""
    opening = ProtocolDetector()
    sent = 0
    for chunk in [b"GET ", *chunks] if begins_like_a_request else chunks:
        try:
            sent += len(chunk) - len(opening.feed(chunk))
        except FrameError:
            return
        if opening.is_complete:
            return
        assert sent <= 16 * 1024 + 300


@given(st.binary(max_size=100_000), st.lists(st.integers(0, 100_000), max_size=6))
def test_compression_gives_back_what_was_sent(data: bytes, cuts: list[int]) -> None:
    """In pieces, whole, of any size: the far end reads what this end wrote."""
    ours, theirs = Compression(), Compression()
    received = b""
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    for start, end in itertools.pairwise(edges):
        received += b"".join(theirs.decompress(ours.compress(data[start:end])))
        assert len(received) == end


def test_decompression_comes_in_bounded_pieces() -> None:
    """A gigabyte in a megabyte is handed out in pieces, and need not be taken whole."""
    bomb = zlib.compress(b"\x00" * 50_000_000)
    sizes = [len(piece) for piece in Compression().decompress(bomb)]
    assert sum(sizes) == 50_000_000
    assert max(sizes) <= 256 * 1024


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", "a TLS handshake: this transport has no TLS"),
        (b"\x16", "a TLS handshake: this transport has no TLS"),
        (b"POST / HTTP/1.1\r\n\r\n", "an HTTP request: this is the port of an AMPS transport"),
        (b"\x82\x84abcd", "a websocket message: this transport does not speak websocket"),
    ],
)
@pytest.mark.parametrize("after_preflight", [False, True])
def test_who_has_come_to_the_wrong_port_is_recognized(
    server: RunningServer, sent: bytes, said: str, after_preflight: bool
) -> None:
    """The connection ends at once, and the log says what its peer seems to speak."""
    if after_preflight:
        with preflight(server) as peer:
            peer.socket.sendall(sent)
            assert receive_all(peer) == b""
    else:
        with server.connect() as peer:
            peer.socket.sendall(sent)
            assert receive_all(peer) == b""
    assert server.logs(f"sent an invalid frame: {said}")
