"""Views: topics that are computed from other topics."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, module_server, running_server
from tests.support.sow import query, receive_group
from tests.support.waiting import wait_until

SOURCES = """
<Topic>
  <Name>trades</Name><MessageType>json</MessageType><Key>/id</Key>
  <FileName>trades.sow</FileName><Expiration>enabled</Expiration>
</Topic>
<Topic>
  <Name>companies</Name><MessageType>json</MessageType><Key>/sym</Key>
  <FileName>companies.sow</FileName>
</Topic>
<Topic>
  <Name>countries</Name><MessageType>nvfix</MessageType><Key>/code</Key>
  <FileName>countries.sow</FileName>
</Topic>
<Topic>
  <Name>orders</Name><MessageType>fix</MessageType><Key>/11</Key><FileName>orders.sow</FileName>
</Topic>
"""


def view(
    name: str, source: str, projection: str, grouping: str, message_type: str = "json", **more: str
) -> str:
    """A View; fields have semicolons between them, and joins stand in `source` as elements."""

    def fields(text: str) -> str:
        return "".join(f"<Field><![CDATA[{field.strip()}]]></Field>" for field in text.split(";"))

    others = "".join(f"<{tag}>{text}</{tag}>" for tag, text in more.items())
    return (
        f"<View><Name>{name}</Name><MessageType>{message_type}</MessageType>"
        f"<UnderlyingTopic>{source}</UnderlyingTopic>"
        f"<Projection>{fields(projection)}</Projection><Grouping>{fields(grouping)}</Grouping>"
        f"{others}</View>"
    )


EXPOSURE = (
    "{0}./55 AS /Symbol; {0}./54 AS /Side; COUNT({0}./11) AS /Orders; SUM({0}./14) AS /CumQty;"
    "SUM({0}./14 * {0}./6) / SUM({0}./14) AS /AvgPx;"
    "IF(SUM({0}./14) > 0, SUM({0}./14 * {0}./6) / SUM({0}./14), 0) AS /Safe"
).format("[fix].[orders]")

SLOW = """
<ConflatedTopic>
  <Name>slow</Name><MessageType>json</MessageType>
  <UnderlyingTopic>trades</UnderlyingTopic><Interval>100ms</Interval>
