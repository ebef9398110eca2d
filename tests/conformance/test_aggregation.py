"""Aggregated queries and subscriptions: the options projection and grouping."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, module_server
from tests.support.sow import TOPICS, Group, query, receive_group

ELEMENTS = TOPICS.replace(
    "</SOW>",
    """
  <Topic>
    <Name>dotted.name</Name>
    <MessageType>json</MessageType>
    <Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>past</Name>
    <MessageType>json</MessageType>
    <Key>/id</Key>
    <FileName>past.sow</FileName>
    <History><Window>1d</Window><Granularity>1ms</Granularity></History>
  </Topic>
  <ConflatedTopic>
    <Name>orders-C</Name>
    <UnderlyingTopic>orders</UnderlyingTopic>
    <MessageType>json</MessageType>
    <Interval>100ms</Interval>
  </ConflatedTopic>
  <View>
    <Name>orders-V</Name>
    <MessageType>json</MessageType>
    <UnderlyingTopic>orders</UnderlyingTopic>
    <Projection><Field>/g</Field><Field>/sym</Field><Field>SUM(/qty) AS /qty</Field></Projection>
    <Grouping><Field>/g</Field><Field>/sym</Field></Grouping>
  </View>
</SOW>""",
)
SUMS = "projection=[/sym,SUM(/qty) AS /qty,COUNT(/id) AS /n,/who AS /last],grouping=[/sym]"


server = module_server(ELEMENTS)


def publish(peer: RawPeer, own: str, n: int, sym: str, topic: str = "orders", **more: Any) -> None:
    """Publish the order `n` of a test."""
    keys = {name: more.pop(name) for name in ("e", "k") if name in more}
    body = {"id": f"{own}{n}", "g": own, "sym": sym, "qty": n, "who": f"w{n}"} | more
    peer.publish(topic, json.dumps(body).encode(), **keys)


def follow(
    peer: RawPeer, own: str, options: str = SUMS, topic: str = "orders", **keys: Any
) -> Group:
    """Follow the groups of a test's orders, and give what the query returns."""
    header = {"c": "sow_and_subscribe", "cid": "s", "sub_id": "s", "t": topic, "a": "processed"}
    ack = peer.ask(header | {"f": f"/g = '{own}'", "o": options} | keys)
    assert ack["status"] == "success", ack
    return receive_group(peer)


def received(peer: RawPeer) -> tuple[str, dict[str, Any]]:
    """The command and the body of what comes next."""
    header, body = peer.receive()
    return header["c"], json.loads(body)


def sums(sym: str, qty: float, n: int, last: str) -> dict[str, Any]:
    """A message with the projection SUMS."""
    return {"sym": sym, "qty": qty, "n": n, "last": last}


def test_a_query_gives_what_a_view_would_hold(server: RunningServer) -> None:
    """One message for each group, with a key of its own; the filter is for the orders."""
    with server.log_on() as peer:
        for n, sym in enumerate(["IBM", "KO", "IBM", "T"], 1):
            publish(peer, "a", n, sym)
        publish(peer, "a", 1, "IBM", who="again")  # updated last
        group = query(peer, "orders", o=SUMS, f="/g = 'a' AND /qty < 4", orderby="/sym DESC", bs=9)
        assert group.messages == [sums("KO", 2.0, 1, "w2"), sums("IBM", 4.0, 2, "again")]
        keys = [record["k"] for record, _ in group.records]
        assert len(set(keys)) == 2
        assert [frame["t"] for frame in group.frames] == ["orders"]
        again = query(peer, "orders", o=SUMS, f="/g = 'a'", orderby="/sym DESC")
        assert [record["k"] for record, _ in again.records][1:] == keys


def test_a_query_can_have_a_select_list(server: RunningServer) -> None:
    """It is for the groups, as for the records of a view; a subscription refuses it."""
    with server.log_on() as peer:
        publish(peer, "selected", 1, "IBM")
        group = query(peer, "orders", o=f"{SUMS},select=[-/,+/sym]", f="/g = 'selected'")
        assert group.messages == [{"sym": "IBM"}]


