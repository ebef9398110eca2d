"""Options of subscriptions: select lists, timestamps, conflation, and what is refused."""

from __future__ import annotations

import re
import time

import pytest

from tests.support.server import RunningServer

REPLAY_ONLY = ["fully_durable", "pause", "resume", "rate=100", "rate_max_gap=1s"]
RECORDS_ONLY = ["oof", "top_n=5", "skip_n=5", "projection=[/a],grouping=[/a]"]


def test_a_select_list_cuts_bodies_down(server: RunningServer) -> None:
    """Only the fields asked for arrive; their text is that of the original."""
    with server.log_on() as peer:
        peer.subscribe("selected", "1", o="select=[-/,+/id,+/px]")
        peer.publish("selected", b'{"id": 1, "note": "long", "px": 102.00}')
        header, body = peer.receive()
    assert body.replace(b" ", b"") == b'{"id":1,"px":102.00}'
    assert header["l"] == len(body)


def test_subscriptions_that_want_different_forms_are_served_separately(
    server: RunningServer,
) -> None:
    """One connection may have a message whole on one subscription, and cut down on another."""
    with server.log_on() as peer:
        peer.subscribe("forms", "whole")
        peer.subscribe("forms", "cut", o="select=[-/,+/id]")
        peer.subscribe("forms", "whole too")
        peer.publish("forms", b'{"id":1,"x":2}')
        received = {h["sids"]: b for h, b in (peer.receive(), peer.receive())}
    assert received == {"whole,whole too": b'{"id":1,"x":2}', "cut": b'{"id":1}'}


def test_a_body_that_cannot_be_cut_down_goes_as_it_is(server: RunningServer) -> None:
    """A select list is a convenience, not a filter."""
    with server.log_on() as peer:
        peer.subscribe("uncut", "1", o="select=[-/,+/id]")
        peer.publish("uncut", b"no json")
        assert peer.receive()[1] == b"no json"


def test_a_timestamp_tells_when_the_server_received_a_message(server: RunningServer) -> None:
    """ISO-8601, UTC, with microseconds; only for those who asked."""
    with server.log_on() as peer, server.log_on("other") as other:
        peer.subscribe("stamped", "1", o="timestamp")
        other.subscribe("stamped", "1")
        peer.publish("stamped", b"{}", x="corr")
        header, other_header = peer.receive()[0], other.receive()[0]
    assert re.fullmatch(r"\d{8}T\d{6}\.\d{6}Z", header["ts"])
    assert header["x"] == "corr"
    assert "ts" not in other_header


def test_conflation_sends_the_last_of_each_key_after_the_interval(server: RunningServer) -> None:
    """Nothing comes before the interval has passed, then one message for each key, in order."""
    with server.log_on() as peer:
        peer.subscribe("ticks", "1", o="conflation=300ms,conflation_key=[/sym]")
        started = time.monotonic()
        with peer.at_once():
            for price in range(10):
                for symbol in (b"A", b"B"):
                    peer.publish("ticks", b'{"sym":"%s","px":%d}' % (symbol, price))
        received = [peer.receive()[1], peer.receive()[1]]
        assert time.monotonic() - started >= 0.29
        assert received == [b'{"sym":"A","px":9}', b'{"sym":"B","px":9}']
        assert peer.hears_nothing()
        peer.publish("ticks", b'{"sym":"A","px":10}')
        assert peer.receive()[1] == b'{"sym":"A","px":10}'


def test_conflation_keeps_the_timestamp_of_the_first_and_the_rest_of_the_last(
    server: RunningServer,
) -> None:
    """So that a subscriber can tell for how long a message has been held back."""
    with server.log_on() as peer, server.log_on("other") as other:
        other.subscribe("held", "all", o="timestamp")
        options = "timestamp,conflation=1s,conflation_key=[/a]"
        peer.subscribe("held", "some", o=options)
        peer.publish("held", b'{"a":1,"n":1}', x="first")
        first, _ = other.receive()
        peer.publish("held", b'{"a":1,"n":2}', x="last")
        last, _ = other.receive()
        header, body = peer.receive()
    assert first["ts"] < last["ts"]
    assert (header["ts"], header["x"], body) == (first["ts"], "last", b'{"a":1,"n":2}')


