"""Whatever a websocket peer sends, the server's side never fails, and keeps to the protocol."""

from __future__ import annotations

import itertools
import json
import struct

from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.frames import Frame
from websockets.uri import parse_uri

from amperage.wire.framing import FrameError
from amperage.wire.websocket import MAX_MESSAGE_FRAGMENTS, WebsocketPeer
from tests.support.chances import examples


def connected(*, deflate: bool) -> tuple[WebsocketPeer, ClientProtocol]:
    """Two ends after their handshake, without a network."""
    extensions = [ClientPerMessageDeflateFactory()] if deflate else []
    client = ClientProtocol(parse_uri("ws://localhost/amps/json"), extensions=extensions)
    server = WebsocketPeer(deflate=deflate)
    client.send_request(client.connect())
    request = server.take_request(b"".join(client.data_to_send()))
    assert request is not None
    server.accept(request, ())
    client.receive_data(server.take_output())
    assert client.handshake_exc is None
    client.events_received()
    return server, client


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """Data cut at some places."""
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def feed(server: WebsocketPeer, data: bytes) -> list[tuple[bytes, bytes]]:
    """All frames that are completed by some bytes."""
    frames = server.feed(data)
    while server.has_more:
        frames += server.feed(b"")
    return frames


bodies = st.lists(st.binary(max_size=200), max_size=10)
cuts = st.lists(st.integers(0, 500), max_size=10)


@given(bodies, cuts, st.booleans(), st.booleans())
def test_commands_arrive_as_sent(
    messages: list[bytes], where: list[int], deflate: bool, fragmented: bool
) -> None:
    """Each message is one frame, with and without compression and fragments, cut anywhere."""
    server, client = connected(deflate=deflate)
    for body in messages:
        if fragmented:
            client.send_binary(b'{"c":', fin=False)
            client.send_ping(b"between")
            client.send_continuation(b'"p"}' + body, fin=True)
        else:
            client.send_binary(b'{"c":"p"}' + body)
    sent = b"".join(client.data_to_send())
    frames = [one for piece in pieces(sent, where) for one in feed(server, piece)]
    assert frames == [(b'{"c":"p"}', body) for body in messages]
    assert not server.has_partial_frame
    assert server.error is None


@given(bodies, st.booleans(), st.booleans())
def test_messages_arrive_as_encoded(messages: list[bytes], deflate: bool, as_text: bool) -> None:
    """Length-prefixed frames become one message each, text only where it is UTF-8."""
    server, client = connected(deflate=deflate)
    contents = [b"{}" + body for body in messages]
    stream = b"".join(struct.pack(">I", len(content)) + content for content in contents)
    client.receive_data(server.encode(stream, as_text=as_text))
    events = client.events_received()
    assert client.parser_exc is None
    assert [bytes(event.data) for event in events if isinstance(event, Frame)] == contents
    for event in events:
        assert isinstance(event, Frame)
        if event.opcode.name == "TEXT":
            assert as_text
            bytes(event.data).decode()


@settings(max_examples=examples(300, 24))
@given(st.lists(st.binary(max_size=100), max_size=20), st.booleans())
def test_garbage_is_survived(chunks: list[bytes], deflate: bool) -> None:
    """Any bytes after the handshake give frames or one error, and the rest is passed over."""
    server, _ = connected(deflate=deflate)
    for chunk in chunks:
        failed = server.error is not None
        frames = feed(server, chunk)
        assert not (failed and frames)
        server.take_output()
    server.close("\u00fc" * 100, at_fault=True)
    server.take_output()
    assert server.encode(struct.pack(">I", 2) + b"{}", as_text=True) == b""


@settings(max_examples=examples(300, 24))
@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 2, 8, 9, 10, 3]), st.integers(0, 255), cuts)),
    st.booleans(),
)
def test_odd_frames_are_survived(odd: list[tuple[int, int, list[int]]], deflate: bool) -> None:
    """Frames with any opcode and flags, masked as they should be, never raise."""
    server, _ = connected(deflate=deflate)
    for opcode, flags, payload in odd:
        data = json.dumps(payload).encode()[:125]
        first = (flags & 0xF0) | opcode
        feed(server, bytes((first, 0x80 | len(data))) + b"\x00" * 4 + data)
        server.take_output()