def test_the_longest_projection(server: RunningServer) -> None:
    """It has a limit of its own, which that of all options of a command stays above."""
    frame = "[/ AS /long]"
    longest = frame.replace("/ ", f"/{'a' * (64 * 1024 - len(frame))} ")
    with server.log_on() as peer:
        publish(peer, "longest", 1, "IBM")
        options = f"projection={longest},grouping=[/g]"
        group = query(peer, "orders", o=options, f="/g = 'longest'")
        assert len(group.records) == 1
        command = {"c": "sow", "cid": "x", "t": "orders", "a": "processed"}
        ack = peer.ask(command | {"o": options.replace("/a", "/aa")})
        assert "projection" in ack["reason"] + ack.get("detail", ""), ack


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ({"orderby": "/qty DESC", "top_n": 2}, ["B", "C"]),
        ({"orderby": "/qty DESC", "o": f"{SUMS},top_n=2,skip_n=1"}, ["C", "A"]),
        ({"orderby": "/n DESC, /sym", "o": f"{SUMS},top_n=1"}, ["A"]),
        ({"o": f"{SUMS},top_n=2,skip_n=3"}, []),
        ({"f": "/g = 'nobody'"}, []),
    ],
)
def test_order_and_number(
    server: RunningServer, terms: dict[str, Any], expected: list[str]
) -> None:
    """They are about groups."""
    with server.log_on() as peer:
        for n, sym in enumerate(["A", "A", "B", "B", "C"], 1):
            publish(peer, "b", n, sym)
        group = query(peer, "orders", **{"f": "/g = 'b'", "o": SUMS} | terms)
        assert [message["sym"] for message in group.messages] == expected


def test_what_a_query_counts(server: RunningServer) -> None:
    """Records of the topic were tested; groups were found, and returned."""
    with server.log_on() as peer:
        for n, sym in enumerate(["A", "A", "B"], 1):
            publish(peer, "n", n, sym, "dotted.name")
        header = {"c": "sow", "cid": "q", "t": "dotted.name", "o": SUMS, "a": "stats", "top_n": 1}
        peer.send(header)
        receive_group(peer)
        ack, _ = peer.receive()
        counts = [ack[name] for name in ("topic_matches", "matches", "records_returned")]
        assert counts == [3, 2, 1]


@pytest.mark.parametrize("topic", ["orders", "orders-C", "orders-V", "past"])
def test_topics_of_any_kind(server: RunningServer, topic: str) -> None:
    """Views and conflated topics are topics with records; names may qualify fields."""
    own = f"k{topic}"
    options = f"projection=[[{topic}]./g, SUM([{topic}].[/qty]) AS /sum],grouping=[/g]"
    with server.log_on() as peer:
        for n, sym in enumerate(["A", "A", "B"], 1):
            publish(peer, own, n, sym, "past" if topic == "past" else "orders")
        while not query(peer, topic, f=f"/g = '{own}' AND /sym = 'B'").records:
            pass  # the conflated topic has them in a moment
        group = query(peer, topic, o=options, f=f"/g = '{own}'")
        assert group.messages == [{"g": own, "sum": 6.0}]


def test_sow_keys_say_which_records_count(server: RunningServer) -> None:
    """Like the filter, they are about the records of the topic."""
    with server.log_on() as peer:
        for n, sym in enumerate(["A", "A", "B"], 1):
            publish(peer, "y", n, sym)
        records = query(peer, "orders", f="/g = 'y'").records
        keys = ",".join(record["k"] for record, body in records if json.loads(body)["qty"] > 1)
        group = query(peer, "orders", o=SUMS, sow_keys=keys, orderby="/sym")
        assert [message["qty"] for message in group.messages] == [2.0, 3.0]


