"""Content filters on subscriptions: only what matches is delivered."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import bson
import pytest

from tests.support.raw import frame
from tests.support.server import RunningServer, running_server

BODIES = {
    "json": (b'{"sym": "IBM", "qty": 5}', b'{"sym": "MSFT", "qty": 50}'),
    "nvfix": (b"sym=IBM\x01qty=5\x01", b"sym=MSFT\x01qty=50\x01"),
    "xml": (b"<m><sym>IBM</sym><qty>5</qty></m>", b"<m><sym>MSFT</sym><qty>50</qty></m>"),
}
PREFIXES = {"json": "", "nvfix": "", "xml": "/m"}


@pytest.mark.parametrize("message_type", BODIES)
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("{}/sym = 'IBM'", [0]),
        ("{}/qty > 10", [1]),
        ("{}/sym LIKE '^(IBM|MSFT)$' AND {}/qty BETWEEN 1 AND 100", [0, 1]),
        ("{}/sym IN ('IBM', 'HP') OR {}/qty = 50", [0, 1]),
        ("{}/none IS NOT NULL", []),
        ("1 = 1", [0, 1]),
    ],
)
def test_only_matching_messages_are_delivered(
    server: RunningServer, message_type: str, condition: str, expected: list[int]
) -> None:
    """The same filter means the same in every message type."""
    prefix = PREFIXES[message_type]
    bodies = BODIES[message_type]
    with server.log_on(message_type=message_type) as peer:
        ack = peer.subscribe("filtered", "1", f=condition.replace("{}", prefix))
        assert ack["status"] == "success"
        for body in bodies:
            peer.publish("filtered", body)
        peer.send({"c": "flush", "cid": "end", "a": "completed"})
        received = []
        while (frame := peer.receive())[0]["c"] == "p":
            received.append(frame[1])
    assert received == [bodies[index] for index in expected]


def test_one_delivery_names_exactly_the_subscriptions_that_match(server: RunningServer) -> None:
    """Filtered and unfiltered subscriptions of a connection share a delivery."""
    with server.log_on() as peer, server.log_on("other") as other:
        peer.subscribe("mixed", "all")
        peer.subscribe("mixed", "small", f="/n < 10")
        peer.subscribe("^mixed$", "even", filter="/n % 2 = 0")
        other.subscribe("mixed", "big", f="/n > 100")
        for number in (1, 2, 11, 200):
            peer.publish("mixed", b'{"n": %d}' % number)
        sids = [peer.receive()[0]["sids"].split(",") for _ in range(4)]
        assert sids == [["all", "small"], ["all", "small", "even"], ["all"], ["all", "even"]]
        assert other.receive()[1] == b'{"n": 200}'
        assert other.hears_nothing()


def test_replacing_a_subscription_replaces_its_filter(server: RunningServer) -> None:
    """From the ack on, the new filter decides."""
    with server.log_on() as peer:
        peer.subscribe("replaced", "1", f="/n = 1")
        peer.subscribe("replaced", "1", f="/n = 2", o="replace")
        peer.publish("replaced", b'{"n": 1}')
        peer.publish("replaced", b'{"n": 2}')
        assert peer.receive()[1] == b'{"n": 2}'


def test_filters_can_ask_about_the_message_itself(server: RunningServer) -> None:
    """Functions of the message see the topic, the publisher and the size."""
    condition = "TOPIC_NAME() = 'ctx-b' AND CLIENT_NAME() = 'ann' AND MESSAGE_SIZE() > 2"
    with (
        server.log_on("subscriber") as subscriber,
        server.log_on("ann") as ann,
        server.log_on("bob") as bob,
    ):
        subscriber.subscribe("^ctx-", "1", f=condition)
        for peer, topic, body in (
            (ann, "ctx-a", b"{  }"),
            (bob, "ctx-b", b"{  }"),
            (ann, "ctx-b", b"{}"),
            (ann, "ctx-b", b"{   }"),
        ):
            peer.publish(topic, body)
            peer.flush()
        assert subscriber.receive()[1] == b"{   }"


@pytest.mark.parametrize(
    ("condition", "place"),
    [
        ("/a ==", "character 6"),
        ("/a = 'open", "HERE --> 'open"),
        ("SUM(/a) > 1", "HERE --> SUM(/a)"),
        ("no such thing", "HERE --> "),
        ("/a LIKE '('", "HERE --> '('"),
    ],
)
def test_a_bad_filter_is_refused_with_its_position(
    server: RunningServer, condition: str, place: str
) -> None:
    """Clients know the reason; people get the place and what was expected there."""
    with server.log_on() as peer:
        ack = peer.subscribe("bad", "1", f=condition)
        assert (ack["status"], ack["reason"]) == ("failure", "bad filter")
        assert place in ack["detail"]
        peer.publish("bad", b'{"a": 1}')
        peer.flush()


@pytest.mark.parametrize("body", [b"", b"{", b"not json", b'{"a": ', b"\xff\xfe", b"[" * 100_000])
def test_a_body_that_cannot_be_parsed_matches_nothing_and_hurts_nobody(
    server: RunningServer, body: bytes
) -> None:
    """Its fields are NULL; whoever asked for no fields gets it as it is."""
    with server.log_on() as peer:
        peer.subscribe("unparsable", "content", f="/a = 1")
        peer.subscribe("unparsable", "null", f="/a IS NULL")
        peer.subscribe("unparsable", "any")
        peer.publish("unparsable", body)
        header, received = peer.receive()
    assert (header["sids"], received) == ("null,any", body)


def test_a_configured_message_type_is_filtered_by_its_options(tmp_path: Path) -> None:
    """A type of one's own, with its separator, from the configuration to the filter."""
    types = """<MessageTypes><MessageType><Name>pipes</Name><Module>nvfix</Module>
        <FieldSeparator>124</FieldSeparator></MessageType></MessageTypes>"""
    with (
        running_server(tmp_path, elements=types) as server,
        server.log_on(message_type="pipes") as peer,
    ):
        peer.subscribe("t", "1", f="/px > 100")
        peer.publish("t", b"sym=IBM|px=99")
        peer.publish("t", b"sym=IBM|px=101")
        assert peer.receive()[1] == b"sym=IBM|px=101"