@settings(max_examples=examples(300, 24))
@given(st.lists(st.binary(max_size=300), max_size=10), st.booleans())
def test_handshakes_survive_anything(chunks: list[bytes], begins_well: bool) -> None:
    """Whatever comes before the handshake is complete is a request, waited for, or refused."""
    server = WebsocketPeer(deflate=True)
    for chunk in [b"GET /amps/json HTTP/1.1\r\n", *chunks] if begins_well else chunks:
        try:
            request = server.take_request(chunk)
            if request is not None:
                server.accept(request, ())
                return
        except FrameError:
            assert server.take_output() is not None
            return


headers = st.fixed_dictionaries(
    {"c": st.just("p"), "t": st.text(max_size=8) | st.sampled_from(["}", '"', '\\"}', "{\\"])}
)
ways = st.sampled_from(["at once", "byte by byte", "cut", "fragmented"])


def deliver(
    client: ClientProtocol, messages: list[tuple[bytes, bool]], way: str, where: list[int]
) -> list[bytes]:
    """What a peer puts on the wire to send some messages, in the pieces in which it arrives."""
    for content, is_text in messages:
        send = client.send_text if is_text else client.send_binary
        if way == "fragmented":
            edges = pieces(content, where)
            send(edges[0], fin=len(edges) == 1)
            for number, part in enumerate(edges[1:], 2):
                client.send_ping(b"between")
                client.send_continuation(part, fin=number == len(edges))
        else:
            send(content)
    sent = b"".join(client.data_to_send())
    if way == "byte by byte":
        return [bytes((byte,)) for byte in sent]
    return pieces(sent, where) if way == "cut" else [sent]


@settings(max_examples=examples(200, 24))
@given(
    st.sampled_from(["text", "binary"]),
    st.lists(st.tuples(headers, st.lists(st.binary(max_size=50), max_size=4)), max_size=6),
    ways,
    cuts,
    st.booleans(),
)
def test_commands_in_parts_arrive_as_sent(
    mode: str,
    commands: list[tuple[dict[str, str], list[bytes]]],
    way: str,
    where: list[int],
    deflate: bool,
) -> None:
    """A count, a header and parts of a body are one frame, whatever the network makes of them."""
    server, client = connected(deflate=deflate)
    messages = [(mode.encode(), True)]
    expected = []
    for header, parts in commands:
        encoded = json.dumps(header, ensure_ascii=False).encode()
        messages.append((struct.pack("<I", 1 + len(parts)), False))
        messages += [(encoded, True), *((part, False) for part in parts)]
        expected.append((encoded, b"".join(parts)))
    arrived = deliver(client, messages, way, where)
    assert [one for piece in arrived for one in feed(server, piece)] == expected
    assert server.error is None
    assert not server.has_partial_frame


@settings(max_examples=examples(200, 24))
@given(st.lists(st.binary(max_size=100), max_size=6), ways, cuts, cuts, st.booleans())
def test_streams_in_messages_arrive_as_sent(
    contents: list[bytes], way: str, where: list[int], edges: list[int], deflate: bool
) -> None:
    """Frames with their lengths may be divided among binary messages in any way."""
    server, client = connected(deflate=deflate)
    stream = b"".join(struct.pack(">I", 9 + len(body)) + b'{"c":"p"}' + body for body in contents)
    messages = [(piece, False) for piece in pieces(stream, edges) if piece]
    arrived = deliver(client, messages, way, where)
    expected = [(b'{"c":"p"}', body) for body in contents]
    assert [one for piece in arrived for one in feed(server, piece)] == expected
    assert server.error is None
    assert not server.has_partial_frame