def test_a_subscription_to_some_keys_of_a_logical_topic(server: RunningServer) -> None:
    """Records of other keys, and of other topics with the same records, do not count."""
    with server.log_on() as peer, server.log_on() as publisher:
        for n in (1, 2, 3):
            publish(publisher, "l", n, "A", "/desk/l")
        publish(publisher, "l", 4, "A", "/desk/other")
        publisher.flush()
        keys = [record["k"] for record, _ in query(peer, "/desk/l", f="/qty < 3").records]
        group = follow(peer, "l", SUMS, "/desk/l", sow_keys=",".join(keys))
        assert group.messages == [sums("A", 3.0, 2, "w2")]
        publish(publisher, "l", 3, "A", "/desk/l", qty=9)
        publish(publisher, "l", 1, "A", "/desk/other", qty=9)
        publish(publisher, "l", 1, "A", "/desk/l", qty=5)
        assert received(peer) == ("p", sums("A", 7.0, 2, "w1"))


def test_following_groups(server: RunningServer) -> None:
    """Inserts, updates, moves from group to group, deletions; with oof what was of a group."""
    with server.log_on() as peer, server.log_on() as publisher:
        publish(publisher, "f", 1, "IBM")
        publisher.flush()
        group = follow(peer, "f", f"oof,{SUMS}")
        assert group.messages == [sums("IBM", 1.0, 1, "w1")]
        key = group.records[0][0]["k"]
        publish(publisher, "f", 2, "IBM")
        header, body = peer.receive()
        assert (header["c"], header["t"], header["sids"]) == ("p", "orders", "s")
        assert header["k"] == key
        assert json.loads(body) == sums("IBM", 3.0, 2, "w2")
        publish(publisher, "f", 1, "KO")
        assert received(peer) == ("p", sums("IBM", 2.0, 1, "w2"))
        assert received(peer) == ("p", sums("KO", 1.0, 1, "w1"))
        publisher.send({"c": "sow_delete", "t": "orders", "f": "/id = 'f2'"})
        header, body = peer.receive()
        assert (header["c"], header["reason"], header["k"]) == ("oof", "deleted", key)
        assert json.loads(body) == sums("IBM", 2.0, 1, "w2")
        publish(publisher, "f", 1, "KO", g="elsewhere")  # matches no more
        assert received(peer)[0] == "oof"
        publish(publisher, "other", 3, "IBM")
        assert peer.hears_nothing()


def test_without_oof_a_group_goes_silently(server: RunningServer) -> None:
    """It comes again as a new one."""
    with server.log_on() as peer, server.log_on() as publisher:
        publish(publisher, "w", 1, "IBM")
        publisher.flush()
        follow(peer, "w")
        publisher.send({"c": "sow_delete", "t": "orders", "f": "/id = 'w1'"})
        publish(publisher, "w", 5, "IBM")
        assert received(peer) == ("p", sums("IBM", 5.0, 1, "w5"))


def test_expired_records_leave_their_group(server: RunningServer) -> None:
    """The reason says so if it was the last one."""
    with server.log_on() as peer:
        body = {"symbol": "x1", "g": "x", "qty": 1}
        follow(peer, "x", "oof,projection=[/g,SUM(/qty) AS /sum],grouping=[/g]", "quotes")
        peer.publish("quotes", json.dumps(body).encode(), e=1)
        assert peer.receive()[0]["c"] == "p"
        header, body_ = peer.receive()
        assert (header["c"], header["reason"]) == ("oof", "expired")
        assert json.loads(body_) == {"g": "x", "sum": 1.0}


def test_deltas_of_groups(server: RunningServer) -> None:
    """What is grouped by is the key; no_empties spares what changes nothing."""
    with server.log_on() as peer, server.log_on() as publisher:
        publish(publisher, "d", 1, "IBM")
        publisher.flush()
        options = "projection=[/sym AS /s,SUM(/qty) AS /qty,COUNT(/id) AS /n],grouping=[/sym]"
        follow(peer, "d", f"{options},no_empties", c="sow_and_delta_subscribe")
        publish(publisher, "d", 1, "IBM", who="else")
        publish(publisher, "d", 1, "IBM", qty=9)
        assert received(peer) == ("p", {"s": "IBM", "qty": 9.0})
        publish(publisher, "d", 2, "KO")
        assert received(peer) == ("p", {"s": "KO", "qty": 2.0, "n": 1})


