"""HTTP itself: what arrives, what does not, and who is waited for how long."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import resource
import socket
from collections.abc import AsyncGenerator, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.admin.http.compression import accepts_gzip
from server.admin.http.limits import (
    MAX_REQUEST_BODY_SIZE,
    MAX_REQUEST_HEAD_SIZE,
    MAX_REQUEST_TARGET_SIZE,
    HttpLimits,
)
from server.admin.http.messages import TEXT, HttpDocument, HttpError, HttpRequest, HttpResponse
from server.admin.http.send_budget import SendBudget
from tests.admin.support import Peer, http_server, read, read_all
from tests.support.chances import examples
from tests.support.waiting import WAIT_SECONDS, wait_until

LARGE = b"0123456789abcdef" * (1 << 19)
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def answer(request: HttpRequest) -> HttpResponse:
    """Tell what has come; some paths do something else."""
    match request.path:
        case "/large":
            return HttpResponse(HttpDocument(LARGE, TEXT))
        case "/defect":
            raise LookupError("a secret detail")
        case "/refused":
            raise HttpError(404, "There is no such thing.")
        case "/stream":
            return HttpResponse(_numbers())
        case "/broken":
            return HttpResponse(_breaks())
        case "/dated":
            return HttpResponse(
                HttpDocument(b"old", TEXT), last_modified="Mon, 23 Nov 2026 04:00:00 GMT"
            )
        case _:
            told = f"{request.method} {request.path} {dict(request.query)} {len(request.body)}\n"
            return HttpResponse(HttpDocument(told.encode(), TEXT))


async def _numbers() -> AsyncGenerator[bytes, None]:
    for number in range(3):
        yield str(number).encode()


async def _breaks() -> AsyncGenerator[bytes, None]:
    yield b"begun"
    await asyncio.sleep(0)
    raise OSError("gone")


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    with http_server(answer) as running:
        yield running


def status(reply: bytes) -> int:
    """The status of the first answer of some bytes; 0 if there is none."""
    return int(reply.split()[1]) if reply.startswith(b"HTTP/1.1 ") else 0


def request(*lines: str, body: bytes = b"") -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


GOOD = {
    "as a browser": (request("GET /a?t0=1&watch HTTP/1.1", "Host: a"), b"{'t0': '1', 'watch': ''}"),
    "of HTTP/1.0": (request("GET / HTTP/1.0"), b"GET /"),
    "with a whole address": (
        request("GET http://a/b?c=d HTTP/1.1", "Host: a"),
        b"GET /b {'c': 'd'}",
    ),
    "for the server": (request("OPTIONS * HTTP/1.1", "Host: a"), b"OPTIONS /"),
    "with a body": (
        request("POST / HTTP/1.1", "Host: a", "Content-Length: 3", body=b"abc"),
        b"POST / {} 3",
    ),
    "with a body in chunks": (
        request(
            "POST / HTTP/1.1",
            "Host: a",
            "Transfer-Encoding: chunked",
            body=b"3\r\nabc\r\n0\r\n\r\n",
        ),
        b"POST / {} 3",
    ),
    "that asks first": (
        request(
            "POST / HTTP/1.1", "Host: a", "Expect: 100-continue", "Content-Length: 1", body=b"a"
        ),
        b"POST / {} 1",
    ),
    "with an upgrade": (
        request("GET / HTTP/1.1", "Host: a", "Connection: upgrade", "Upgrade: h2c"),
        b"GET / {} 0",
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_request_is_answered(peer: Peer, name: str) -> None:
    sent, told = GOOD[name]
    reply = peer.exchange(sent)
    assert status(reply) == 200
    assert told in reply


BAD = {
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\r\n\r\n", 400),
    "no host": (request("GET / HTTP/1.1"), 400),
    "two hosts": (request("GET / HTTP/1.1", "Host: a", "Host: b"), 400),
    "another version": (request("GET / HTTP/3.7", "Host: a"), 505),
    "a broken header": (request("GET / HTTP/1.1", "Host: a", "no colon"), 400),
    "a blank before the colon": (request("GET / HTTP/1.1", "Host: a", "Content-Length : 3"), 400),
    "a NUL": (request("GET / HTTP/1.1", "Host: a\0b"), 400),
    "two lengths": (
        request(
            "POST / HTTP/1.1", "Host: a", "Content-Length: 3", "Content-Length: 4", body=b"abcd"
        ),
        400,
    ),
    "a length and chunks": (
        request(
            "POST / HTTP/1.1",
            "Host: a",
            "Content-Length: 3",
            "Transfer-Encoding: chunked",
            body=b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
        400,
    ),
    "chunks of HTTP/1.0": (
        request("POST / HTTP/1.0", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
        400,
    ),
    "chunks and more": (
        request(
            "POST / HTTP/1.1", "Host: a", "Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"
        ),
        501,
    ),
    "no length": (request("POST / HTTP/1.1", "Host: a", "Content-Length: +3", body=b"abc"), 400),
    "a negative length": (request("POST / HTTP/1.1", "Host: a", "Content-Length: -3"), 400),
    "no chunk": (
        request("POST / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", body=b"xyz\r\n"),
        400,
    ),
    "a large body": (
        request("POST / HTTP/1.1", "Host: a", f"Content-Length: {MAX_REQUEST_BODY_SIZE + 1}"),
        413,
    ),
    "a large body in chunks": (
        request(
            "POST / HTTP/1.1",
            "Host: a",
            "Transfer-Encoding: chunked",
            body=b"10001\r\n" + bytes(65537),
        ),
        413,
    ),
    "a large body of a HEAD": (
        request("HEAD / HTTP/1.1", "Host: a", f"Content-Length: {MAX_REQUEST_BODY_SIZE + 1}"),
        413,
    ),
    "a long path": (request(f"GET /{'a' * MAX_REQUEST_TARGET_SIZE} HTTP/1.1", "Host: a"), 414),
    "many headers": (
        request("GET / HTTP/1.1", "Host: a", *(f"X-{n}: 1" for n in range(101))),
        431,
    ),
    "a long header": (
        request("GET / HTTP/1.1", "Host: a", f"X: {'a' * MAX_REQUEST_HEAD_SIZE}"),
        431,
    ),
    "headers without end": (request("GET / HTTP/1.1", "Host: a")[:-2] + b"X: 1\r\n" * 100_000, 431),
    "no path": (request("CONNECT a:80 HTTP/1.1", "Host: a"), 400),
    "many parameters": (
        request("GET /?" + "&".join(f"a{n}=1" for n in range(101)) + " HTTP/1.1", "Host: a"),
        400,
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_request_is_refused(peer: Peer, name: str) -> None:
    """The answer is readable, and the connection ends with it: nothing behind it is a request."""
    sent, expected = BAD[name]
    reply = peer.exchange(sent)
    assert status(reply) == expected
    assert reply.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in reply.lower()
    assert b"smuggled" not in reply
    assert status(peer.exchange(GET)) == 200


def test_a_defect_shows_nothing_of_itself(peer: Peer) -> None:
    reply = peer.exchange(request("GET /defect HTTP/1.1", "Host: a"))
    assert status(reply) == 500
    assert b"secret" not in reply
    assert b"Traceback" not in reply
    assert b"19-0007" in reply
    assert any("secret" in str(fields) for name, fields in peer.log.entries if name == "19-0007")


def test_a_refusal_is_readable(peer: Peer) -> None:
    reply = peer.exchange(request("GET /refused HTTP/1.1", "Host: a"))
    assert reply.endswith(b"\r\n\r\n404 Not Found\nThere is no such thing.\n")


def test_requests_that_come_together_are_answered_in_their_order(peer: Peer) -> None:
    sent = [request(f"GET /{number} HTTP/1.1", "Host: a") for number in range(50)]
    reply = peer.exchange(b"".join(sent))
    assert reply.count(b"HTTP/1.1 200 OK") == 50
    places = [reply.index(f"GET /{number} ".encode()) for number in range(50)]
    assert places == sorted(places)


def test_a_connection_stays_open_for_more(peer: Peer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", peer.port, timeout=WAIT_SECONDS)
    for path in ("/one", "/two", "/refused", "/large", "/stream", "/three"):
        connection.request("GET", path)
        own = connection.sock
        reply = read(connection)
        assert connection.sock is own, path
    assert b"/three" in reply.body
    connection.close()


@pytest.mark.parametrize("path", ["/", "/large", "/stream"])
def test_a_head_is_what_a_get_has_without_its_body(peer: Peer, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", peer.port, timeout=WAIT_SECONDS)
    replies = []
    for method in ("HEAD", "GET", "HEAD"):
        connection.request(method, path)
        replies.append(read(connection))
    head, got, _ = replies
    assert head.body == b""
    assert head.status == got.status == 200
    assert head.headers.keys() == got.headers.keys()
    if path == "/large":
        assert head.headers["content-length"] == str(len(LARGE))
    connection.close()


@pytest.mark.parametrize(
    "garbage",
    [b"hello\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"\x16\x03\x01\r\n\r\n"],
)
def test_what_is_no_request_is_refused_behind_a_head(peer: Peer, garbage: bytes) -> None:
    """The refusal has a body again; without one, its Content-Length would be wrong."""
    first, second = peer.exchange(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n" + garbage).split(
        b"\r\n\r\nHTTP/1.1 "
    )
    assert first.startswith(b"HTTP/1.1 200 ")
    head, body = second.split(b"\r\n\r\n")
    assert head.startswith(b"400 ")
    assert f"content-length: {len(body)}".encode() in head.lower()


def test_a_stream_comes_in_chunks_and_to_old_programs_until_the_end(peer: Peer) -> None:
    reply = peer.exchange(request("GET /stream HTTP/1.1", "Host: a"))
    assert b"transfer-encoding: chunked" in reply.lower()
    assert reply.endswith(b"0\r\n\r\n")
    assert peer.exchange(request("GET /stream HTTP/1.0")).endswith(b"\r\n\r\n012")


def test_an_answer_that_breaks_off_is_seen_not_to_be_whole(peer: Peer) -> None:
    with peer.connect() as connection:
        connection.sendall(request("GET /broken HTTP/1.1", "Host: a"))
        reply = read_all(connection)
    assert b"begun" in reply
    assert not reply.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize(
    ("accepted", "is_accepted"),
    [
        ("", False),
        ("gzip", True),
        ("GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("deflate, br", False),
        ("*", True),
        ("*;q=0.1, gzip;q=0", False),
        ("gzip;q=nonsense", False),
    ],
)
def test_gzip_is_sent_to_those_who_take_it(accepted: str, is_accepted: bool) -> None:
    assert accepts_gzip(accepted) is is_accepted


def test_what_is_compressed_is_the_same(peer: Peer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", peer.port, timeout=WAIT_SECONDS)
    connection.request("GET", "/large", headers={"Accept-Encoding": "gzip"})
    reply = read(connection)
    assert reply.headers["content-encoding"] == "gzip"
    assert reply.headers["vary"] == "Accept-Encoding"
    assert gzip.decompress(reply.body) == LARGE
    connection.request("GET", "/", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in read(connection).headers, "it is too small to be worth it"
    connection.close()


def test_what_has_not_changed_is_not_sent_again(peer: Peer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", peer.port, timeout=WAIT_SECONDS)

    def get(path: str, **headers: str) -> tuple[int, bytes]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", path, headers=named)
        reply = read(connection)
        return reply.status, reply.body

    connection.request("GET", "/large")
    etag = read(connection).headers["etag"]
    assert get("/large", If_None_Match=etag) == (304, b"")
    assert get("/large", If_None_Match=f'"x", {etag.removeprefix("W/")}') == (304, b"")
    assert get("/large", If_None_Match=etag, Accept_Encoding="gzip") == (304, b"")
    assert get("/large", If_None_Match="*")[0] == 304
    assert get("/large", If_None_Match='"x"')[0] == 200
    assert get("/dated", If_Modified_Since="Mon, 23 Nov 2026 04:00:00 GMT") == (304, b"")
    assert get("/dated", If_Modified_Since="Mon, 23 Nov 2026 03:00:00 GMT") == (200, b"old")
    assert get("/refused", If_None_Match="*")[0] == 404
    connection.close()


def test_who_sends_half_a_request_is_told_so_and_who_sends_nothing_is_let_go() -> None:
    with http_server(answer, HttpLimits(arrival_timeout_s=0.2, idle_timeout_s=0.2)) as peer:
        with peer.connect() as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHo")
            assert status(read_all(connection)) == 408
        with peer.connect() as connection:
            connection.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na")
            assert status(read_all(connection)) == 408
        with peer.connect() as connection:
            assert read_all(connection) == b""
        with peer.connect() as connection:
            connection.sendall(GET)
            assert read_all(connection).count(b"HTTP/1.1 ") == 1, "and is closed when it is idle"


def test_who_does_not_read_is_cut_off_and_nobody_else() -> None:
    with http_server(answer, HttpLimits(write_timeout_s=0.3)) as peer, peer.connect() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(request("GET /large HTTP/1.1", "Host: a"))
        assert status(peer.exchange(GET)) == 200
        wait_until(lambda: _is_cut_off(slow))


def test_so_much_may_be_under_way_and_no_more() -> None:
    one, same, other = (HttpDocument(LARGE, TEXT) for _ in range(3))
    small = HttpDocument(b"small", TEXT)
    under_way = SendBudget(max_bytes=len(LARGE) + 10)
    assert under_way.reserve(one)
    assert under_way.reserve(one), "which counts once"
    assert not under_way.reserve(other)
    under_way.release(other)
    assert under_way.reserve(small)
    under_way.release(one)
    assert not under_way.reserve(other)
    under_way.release(one)
    under_way.release(small)
    assert under_way.reserve(same)


def _is_cut_off(connection: socket.socket) -> bool:
    """Whether the other end has given up, without reading anything."""
    try:
        connection.send(b"x")
    except OSError:
        return True
    return False


def test_for_one_connection_too_many_the_one_goes_that_has_been_idle_longest() -> None:
    with http_server(answer, HttpLimits(max_connections=3)) as peer:
        idle = [peer.connect() for _ in range(3)]
        for connection in [*idle, idle[0]]:
            assert is_served(connection)
        assert status(peer.exchange(GET)) == 200
        assert read_all(idle[1]) == b"", "which is the second"
        assert is_served(idle[0])
        assert is_served(idle[2])
        assert [name for name, _ in peer.log.entries].count("19-0010") == 1
        for connection in idle:
            connection.close()


def is_served(connection: socket.socket) -> bool:
    """Whether a request is answered on a connection that stays open."""
    connection.sendall(GET)
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status == 200 and response.read() != b""


def test_a_thousand_connections_that_send_nothing_keep_nobody_out() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # both ends are in this process
    with http_server(answer) as peer:
        silent = [peer.connect() for _ in range(1_000)]
        assert status(peer.exchange(GET)) == 200
        for connection in silent:
            connection.close()


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                b"GET ",
                b"POST /",
                b" HTTP/1.1",
                b" HTTP/1.0",
                b"\r\n",
                b"\n",
                b"\r",
                b"Host: a",
                b"Content-Length: 5",
                b"Transfer-Encoding: chunked",
                b"Transfer-Encoding: chunked, chunked",
                b"5\r\nhello\r\n",
                b"0\r\n\r\n",
                b"Expect: 100-continue",
                b"Connection: close",
                b": ",
                b"%ff%00",
                b"/?a=b&",
                b"\x00\xff",
                b"hello",
            ]
        )
        | st.binary(max_size=20),
        max_size=30,
    )
)
def test_whatever_comes_is_answered_or_let_go(peer: Peer, parts: list[bytes]) -> None:
    """Nothing that is sent is taken for a defect, and the server goes on."""
    before = len(peer.log.entries)
    reply = peer.exchange(b"".join(parts))
    assert reply == b"" or status(reply) in range(100, 600)
    assert b"Traceback" not in reply
    assert not [entry for entry in peer.log.entries[before:] if entry[0] == "19-0007"]
    assert status(peer.exchange(GET)) == 200
