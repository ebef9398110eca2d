"""publish: a message reaches every subscriber of its topic."""

from __future__ import annotations

import pytest

from tests.support.server import RunningServer


@pytest.mark.parametrize("command", ["publish", "p", "delta_publish"])
def test_a_message_is_delivered_verbatim(server: RunningServer, command: str) -> None:
    """Bodies are bytes; the topic, the length and the subscription ids stand in the header."""
    body = b'{"id": 1.50, "text": "\xff\x00}"}'
    with server.log_on("publisher") as publisher, server.log_on("subscriber") as subscriber:
        subscriber.subscribe("verbatim", "sub-1")
        publisher.send({"c": command, "t": "verbatim"}, body)
        header, received = subscriber.receive()
    assert received == body
    assert header == {"c": "p", "t": "verbatim", "l": len(body), "sids": "sub-1"}


def test_messages_keep_their_order(server: RunningServer) -> None:
    """What one publisher sends arrives in that order, whatever the topics, headers and lengths."""
    with server.log_on("publisher") as publisher, server.log_on("subscriber") as subscriber:
        subscriber.subscribe("^order-(a|b)$", "1")
        expected = [(f"order-{'ab'[n % 3 == 0]}", b"x" * (n % 7)) for n in range(500)]
        for number, (topic, body) in enumerate(expected):
            keys = {"x": "abc"} if number % 5 == 0 else {}
            publisher.publish(topic, body, **keys)
        received = [subscriber.receive() for _ in expected]
    assert [(header["t"], body) for header, body in received] == expected
    assert [header.get("x") for header, _ in received[:6]] == ["abc", None, None, None, None, "abc"]


def test_a_message_for_nobody_is_dropped(server: RunningServer) -> None:
    """Topics without configuration keep nothing for those who come later."""
    with server.log_on("publisher") as publisher, server.log_on("subscriber") as subscriber:
        publisher.publish("nobody", b"{}")
        publisher.flush()
        subscriber.subscribe("nobody", "1")
        assert subscriber.hears_nothing()


def test_topics_are_scoped_by_message_type(server: RunningServer) -> None:
    """The same name under another message type is another topic."""
    with (
        server.log_on("j", "json") as json_peer,
        server.log_on("f", "fix") as fix_peer,
    ):
        fix_peer.subscribe("scoped", "1")
        json_peer.publish("scoped", b"{}")
        json_peer.flush()
        assert fix_peer.hears_nothing()


def test_acks_that_were_asked_for_are_sent(server: RunningServer) -> None:
    """A publish can be acknowledged as received, processed, completed and persisted."""
    with server.log_on() as peer:
        wanted = "received,processed,completed,persisted"
        peer.publish("acked", b"{}", cid="7", s=42, a=wanted)
        acks = [peer.receive_header() for _ in range(4)]
    assert [ack["a"] for ack in acks] == wanted.split(",")
    assert {ack["cid"] for ack in acks} == {"7"}
    assert {ack["status"] for ack in acks[1:]} == {"success"}
    assert [ack.get("s") for ack in acks[1:]] == [42, 42, 42]


@pytest.mark.parametrize(
    ("keys", "detail"),
    [({}, "header t"), ({"t": ""}, "header t"), ({"t": "/AMPS/ClientStatus"}, "/AMPS")],
)
@pytest.mark.parametrize("ack", ["processed", "persisted"])
def test_a_publish_to_no_usable_topic_is_refused(
    server: RunningServer, keys: dict[str, str], detail: str, ack: str
) -> None:
    """The failure comes in the ack that was asked for, and the connection goes on."""
    with server.log_on() as peer:
        answer = peer.ask({"c": "publish", "cid": "1", "a": ack} | keys, b"{}")
        assert (answer["a"], answer["status"], answer["reason"]) == (
            ack,
            "failure",
            "invalid topic",
        )
        assert detail in answer["detail"]
        peer.flush()


def test_regular_expression_characters_are_literal_in_a_publish(server: RunningServer) -> None:
    """A publisher publishes to one topic, never to a pattern."""
    with server.log_on() as peer:
        peer.subscribe("re.al", "pattern")
        peer.subscribe("re-al", "name")
        peer.publish("re.al", b"{}")
        assert peer.receive()[0]["sids"] == "pattern"


@pytest.mark.parametrize("size", [0, 1, 100_000, 5_000_000])
def test_bodies_of_any_size_pass(server: RunningServer, size: int) -> None:
    """From the empty body to one that takes many reads."""
    with server.log_on("publisher") as publisher, server.log_on("subscriber") as subscriber:
        subscriber.subscribe("sizes", "1")
        publisher.publish("sizes", b"z" * size)
        header, body = subscriber.receive()
    assert (len(body), header["l"]) == (size, size)


def test_topic_names_are_escaped_in_headers(server: RunningServer) -> None:
    """A name with quotes, braces and other alphabets comes back as it was, every time."""
    name = 'the "} topic\\ ü'
    with server.log_on() as peer:
        peer.subscribe(name, "1", o="non_regex_topic")
        for _ in range(3):
            peer.publish(name, b"{}")
        received = [peer.receive() for _ in range(3)]
    assert [(header["t"], body) for header, body in received] == [(name, b"{}")] * 3


def test_nobody_hears_of_what_goes_to_devnull(server: RunningServer) -> None:
    """Libraries publish there to learn how far the server has come: one by one, and in runs."""
    topic = "/AMPS/devnull"
    with server.log_on() as peer:
        for name, sub_id in ((topic, "1"), ("^/AMPS/dev", "2")):
            assert peer.subscribe(name, sub_id)["status"] == "success"
        for number in range(1, 4):
            peer.publish(topic, b"{}", s=number, a="persisted")
            assert peer.receive_header()["s"] == number
        peer.publish(topic, b"{}")
        assert peer.hears_nothing()
