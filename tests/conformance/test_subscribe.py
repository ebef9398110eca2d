"""subscribe: the messages of a topic, or of all topics that match a pattern, from now on."""

from __future__ import annotations

import pytest

from tests.support.server import RunningServer


def test_the_ack_names_the_subscription(server: RunningServer) -> None:
    """The processed ack says success and under which id."""
    with server.log_on() as peer:
        ack = peer.subscribe("acked", "mine")
    assert (ack["status"], ack["cid"], ack["sub_id"]) == ("success", "mine", "mine")


def test_the_command_id_stands_in_for_a_missing_subscription_id(server: RunningServer) -> None:
    """A subscription without an id of its own goes by the command's."""
    with server.log_on() as peer:
        assert (
            peer.ask({"c": "subscribe", "cid": "9", "t": "ids", "a": "processed"})["sub_id"] == "9"
        )
        peer.publish("ids", b"{}")
        assert peer.receive()[0]["sids"] == "9"


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("^trade$", ["trade"], ["trades", "atrade"]),
        ("^client.*", ["client", "client001"], ["aclient"]),
        (".*trade.*", ["NYSEtrades", "ICEtrade"], ["trad"]),
        ("trade.info", ["trade/info", "trade-info", "every/trade/info"], ["tradeinfo"]),
        ("order$", ["order", "my-order"], ["orders"]),
        ("^/parts/(mechanical|electrical)$", ["/parts/electrical"], ["/parts/other"]),
        ("a{2}$", ["caa"], ["ca"]),
    ],
)
def test_patterns_match_anywhere_unless_anchored(
    server: RunningServer, pattern: str, matching: list[str], others: list[str]
) -> None:
    """A topic with regular expression characters stands for all topics that it matches."""
    with server.log_on() as peer:
        assert peer.subscribe(pattern, "1")["status"] == "success"
        for topic in others + matching:
            peer.publish(topic, topic.encode())
        assert [peer.receive()[1].decode() for _ in matching] == matching
        assert peer.hears_nothing()


def test_a_pattern_catches_topics_that_come_later_and_those_that_exist(
    server: RunningServer,
) -> None:
    """It does not matter which was there first, the topic or the pattern."""
    with server.log_on() as peer:
        peer.publish("early-topic", b"0")
        peer.subscribe("^(early|late)-topic$", "1")
        peer.publish("early-topic", b"1")
        peer.publish("late-topic", b"2")
        assert [peer.receive()[1] for _ in range(2)] == [b"1", b"2"]


def test_a_name_can_be_taken_literally(server: RunningServer) -> None:
    """The option non_regex_topic switches patterns off."""
    with server.log_on() as peer:
        peer.subscribe("lit.*", "1", o="non_regex_topic")
        peer.publish("literal", b"no")
        peer.publish("lit.*", b"yes")
        assert peer.receive()[1] == b"yes"


def test_one_delivery_per_connection_names_all_its_subscriptions(server: RunningServer) -> None:
    """A message that several subscriptions of a connection match is sent once."""
    with server.log_on() as peer:
        peer.subscribe("shared", "a")
        peer.subscribe("^shared$", "b")
        peer.subscribe("shared", "c")
        peer.publish("shared", b"{}")
        assert peer.receive()[0]["sids"].split(",") == ["a", "b", "c"]
        assert peer.hears_nothing()


def test_an_id_in_use_is_refused_unless_replaced(server: RunningServer) -> None:
    """Replacing a subscription moves it to its new topic."""
    with server.log_on() as peer:
        peer.subscribe("first", "1")
        ack = peer.subscribe("second", "1")
        assert (ack["status"], ack["reason"]) == ("failure", "subscription already exists")
        assert peer.subscribe("second", "1", o="replace")["status"] == "success"
        peer.publish("first", b"1")
        peer.publish("second", b"2")
        assert peer.receive()[1] == b"2"


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"t": ""}, "invalid topic"),
        ({"t": "a(b"}, "bad regex topic"),
        ({"t": "a[z-"}, "bad regex topic"),
        ({"o": "no_such_option"}, "invalid option"),
    ],
)
def test_what_cannot_be_subscribed_to_is_refused(
    server: RunningServer, keys: dict[str, str], reason: str
) -> None:
    """The failure has a phrase that programs know, and a sentence for people."""
    with server.log_on() as peer:
        ack = peer.ask({"c": "subscribe", "cid": "1", "t": "t", "a": "processed"} | keys)
        assert (ack["status"], ack["reason"]) == ("failure", reason)
        assert ack["detail"]
        peer.flush()