def test_conflation(server: RunningServer) -> None:
    """Of several changes of a group the last is sent."""
    with server.log_on() as peer, server.log_on() as publisher:
        follow(peer, "c", f"oof,conflation=200ms,conflation_key=[/sym],{SUMS}")
        for n in range(1, 5):
            publish(publisher, "c", n, "IBM")
        assert received(peer) == ("p", sums("IBM", 10.0, 4, "w4"))
        publisher.send({"c": "sow_delete", "t": "orders", "f": "/g = 'c'"})
        assert received(peer) == ("oof", sums("IBM", 10.0, 4, "w4"))


def test_an_aggregated_subscription_ends(server: RunningServer) -> None:
    """With unsubscribe, as any; the id is free again."""
    with server.log_on() as peer:
        follow(peer, "e")
        peer.send({"c": "unsubscribe", "sub_id": "s"})
        publish(peer, "e", 1, "IBM")
        assert follow(peer, "e").messages == [sums("IBM", 1.0, 1, "w1")]


AGGREGATED = "projection=[/sym],grouping=[/sym]"
SUBSCRIBE = {"c": "sow_and_subscribe", "t": "orders", "o": AGGREGATED}


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ({"c": "sow", "o": "projection=[/sym]"}, "goes with the option grouping"),
        ({"c": "sow", "o": "grouping=[/sym]"}, "goes with the option projection"),
        ({"c": "sow", "o": "projection=/sym,grouping=[/sym]"}, "list in brackets"),
        ({"c": "sow", "o": "projection=[],grouping=[/sym]"}, "character 1"),
        ({"c": "sow", "o": "projection=[/a, SUM(/b],grouping=[/sym]"}, "character 11"),
        ({"c": "sow", "o": "projection=[/a],grouping=[/sym, 7]"}, "character 7"),
        ({"c": "sow", "o": "projection=[SUM(/a)],grouping=[/sym]"}, "AS"),
        ({"c": "sow", "o": "projection=[[quotes]./a],grouping=[/sym]"}, "only a view"),
        ({"c": "sow", "o": f"projection=[/{'a' * 65536}],grouping=[/a]"}, "longer than 65536"),
        ({"c": "sow", "o": AGGREGATED, "t": "^ord"}, "regular expression"),
        ({"c": "sow", "o": AGGREGATED, "t": "nothing"}, "keeps no records"),
        ({"c": "sow_and_subscribe", "o": AGGREGATED, "t": "nothing"}, "keeps no records"),
        ({"c": "subscribe", "o": AGGREGATED}, "begin with one"),
        ({"c": "delta_subscribe", "o": AGGREGATED}, "begin with one"),
        (SUBSCRIBE | {"t": ".*"}, "regular expression"),
        (SUBSCRIBE | {"bm": "0"}, "bookmark"),
        (SUBSCRIBE | {"bm": "0", "t": "past"}, "bookmark"),
        (SUBSCRIBE | {"c": "sow_and_delta_subscribe", "bm": "0|1|"}, "bookmark"),
        (SUBSCRIBE | {"o": f"{AGGREGATED},select=[-/,+/sym]"}, "projection says"),
        (SUBSCRIBE | {"o": f"{AGGREGATED},skip_n=1"}, "top_n"),
        (SUBSCRIBE | {"f": "UNIX_TIMESTAMP() > 0"}, "UNIX_TIMESTAMP"),
        (SUBSCRIBE | {"o": f"{AGGREGATED},oof,conflation=1s,conflation_key=[/id]"}, "grouping"),
        (SUBSCRIBE | {"o": f"{AGGREGATED},pause"}, "pause"),
    ],
)
def test_what_cannot_be_aggregated(
    server: RunningServer, command: dict[str, str], reason: str
) -> None:
    """A failure ack says why."""
    with server.log_on() as peer:
        ack = peer.ask({"cid": "x", "t": "orders", "a": "processed"} | command)
        assert ack["status"] == "failure"
        assert reason in ack["reason"] + ack.get("detail", ""), ack