@given(
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(["p", "oof", "sow", "ack"]), headers, bodies), max_size=6),
    st.booleans(),
)
def test_frames_are_sent_in_parts(
    text_bodies: bool, sent: list[tuple[str, dict[str, str], list[bytes]]], deflate: bool
) -> None:
    """Headers are texts; each body is a message of its own, as are the records of a batch."""
    server, client = connected(deflate=deflate)
    client.send_text(b"text" if text_bodies else b"binary")
    feed(server, b"".join(client.data_to_send()))
    stream = b""
    expected: list[bytes] = []
    for command, keys, records in sent:
        header = json.dumps(keys | {"c": command}).replace(" ", "").encode()
        header = b'{"c":"%s",' % command.encode() + header[1:]
        body = b"".join(records)
        expected.append(header)
        if command == "sow":
            heads = [b'{"k":"}\\"","l":%d}' % len(record) for record in records]
            body = b"".join(head + record for head, record in zip(heads, records, strict=True))
            expected += [one for pair in zip(heads, records, strict=True) for one in pair]
        elif command == "ack":
            body = b""
        else:
            expected.append(body)
        stream += struct.pack(">I", len(header) + len(body)) + header + body
    client.receive_data(server.encode(stream, as_text=False))
    events = [event for event in client.events_received() if isinstance(event, Frame)]
    assert client.parser_exc is None
    assert [bytes(event.data) for event in events] == expected
    assert all(
        event.opcode.name != "TEXT" or text_bodies or event.data[:1] == b"{" for event in events
    )


@settings(max_examples=examples(300, 24))
@given(
    st.sampled_from([b"text", b"binary", b"\x00\x00\x00\x02{}", b"{}"]),
    st.lists(st.tuples(st.binary(max_size=12) | st.just(b"\x02\x00\x00\x00"), st.booleans())),
)
def test_any_messages_are_survived(first: bytes, messages: list[tuple[bytes, bool]]) -> None:
    """In each form, messages that are not what has to come give frames, or one error."""
    server, client = connected(deflate=False)
    for content, is_text in [(first, first[0] != 0), *messages]:
        failed = server.error is not None
        (client.send_text if is_text else client.send_binary)(content)
        frames = feed(server, b"".join(client.data_to_send()))
        assert not (failed and frames)


def test_a_message_is_inflated_bit_by_bit() -> None:
    """However few bytes stand for it; what it has come to is known all the time."""
    server, client = connected(deflate=True)
    body = b"\x00" * 20_000_000
    client.send_binary(b'{"c":"p"}' + body)
    sent = b"".join(client.data_to_send())
    assert len(sent) < 100_000
    frames, sizes = server.feed(sent), [0]
    while server.has_more:
        frames += server.feed(b"")
        sizes.append(server.partial_size)
    assert frames == [(b'{"c":"p"}', body)]
    assert max(after - before for before, after in itertools.pairwise(sizes)) <= 128 * 1024
    assert server.partial_size == 0


def test_many_small_messages_are_read_a_few_at_a_time() -> None:
    """Those of one read of the socket need not be obeyed in one go."""
    server, client = connected(deflate=False)
    for _ in range(5_000):
        client.send_binary(b"{}")
    sent = b"".join(client.data_to_send())
    counts = [len(server.feed(sent))]
    while server.has_more:
        counts.append(len(server.feed(b"")))
    assert sum(counts) == 5_000
    assert max(counts) < 500


def test_a_message_has_a_limit_of_fragments() -> None:
    """Beyond it the connection is given up, with the reason."""
    server, client = connected(deflate=False)
    client.send_binary(b"{}", fin=False)
    for _ in range(MAX_MESSAGE_FRAGMENTS):
        client.send_continuation(b"x", fin=False)
    frames = feed(server, b"".join(client.data_to_send()))
    assert frames == []
    assert str(MAX_MESSAGE_FRAGMENTS) in str(server.error)
    client.receive_data(server.take_output())
    assert client.close_rcvd is not None
    assert client.close_rcvd.code == 1009
    server.drop_partial()
    assert server.partial_size == 0