</ConflatedTopic>
"""

VIEWS = (
    view(
        "positions",
        "trades",
        "/sym; COUNT(/id) AS /n; SUM(/qty) AS /qty; SUM(/qty * /px) / SUM(/qty) AS /vwap;"
        "MIN(/px) AS /low; MAX(/px) AS /high; /id AS /last",
        "/sym",
    ),
    view("large", "trades", "/sym; SUM(/qty) AS /qty", "/sym", Filter="/qty &gt; 100"),
    view(
        "report",
        "<Join>[positions]./sym = [companies]./sym</Join>",
        "[positions]./sym AS /sym; [companies]./name AS /name;"
        "[positions]./qty * [companies]./rate AS /scaled; [positions]./n AS /n",
        "[positions]./sym",
        KeyDomain="positions",
    ),
    view(
        "places",
        "<Join>[json].[trades]./sym = [json].[companies]./sym</Join>"
        "<Join>[json].[companies]./country = [nvfix].[countries]./code</Join>",
        "[nvfix].[countries]./label AS /place; COUNT([json].[trades]./id) AS /n",
        "[nvfix].[countries]./label",
    ),
    view("nested", "trades", "/d/p AS /d/p; SUM(/d/q) AS /d/q; /sym", "/sym; /d/p"),
    view("fast", "trades", "/sym; COUNT(/id) AS /n", "/sym", Conflation="inline"),
    SLOW,
    view("of-slow", "slow", "/sym; SUM(/qty) AS /qty", "/sym"),
    view(
        "indexed", "trades", "/sym AS /s; /note; COUNT(/id) AS /n", "/sym",
        HashIndex="<Key>/note</Key>",
    ),
    view("where", "trades", "/sym; TOPIC_NAME() AS /from; CLIENT_NAME() AS /by", "/sym"),
    view(
        "nulls", "<Join>[trades]./ref = [companies]./ref</Join>",
        "[trades]./id AS /id; [companies]./sym AS /sym", "[trades]./id",
        JoinNullEquivalency="enabled",
    ),
    view("exposure", "[fix].[orders]", EXPOSURE, "[fix].[orders]./55; [fix].[orders]./54"),
    view(
        "totals", "orders", "/55; SUM(/14) AS /14; SUM(/14 * /6) AS /value;"
        "SUM(/14 * /6) / SUM(/14) AS /AvgPx; MAX(/58) AS /58", "/55", "fix",
    ),
    view("ratios", "totals", "/55; /value / /14 AS /ratio", "/55", "fix"),
    view("any-type", "[json].[trades]", "[json].[trades]./sym AS /sym; SUM([json].[trades]./qty)"
         " AS /qty; SUM([json].[trades]./nothing) AS /none", "[json].[trades]./sym", "xml"),
)  # fmt: skip
TOPICS = f"<SOW>{SOURCES}{''.join(VIEWS)}</SOW><SOWStatsInterval>1s</SOWStatsInterval>"


server = module_server(TOPICS)


def publish(peer: RawPeer, topic: str, *messages: dict[str, Any], **keys: Any) -> None:
    """Publish JSON messages."""
    for message in messages:
        peer.publish(topic, json.dumps(message).encode(), **keys)


def delete(peer: RawPeer, topic: str, filter_: str) -> None:
    """Delete records."""
    ack = peer.ask({"c": "sow_delete", "cid": "d", "t": topic, "f": filter_, "a": "processed"})
    assert ack["status"] == "success"


def wait_for(peer: RawPeer, topic: str, filter_: str, expected: list[Any]) -> None:
    """Wait until a query gives something."""
    wait_until(
        lambda: query(peer, topic, f=filter_).messages == expected,
        lambda: query(peer, topic, f=filter_).messages,
    )


def test_a_view_is_queried_like_any_topic(server: RunningServer) -> None:
    """Filtered, ordered, and found by the SOW key that its grouping gives it."""
    with server.log_on() as peer:
        publish(
            peer, "trades",
            {"id": 1, "sym": "A1", "qty": 100, "px": 10},
            {"id": 2, "sym": "A1", "qty": 300, "px": 14},
            {"id": 3, "sym": "A2", "qty": 50, "px": 2.5},
        )  # fmt: skip
        found = query(peer, "positions", f="/sym IN ('A1', 'A2')", orderby="/sym")
        assert found.messages == [
            {"sym": "A1", "n": 2, "qty": 400.0, "vwap": 13.0, "low": 10, "high": 14, "last": 2},
            {"sym": "A2", "n": 1, "qty": 50.0, "vwap": 2.5, "low": 2.5, "high": 2.5, "last": 3},
        ]
        assert query(peer, "positions", f="/sym = 'A1'").messages == found.messages[:1]
        key = found.records[0][0]["k"]
        assert query(peer, "positions", sow_keys=key).messages == found.messages[:1]


def test_what_leaves_a_group_leaves_no_trace(server: RunningServer) -> None:
    """Updates, moves between groups, deletions and expirations; an empty group has no record."""
    with server.log_on() as peer:
        publish(
            peer, "trades",
            {"id": 11, "sym": "B1", "qty": 1, "px": 5},
            {"id": 12, "sym": "B1", "qty": 2, "px": 7},
            {"id": 12, "sym": "B2", "qty": 2, "px": 7},
        )  # fmt: skip
        shown = query(peer, "positions", f="/sym IN ('B1', 'B2')", orderby="/sym").messages
        assert [(row["sym"], row["n"], row["high"]) for row in shown] == [
            ("B1", 1, 5),
            ("B2", 1, 7),
        ]
        publish(peer, "trades", {"id": 12, "qty": None, "px": 8}, c="delta_publish")
        shown = query(peer, "positions", f="/sym = 'B2'").messages
        assert (shown[0]["qty"], shown[0]["low"]) == (2.0, 8)
        delete(peer, "trades", "/id = 11")
        assert query(peer, "positions", f="/sym = 'B1'").messages == []
        publish(peer, "trades", {"id": 13, "sym": "B3"}, e=1)
        wait_for(peer, "positions", "/sym = 'B3'", [])


def test_other_fields_show_the_last_message(server: RunningServer) -> None:
    """The last one inserted or updated; a deletion does not bring back the one before."""
    with server.log_on() as peer:
        publish(
            peer, "trades", {"id": 21, "sym": "C"}, {"id": 22, "sym": "C"}, {"id": 21, "sym": "C"}
        )
        assert query(peer, "positions", f="/sym = 'C'").messages[0]["last"] == 21
        delete(peer, "trades", "/id = 21")
        (row,) = query(peer, "positions", f="/sym = 'C'").messages
        assert (row["n"], row["last"]) == (1, 21)


def test_subscribers_hear_of_a_view(server: RunningServer) -> None:
    """Every publish below is an update; records that go or stop matching are out of focus."""
    with server.log_on() as peer, server.log_on() as other:
        other.subscribe("positions", "s", f="/sym = 'D' AND /n > 1", o="oof")
        other.subscribe("positions", "d", f="/sym = 'D'", o="oof")
        trade = {"id": 31, "sym": "D", "qty": 1, "px": 1}
        publish(peer, "trades", trade, trade, x="mine")
        for _ in range(2):  # the second one changes nothing, and is an update
            header, body = other.receive()
            assert (header["c"], header["t"], header["sids"]) == ("p", "positions", "d")
            assert "x" not in header
            assert "bm" not in header
        publish(peer, "trades", trade | {"id": 32, "qty": 2})
        header, body = other.receive()
        assert (sorted(header["sids"].split(",")), json.loads(body)["qty"]) == (["d", "s"], 3.0)
        delete(peer, "trades", "/id = 31")
        heard = {header["sids"]: (header["c"], header.get("reason")) for header, _ in
                 (other.receive(), other.receive())}  # fmt: skip
        assert heard == {"d": ("p", None), "s": ("oof", "match")}
        delete(peer, "trades", "/id = 32")
        header, body = other.receive()
        assert (header["c"], header["reason"], header["sids"]) == ("oof", "deleted", "d")
        assert json.loads(body)["n"] == 1


def test_an_expired_group_says_so(server: RunningServer) -> None:
    with server.log_on() as peer:
        peer.subscribe("large", "s", f="/sym = 'E'", o="oof")
        publish(peer, "trades", {"id": 41, "sym": "E", "qty": 500}, e=1)
        assert peer.receive()[0]["c"] == "p"
        header, _ = peer.receive()
        assert (header["c"], header["reason"]) == ("oof", "expired")


def test_every_update_is_sent_in_order(server: RunningServer) -> None:
    """Without conflation, one for each publish."""
    with server.log_on() as peer, server.log_on() as other:
        other.subscribe("positions", "s", f="/sym IN ('E20', 'E21')")
        numbers = range(1000, 1200)
        publish(
            peer, "trades", *({"id": f"e{n % 2}", "sym": f"E2{n % 2}", "qty": n} for n in numbers)
        )
        assert [json.loads(other.receive()[1])["qty"] for _ in numbers] == list(numbers)


def test_deltas_have_the_grouping(server: RunningServer) -> None:
    """The fields that it is grouped by, and those that differ."""
    with server.log_on() as peer:
        publish(peer, "trades", {"id": 51, "sym": "F", "qty": 5, "px": 1})
        peer.send({"c": "sow_and_delta_subscribe", "cid": "s", "t": "positions", "f": "/sym = 'F'"})
        assert receive_group(peer).messages[0]["qty"] == 5.0
        publish(peer, "trades", {"id": 51, "sym": "F", "qty": 6, "px": 1})
        assert json.loads(peer.receive()[1]) == {"sym": "F", "qty": 6.0}
        publish(peer, "trades", {"id": 51, "sym": "F", "qty": 6, "px": 1})
        assert json.loads(peer.receive()[1]) == {"sym": "F"}


def test_subscriptions_of_a_view_can_be_conflated(server: RunningServer) -> None:
    with server.log_on() as peer:
        peer.subscribe("positions", "s", f="/sym = 'F2'", o="conflation=100ms")
        publish(peer, "trades", *({"id": 55, "sym": "F2", "qty": qty} for qty in range(10)))
        bodies: list[Any] = []
        while not bodies or bodies[-1]["qty"] != 9.0:
            bodies.append(json.loads(peer.receive()[1]))
        assert len(bodies) < 5


def test_a_filter_decides_what_is_in_a_view(server: RunningServer) -> None:
    """By the state of each record: one that stops matching leaves its group."""
    with server.log_on() as peer:
        publish(
            peer, "trades", {"id": 61, "sym": "G", "qty": 500}, {"id": 62, "sym": "G", "qty": 9}
        )
        assert query(peer, "large", f="/sym = 'G'").messages == [{"sym": "G", "qty": 500.0}]
        publish(
            peer, "trades", {"id": 62, "sym": "G", "qty": 101}, {"id": 61, "sym": "G", "qty": 5}
        )
        assert query(peer, "large", f="/sym = 'G'").messages == [{"sym": "G", "qty": 101.0}]
        delete(peer, "trades", "/id = 62")
        assert query(peer, "large", f="/sym = 'G'").messages == []


def test_joins_keep_what_has_no_match(server: RunningServer) -> None:
    """A left outer join: the right side is null until it comes, and when it has gone."""
    with server.log_on() as peer:
        publish(peer, "trades", {"id": 71, "sym": "H", "qty": 4})
        unmatched = b'{"sym":"H","name":null,"scaled":null,"n":1}'
        assert query(peer, "report", f="/sym = 'H'").bodies == [unmatched]
        publish(peer, "companies", {"sym": "H", "name": "Hat", "rate": 2.5}, {"sym": "H9"})
        assert query(peer, "report", f="/sym = 'H'").bodies == [
            b'{"sym":"H","name":"Hat","scaled":10.0,"n":1}'
        ]
        publish(peer, "trades", {"id": 72, "sym": "H", "qty": 4})
        (row,) = query(peer, "report", f="/sym = 'H'").messages
        assert (row["scaled"], row["n"]) == (20.0, 2)
        delete(peer, "companies", "/sym = 'H'")
        assert query(peer, "report", f="/sym = 'H' AND /name IS NULL").messages[0]["n"] == 2
        assert query(peer, "report", f="/sym = 'H9'").messages == []
        keys = [
            query(peer, name, f="/sym = 'H'").records[0][0]["k"] for name in ("positions", "report")
        ]
        assert keys[0] == keys[1]  # one key domain


def test_one_change_below_is_at_most_one_above(server: RunningServer) -> None:
    """Through a view over a view and a join, each record is announced once."""
    with server.log_on() as peer:
        peer.subscribe("^(positions|report)$", "s", f="/sym = 'H1'")
        publish(peer, "companies", {"sym": "H1", "rate": 1})
        publish(peer, "trades", {"id": 75, "sym": "H1", "qty": 4})
        heard = [
            (header["t"], json.loads(body)["n"])
            for header, body in (peer.receive(), peer.receive())
        ]
        assert heard == [("positions", 1), ("report", 1)]
        assert peer.hears_nothing()


def test_joins_reach_through_topics_and_types(server: RunningServer) -> None:
    """Trades to companies to countries, of another message type; values are equal as texts."""
    with server.log_on() as peer, server.log_on("fix", "nvfix") as fix:
        fix.publish("countries", b"code=7\x01label=Seven\x01")
        fix.publish("countries", b"code=7.0\x01label=Other\x01")
        fix.flush()
        publish(peer, "companies", {"sym": "I1", "country": 7}, {"sym": "I2", "country": "7"})
        publish(
            peer,
            "trades",
            {"id": 81, "sym": "I1"},
            {"id": 82, "sym": "I2"},
            {"id": 83, "sym": "I2"},
        )
        assert query(peer, "places", f="/place = 'Seven'").messages == [{"place": "Seven", "n": 3}]
        publish(peer, "companies", {"sym": "I2", "country": 7.0})
        assert query(
            peer, "places", f="/place IN ('Seven', 'Other')", orderby="/place"
        ).messages == [
            {"place": "Other", "n": 2},
            {"place": "Seven", "n": 1},
        ]


def test_nulls_join_only_if_asked_to(server: RunningServer) -> None:
    """JoinNullEquivalency: missing, empty and null are equal."""
    with server.log_on() as peer:
        publish(peer, "companies", {"sym": "J", "ref": ""})
        publish(peer, "trades", {"id": "J1"}, {"id": "J2", "ref": None}, {"id": "J3", "ref": "x"})
        rows = query(peer, "nulls", f="/id BEGINS WITH ('J')", orderby="/id").messages
        assert [row["id"] for row in rows] == ["J1", "J2", "J3"]
        assert rows[0]["sym"] is not None
        assert rows[2]["sym"] is None


def test_fields_may_be_nested(server: RunningServer) -> None:
    """Source and destination; the order is that of the projection."""
    with server.log_on() as peer:
        for number, quantity in (91, 40), (92, 60):
            publish(peer, "trades", {"id": number, "sym": "K", "d": {"p": "X", "q": quantity}})
        assert query(peer, "nested", f="/sym = 'K'").bodies == [
            b'{"d":{"p":"X","q":100.0},"sym":"K"}'
        ]


def test_inline_conflation_ends_with_the_truth(server: RunningServer) -> None:
    """Of many updates some are passed over; what comes last is right."""
    with server.log_on() as peer, server.log_on() as other:
        other.subscribe("fast", "s", f="/sym = 'L'")
        publish(peer, "trades", *({"id": f"L{n % 100}", "sym": "L"} for n in range(1000)))
        counts: list[int] = []
        while not counts or counts[-1] != 100:
            counts.append(json.loads(other.receive()[1])["n"])
        assert counts == sorted(counts)
        wait_for(peer, "fast", "/sym = 'L'", [{"sym": "L", "n": 100}])


def test_a_view_over_a_conflated_topic(server: RunningServer) -> None:
    with server.log_on() as peer:
        publish(peer, "trades", *({"id": n, "sym": "M", "qty": n} for n in (101, 102, 103)))
        wait_for(peer, "of-slow", "/sym = 'M'", [{"sym": "M", "qty": 306.0}])


def test_hash_indexes_follow(server: RunningServer) -> None:
    """Whether a query is answered from an index or the grouping, it finds the same."""
    with server.log_on() as peer:
        publish(peer, "trades", {"id": 111, "sym": "N", "note": "one"})
        publish(peer, "trades", {"id": 112, "sym": "N", "note": "two"})
        expected = [{"s": "N", "note": "two", "n": 2}]
        assert query(peer, "indexed", f="/note = 'two'").messages == expected
        assert query(peer, "indexed", f="/s = 'N'").messages == expected
        assert query(peer, "indexed", f="/note = 'one'").messages == []


def test_functions_tell_of_the_message_below(server: RunningServer) -> None:
    with server.log_on("publisher-q") as peer:
        publish(peer, "trades", {"id": 121, "sym": "Q"})
        assert query(peer, "where", f="/sym = 'Q'").messages == [
            {"sym": "Q", "from": "trades", "by": "publisher-q"}
        ]


@pytest.mark.parametrize("command", ["publish", "delta_publish", "sow_delete"])
def test_clients_cannot_change_a_view(server: RunningServer, command: str) -> None:
    with server.log_on() as peer:
        header = {"c": command, "cid": "p", "t": "positions", "a": "processed"}
        ack = peer.ask(header | ({"f": "1=1"} if command == "sow_delete" else {}), b'{"sym":"A"}')
        assert (ack["status"], "reason" in ack) == ("failure", True)


def test_a_view_over_fix_in_json(server: RunningServer) -> None:
    """Sums are doubles, counts integers, groupings texts; 0 / 0 is null, and IF stays right."""
    with server.log_on() as peer, server.log_on("f", "fix") as fix:
        for order in (
            "11=1|55=MSFT|54=1|14=1500|6=410.2",
            "11=2|55=GOOG|54=1|14=0|6=0",
            "11=3|55=TSLA|54=1|14=8000|6=242.0",
            "11=4|55=TSLA|54=1|14=8000|6=242.5",
        ):
            fix.publish("orders", order.replace("|", "\x01").encode() + b"\x01")
        fix.flush()
        assert query(peer, "exposure", orderby="/Symbol").bodies == [
            b'{"Symbol":"GOOG","Side":"1","Orders":1,"CumQty":0.0,"AvgPx":null,"Safe":0}',
            b'{"Symbol":"MSFT","Side":"1","Orders":1,"CumQty":1500.0,"AvgPx":410.2,"Safe":410.2}',
            b'{"Symbol":"TSLA","Side":"1","Orders":2,"CumQty":16000.0,"AvgPx":242.25,"Safe":242.25}',
        ]
        fix.publish("orders", b"11=4\x0155=TSLA\x0154=1\x0114=24000\x016=244\x01")
        fix.flush()
        (row,) = query(peer, "exposure", f="/Symbol = 'TSLA'").messages
        assert row["AvgPx"] == row["Safe"] == 243.5


def test_a_view_in_fix(server: RunningServer) -> None:
    """All is text: 0 / 0 is 0, NULL is empty, and whole numbers divide as integers further up."""
    with server.log_on("f", "fix") as fix:
        for order in ("11=5|55=V1|14=1500|6=410.2", "11=6|55=V2|14=0|6=0"):
            fix.publish("orders", order.replace("|", "\x01").encode())
        fix.flush()
        shown = query(fix, "totals", f="/55 IN ('V1', 'V2')", orderby="/55").bodies
        assert [body.replace(b"\x01", b"|") for body in shown] == [
            b"55=V1|14=1500|value=615300|AvgPx=410.2|58=|",
            b"55=V2|14=0|value=0|AvgPx=0|58=|",
        ]
        assert query(fix, "ratios", f="/55 = 'V1'").bodies == [b"55=V1\x01ratio=410\x01"]


def test_a_view_in_another_type(server: RunningServer) -> None:
    with server.log_on() as peer, server.log_on("x", "xml") as other:
        publish(
            peer, "trades", {"id": 131, "sym": "R", "qty": 2}, {"id": 132, "sym": "R", "qty": 0.5}
        )
        peer.flush()
        (body,) = query(other, "any-type", f="/sym = 'R'").bodies
        assert body == b"<sym>R</sym><qty>2.5</qty><none/>"


def test_views_are_counted(server: RunningServer) -> None:
    """/AMPS/SOWStats has them with the other topics."""
    with server.log_on() as other, server.log_on() as peer:
        publish(other, "trades", {"id": 141, "sym": "S"})
        other.flush()
        peer.subscribe("/AMPS/SOWStats", "s")
        counts: dict[str, int] = {}
        while "positions" not in counts:
            event = json.loads(peer.receive()[1])["SOWStats"]
            counts[event["topic"]] = event["record_count"]
        assert counts["positions"] == len(query(other, "positions").messages)


RESTARTED = f"""
<SOW>{SOURCES}{VIEWS[0]}{VIEWS[2]}
{view("slow-of-view", "positions", "/sym; /n", "/sym")}</SOW>
<TransactionLog><JournalDirectory>journals</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>.*</Name><MessageType>json</MessageType></Topic></TransactionLog>
"""
"""The log takes all topics of the type, and records nothing of views."""


def test_views_are_made_again_at_the_start(tmp_path: Path) -> None:
    """From what the topics have by then: what the log brought back, and what has not expired."""
    names = ("positions", "report", "slow-of-view")
    with running_server(tmp_path, elements=RESTARTED) as server, server.log_on() as peer:
        publish(peer, "companies", {"sym": "A", "name": "Ay", "rate": 2})
        publish(
            peer, "trades", *({"id": n, "sym": "AB"[n % 2], "qty": n, "px": 0.1} for n in range(9))
        )
        publish(peer, "trades", {"id": 3, "sym": "B", "qty": 3, "px": 0.1})
        delete(peer, "trades", "/id = 4")
        publish(peer, "trades", {"id": 99, "sym": "Z", "qty": 1}, e=1)
        peer.flush()
        before = {name: query(peer, name, f="/sym != 'Z'", orderby="/sym").bodies for name in names}
        server.stop(signal.SIGKILL)
    (tmp_path / "trades.sow").unlink()  # the log alone has the trades now
    time.sleep(1)
    with running_server(tmp_path, elements=RESTARTED) as server, server.log_on() as peer:
        wait_for(peer, "positions", "/sym = 'Z'", [])
        for name in names:
            assert query(peer, name, orderby="/sym").bodies == before[name]
        publish(peer, "trades", {"id": 1, "sym": "B", "qty": 100, "px": 0.1})
        (row,) = query(peer, "positions", f="/sym = 'B'").messages
        assert (row["n"], row["qty"], row["last"]) == (4, 115.0, 1)


def test_a_view_whose_messages_cannot_be_made(tmp_path: Path) -> None:
    """XML has no element 14: said at the start, with the place."""
    bad = view("bad", "[fix].[orders]", "[fix].[orders]./14", "[fix].[orders]./14", "xml")
    with (
        pytest.raises(AssertionError, match=r"config\.xml:\d+: view bad: .*'14'"),
        running_server(tmp_path, elements=f"<SOW>{SOURCES}{bad}</SOW>"),
    ):
        pass


def test_older_names_and_settings_are_understood(tmp_path: Path) -> None:
    """ViewDefinition, Topic for Name, a FileName that means nothing; the binary type is refused."""
    older = view("old", "trades", "/sym; COUNT(/id) AS /n", "/sym", FileName="old.view")
    older = older.replace("View>", "ViewDefinition>").replace("Name>old</Name", "Topic>old</Topic")
    with (
        running_server(tmp_path, elements=f"<SOW>{SOURCES}{older}</SOW>") as server,
        server.log_on() as peer,
    ):
        publish(peer, "trades", {"id": 1, "sym": "A"})
        assert query(peer, "old").messages == [{"sym": "A", "n": 1}]
    assert not (tmp_path / "old.view").exists()