def test_replacing(server: RunningServer) -> None:
    """A subscription to all groups neither replaces nor is replaced; it goes on."""
    with server.log_on() as peer, server.log_on() as publisher:
        follow(peer, "r")
        for options in ("replace", f"replace,{SUMS}", f"replace,{SUMS},top_n=1,skip_n=0"):
            ack = peer.ask(SUBSCRIBE | {"cid": "x", "sub_id": "s", "o": options, "a": "processed"})
            assert ack["status"] == "failure"
            assert "aggregated" in ack["reason"] + ack.get("detail", "")
        publish(publisher, "r", 1, "IBM")
        assert received(peer) == ("p", sums("IBM", 1.0, 1, "w1"))


def test_pages_of_groups(server: RunningServer) -> None:
    """Groups come to a page and leave it as their order changes; another page takes its place."""
    page = f"{SUMS},oof,top_n=2,skip_n=1"
    with server.log_on() as peer, server.log_on() as publisher:
        for n, sym in enumerate(["A", "B", "C", "D"], 1):
            publish(publisher, "p", n, sym)
        publisher.flush()
        group = follow(peer, "p", page, orderby="/qty DESC")
        assert [message["sym"] for message in group.messages] == ["C", "B"]
        publish(publisher, "p", 9, "A")  # to the top
        assert received(peer) == ("oof", sums("B", 2.0, 1, "w2"))
        assert received(peer) == ("p", sums("D", 4.0, 1, "w4"))
        publish(publisher, "p", 5, "B")
        assert received(peer) == ("p", sums("B", 7.0, 2, "w5"))
        assert received(peer) == ("oof", sums("C", 3.0, 1, "w3"))

        top = {"o": f"replace,{SUMS},oof,top_n=2,skip_n=0", "orderby": "/qty DESC"}
        header = SUBSCRIBE | {"cid": "x", "sub_id": "s", "f": "/g = 'p'", "a": "processed"}
        assert peer.ask(header | top)["status"] == "success"
        assert [message["sym"] for message in receive_group(peer).messages] == ["A"]
        assert received(peer) == ("oof", sums("D", 4.0, 1, "w4"))


@pytest.mark.parametrize(
    "change",
    [
        {"f": "/g = 'else'"},
        {"o": f"replace,{AGGREGATED},top_n=2,skip_n=0"},
        {"o": f"replace,{SUMS}"},
        {"o": "replace,top_n=2,skip_n=0"},
        {"t": "orders-C"},
    ],
)
def test_another_page_is_of_the_same_groups(server: RunningServer, change: dict[str, str]) -> None:
    """Whatever else is different is refused, and the page stays."""
    with server.log_on() as peer:
        publish(peer, "q", 1, "A")
        follow(peer, "q", f"{SUMS},top_n=2,skip_n=0")
        header = SUBSCRIBE | {"cid": "x", "sub_id": "s", "f": "/g = 'q'", "a": "processed"}
        ack = peer.ask(header | {"o": f"replace,{SUMS},top_n=2,skip_n=1"} | change)
        assert ack["status"] == "failure", ack
        publish(peer, "q", 2, "A")
        assert received(peer) == ("p", sums("A", 3.0, 2, "w2"))


def test_the_filter_of_a_query_may_ask_for_the_time(server: RunningServer) -> None:
    """It is asked once of each record; that of a subscription is asked again and again."""
    with server.log_on() as peer:
        publish(peer, "z", 1, "IBM")
        group = query(peer, "orders", o=SUMS, f="/g = 'z' AND UNIX_TIMESTAMP() > 0")
        assert group.messages == [sums("IBM", 1.0, 1, "w1")]