def test_many_subscribers_get_their_own_messages_of_a_flood(server: RunningServer) -> None:
    """What a fast publisher sends to many connections in crumbs all arrives, in order."""
    subscribers, each = 80, 40
    with contextlib.ExitStack() as open_peers:
        peers = [open_peers.enter_context(server.log_on(f"s{n}")) for n in range(subscribers)]
        for n, peer in enumerate(peers):
            peer.subscribe("flood", "1", f=f"/to = {n}")
        publisher = open_peers.enter_context(server.log_on("publisher"))
        bodies = [
            [b'{"to": %d, "n": %d, "pad": "%s"}' % (n, i, b"x" * 100) for i in range(each)]
            for n in range(subscribers)
        ]
        flood = [
            frame({"c": "publish", "t": "flood"}, own[i]) for i in range(each) for own in bodies
        ]
        publisher.socket.sendall(b"".join(flood))
        publisher.flush()
        for peer, own in zip(peers, bodies, strict=True):
            assert [peer.receive()[1] for _ in own] == own


TYPES = """<MessageTypes>
  <MessageType><Name>order</Name><Module>protobuf</Module><ProtoPath>{directory}</ProtoPath>
    <ProtoFile>order.proto</ProtoFile><Type>shop.Order</Type></MessageType>
  <MessageType><Name>quote</Name><Module>struct</Module>
    <Field>/sym = 8S</Field><Field>/qty = >i</Field></MessageType>
  <MessageType><Name>local</Name><Module>composite-local</Module>
    <MessageType>binary</MessageType><MessageType>json</MessageType></MessageType>
  <MessageType><Name>global</Name><Module>composite-global</Module>
    <MessageType>json</MessageType><MessageType>nvfix</MessageType></MessageType>
</MessageTypes>"""

PROTO = """syntax = "proto2"; package shop;
message Order { optional string sym = 1; optional int32 qty = 2; }"""


def parts(*bodies: bytes) -> bytes:
    """A composite body."""
    return b"".join(struct.pack(">I", len(body)) + body for body in bodies)


BINARY_BODIES = {
    "bson": (bson.encode({"sym": "IBM", "qty": 5}), bson.encode({"sym": "HP", "qty": 50})),
    "msgpack": (b"\x82\xa3sym\xa3IBM\xa3qty\x05", b"\x82\xa3sym\xa2HP\xa3qty\x32"),
    "bflat": (b"\x0bsym\x03IBM\x1bqty\x05", b"\x0bsym\x02HP\x1bqty\x32"),
    "order": (b"\x0a\x03IBM\x10\x05", b"\x0a\x02HP\x10\x32"),
    "quote": (b"IBM\0\0\0\0\0\0\0\0\x05", b"HP\0\0\0\0\0\0\0\0\0\x32"),
    "local": (parts(b"\xff", b'{"sym": "IBM", "qty": 5}'), parts(b"", b'{"sym": "HP", "qty": 50}')),
    "global": (parts(b'{"sym": "IBM"}', b"qty=5\x01"), parts(b'{"sym": "HP"}', b"qty=50\x01more")),
}


def test_binary_messages_are_filtered_by_their_fields(tmp_path: Path) -> None:
    """The same filters over every type that has fields; composite-local numbers its parts."""
    (tmp_path / "order.proto").write_text(PROTO)
    types = TYPES.replace("{directory}", str(tmp_path))
    with running_server(tmp_path, elements=types) as server:
        for message_type, (small, large) in BINARY_BODIES.items():
            prefix = "/1" if message_type == "local" else ""
            with server.log_on(message_type=message_type) as peer:
                peer.subscribe("t", "sym", f=f"{prefix}/sym = 'IBM'")
                peer.subscribe("t", "qty", f=f"{prefix}/qty > 10")
                peer.subscribe("t", "like", f=f"{prefix}/sym LIKE '^(IBM|HP)$'")
                peer.subscribe("t", "none", f="/absent IS NOT NULL")
                peer.publish("t", small)
                peer.publish("t", large)
                received = [peer.receive() for _ in range(2)]
            assert [(header["sids"], body) for header, body in received] == [
                ("sym,like", small),
                ("qty,like", large),
            ], message_type


def test_a_filter_on_opaque_messages_yields_nothing(server: RunningServer) -> None:
    """The type binary has no fields, so that no condition on a field is true."""
    with server.log_on(message_type="binary") as peer:
        assert peer.subscribe("opaque", "field", f="/a = 1")["status"] == "success"
        peer.subscribe("opaque", "all")
        peer.publish("opaque", b'{"a": 1}')
        header, body = peer.receive()
    assert (header["sids"], body) == ("all", b'{"a": 1}')