def test_conflation_with_a_filter_and_several_keys(server: RunningServer) -> None:
    """Only what matches takes part; keys may be made of several fields."""
    with server.log_on() as peer:
        peer.subscribe("multi", "1", f="/n > 1", o="conflation=100ms,conflation_key=[/a,/b]")
        with peer.at_once():
            for n, a, b in ((1, 1, 1), (2, 1, 1), (3, 1, 2), (4, 1, 1)):
                peer.publish("multi", b'{"a":%d,"b":%d,"n":%d}' % (a, b, n))
        assert [peer.receive()[1][-3:] for _ in range(2)] == [b":4}", b":3}"]


def test_ending_a_conflated_subscription_drops_what_waits(server: RunningServer) -> None:
    """After the unsubscribe nothing arrives any more."""
    with server.log_on() as peer:
        peer.subscribe("dropped", "1", o="conflation=100ms,conflation_key=[/a]")
        with peer.at_once():
            peer.publish("dropped", b'{"a":1}')
            peer.send({"c": "unsubscribe", "sub_id": "1", "a": "processed"})
        assert peer.receive_header()["status"] == "success"
        assert peer.hears_nothing()


def test_an_automatic_interval_delivers_to_a_client_that_keeps_up(server: RunningServer) -> None:
    """The server picks the interval."""
    with server.log_on() as peer:
        peer.subscribe("auto", "1", o="conflation=auto,conflation_key=[/a]")
        with peer.at_once():
            peer.publish("auto", b'{"a":1,"n":1}')
            peer.publish("auto", b'{"a":1,"n":2}')
        assert peer.receive()[1] == b'{"a":1,"n":2}'


@pytest.mark.parametrize(
    "options",
    [
        "none",
        "live",
        "no_sowkey",
        "send_keys",
        "send_empties",
        "no_empties",
        "bookmark",
        "max_backlog=5",
    ],
)
def test_options_that_ask_for_what_is_the_case_are_accepted(
    server: RunningServer, options: str
) -> None:
    """A client that always sends them is not turned away."""
    with server.log_on() as peer:
        assert peer.subscribe("harmless", "1", o=options)["status"] == "success"
        peer.publish("harmless", b"{}")
        assert peer.receive()[1] == b"{}"


@pytest.mark.parametrize(
    "options",
    [
        *REPLAY_ONLY,
        *RECORDS_ONLY,
        "conflation=1s",
        "conflation=soon,conflation_key=[/a]",
        "conflation=1s,conflation_key=/a",
        "conflation=1s,conflation_key=[a]",
        "conflation_key=[/a]",
        "select=/a",
        "select=[/a]",
        "select=[+/a",
        "unknown",
        "=",
    ],
)
@pytest.mark.parametrize("command", ["subscribe", "delta_subscribe", "sow_and_subscribe"])
def test_options_that_cannot_be_honoured_are_refused(
    server: RunningServer, command: str, options: str
) -> None:
    """With the option's name and the reason."""
    with server.log_on() as peer:
        ack = peer.subscribe("refused", "1", c=command, o=options)
        assert (ack["status"], ack["reason"]) == ("failure", "invalid option")
        assert options.split("=")[0].split(",")[0] in ack["detail"]
        peer.flush()


@pytest.mark.parametrize("options", ["oof" + " " * 4000 + "]", "x=[," * 5000, "timestamp," * 101])
def test_hostile_options_are_refused_at_once(server: RunningServer, options: str) -> None:
    """Nobody waits for the end of a search that tries everything."""
    with server.log_on() as peer:
        ack = peer.subscribe("refused", "1", o=options)
        assert (ack["status"], ack["reason"]) == ("failure", "invalid option")


def test_superfluous_commas_are_passed_over(server: RunningServer) -> None:
    """Libraries put one behind each option, to join them."""
    with server.log_on() as peer:
        assert peer.subscribe("commas", "1", o=",timestamp,,bookmark, ,")["status"] == "success"
        peer.publish("commas", b"{}")
        assert "ts" in peer.receive()[0]


def test_a_bookmark_on_a_topic_without_journal_completes_at_once(server: RunningServer) -> None:
    """There is nothing to replay; the subscription is live from the start."""
    with server.log_on() as peer:
        peer.send(
            {"c": "subscribe", "cid": "1", "t": "unlogged", "bm": "0", "a": "processed,completed"}
        )
        assert [peer.receive_header()["a"] for _ in range(2)] == ["processed", "completed"]
        peer.publish("unlogged", b"{}")
        assert peer.receive()[1] == b"{}"
