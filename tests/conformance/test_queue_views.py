"""Looking into queues: queries, views and what else is made of the messages that nobody has."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, module_server, running_server
from tests.support.sow import query, receive_group
from tests.support.waiting import wait_until

NAMES = ("jobs", "ranked", "summed", "joined", "followed", "paged", "tried", "aged", "told")

TWO = "<MaxPerSubscriptionBacklog>2</MaxPerSubscriptionBacklog>"


def _elements() -> str:
    more = {
        "ranked": "<Priority>/rank</Priority>",
        "tried": "<MaxCancels>2</MaxCancels><MaxDeliveries>3</MaxDeliveries>",
        "aged": "<Expiration>1s</Expiration>",
    }
    recorded = "".join(
        f"<Topic><Name>{name}-in</Name><MessageType>json</MessageType></Topic>" for name in NAMES
    )
    queues = "".join(
        f"<Queue><Name>{name}</Name><MessageType>json</MessageType>"
        f"<UnderlyingTopic>{name}-in</UnderlyingTopic>{more.get(name, TWO)}</Queue>"
        for name in NAMES
    )
    letters = "".join(
        f"""<Action>
          <On><Module>amps-action-on-sow-expire-message</Module>
            <Options><Topic>{name}</Topic><MessageType>json</MessageType></Options></On>
          <Do><Module>amps-action-do-publish-message</Module>
            <Options><Topic>dead-{name}</Topic><MessageType>json</MessageType>
              <Data>{{"topic":"{{{{AMPS_TOPIC}}}}","message":{{{{AMPS_DATA}}}},
                "reason":"{{{{AMPS_REASON}}}}","mark":"{{{{AMPS_CORRELATION_ID}}}}"}}</Data>
            </Options></Do>
        </Action>"""
        for name in ("tried", "aged")
    )
    return f"""
    <MiniDumpDirectory>./dumps</MiniDumpDirectory>
    <TransactionLog>
      <JournalDirectory>./journal</JournalDirectory>
      <PreallocatedJournalFiles>1</PreallocatedJournalFiles>
      <MinJournalSize>10MB</MinJournalSize>
      {recorded}
    </TransactionLog>
    <SOW>
      {queues}
      <Topic><Name>people</Name><MessageType>json</MessageType><Key>/who</Key>
        <Durability>transient</Durability></Topic>
      <View><Name>sums</Name><MessageType>json</MessageType>
        <UnderlyingTopic>summed</UnderlyingTopic>
        <Projection><Field>/who</Field><Field>SUM(/n) AS /n</Field>
          <Field>COUNT(/n) AS /count</Field></Projection>
        <Grouping><Field>/who</Field></Grouping></View>
      <View><Name>named</Name><MessageType>json</MessageType>
        <UnderlyingTopic><Join>[joined]./who = [people]./who</Join></UnderlyingTopic>
        <Projection><Field>[people]./name AS /name</Field>
          <Field>SUM([joined]./n) AS /n</Field></Projection>
        <Grouping><Field>[people]./name</Field></Grouping></View>
      <ConflatedTopic><Name>slow</Name><MessageType>json</MessageType>
        <UnderlyingTopic>sums</UnderlyingTopic><Interval>100ms</Interval></ConflatedTopic>
    </SOW>
    <Actions>{letters}</Actions>
    """


server = module_server(_elements())


def put(peer: RawPeer, queue: str, *messages: dict[str, Any]) -> None:
    for message in messages:
        peer.publish(f"{queue}-in", json.dumps(message).encode())
    peer.flush()


def consume(peer: RawPeer, queue: str, sub_id: str, count: int, **keys: Any) -> list[str]:
    """Lease so many messages; returns their bookmarks."""
    peer.subscribe(queue, sub_id, o=f"max_backlog={count}", **keys)
    return [peer.receive()[0]["bm"] for _ in range(count)]


def acknowledge(peer: RawPeer, queue: str, mark: str, options: str = "") -> None:
    keys = {"o": options} if options else {}
    peer.ask({"c": "sow_delete", "cid": "d", "t": queue, "bm": mark, "a": "processed"} | keys)


def shown(server: RunningServer, topic: str, key: str, expected: dict[str, Any]) -> bool:
    """Whether a view comes to show records, by one of their fields."""
    with server.log_on("viewer") as viewer:

        def is_so() -> bool:
            return {record[key]: record for record in query(viewer, topic).messages} == expected

        wait_until(is_so)
        return True


def test_a_query_shows_what_is_available_and_takes_nothing(server: RunningServer) -> None:
    """Leased messages are not there, and come back when their consumer goes."""
    with server.log_on("p") as peer, server.log_on("c") as consumer:
        put(peer, "jobs", *({"n": n} for n in range(6)))
        assert query(peer, "jobs").messages == [{"n": n} for n in range(6)]
        first, _ = consume(consumer, "jobs", "1", 2)
        assert query(peer, "jobs").messages == [{"n": n} for n in range(2, 6)]
        for keys, expected in (
            ({"filter": "/n > 3"}, [4, 5]),
            ({"filter": "/n > 1", "top_n": 2}, [2, 3]),
            ({"orderby": "/n DESC", "top_n": 2}, [5, 4]),
            ({"orderby": "/n DESC", "top_n": 2, "o": "skip_n=1"}, [4, 3]),
            ({"filter": "TOPIC_NAME() = 'jobs-in' AND /n < 4"}, [2, 3]),
            ({"filter": "BOOKMARK() IS NOT NULL AND /n = 5"}, [5]),
            ({"filter": "LEASE_COUNT() = 0"}, [2, 3, 4, 5]),
        ):
            group = query(peer, "jobs", **keys)
            assert [record["n"] for record in group.messages] == expected, keys
        key = query(peer, "jobs", filter="/n = 4").records[0][0]["k"]
        assert query(peer, "jobs", sow_keys=f"{key},1,none").messages == [{"n": 4}]
        acknowledge(consumer, "jobs", first)
        consumer.receive()  # room for another one
        consumer.send({"c": "unsubscribe", "cid": "u", "sub_id": "1"})
        consumer.flush()
        assert query(peer, "jobs").messages == [{"n": n} for n in range(1, 6)]
        for text in ("LEASE_COUNT() = 1", "LAST_LEASED() > 0"):
            assert query(peer, "jobs", filter=text).messages == [{"n": 1}, {"n": 2}]


def test_a_query_says_how_much_it_looked_at(peer: RawPeer) -> None:
    """In batches of the size that was asked for, and in the order of delivery."""
    put(peer, "ranked", *({"n": n, "rank": n % 3} for n in range(6)))
    group = query(peer, "ranked", bs=4, filter="/n > 0")
    assert [frame["bs"] for frame in group.frames] == [4, 1]
    assert [record["n"] for record in group.messages] == [2, 5, 1, 4, 3]
    peer.send(
        {"c": "sow", "cid": "s", "query_id": "s", "t": "ranked", "filter": "/n > 3", "a": "stats"}
    )
    receive_group(peer)
    stats = peer.receive_header()
    counted = (stats["topic_matches"], stats["matches"], stats["records_returned"])
    assert counted == (6, 2, 2)


def test_a_view_follows_what_is_available(server: RunningServer) -> None:
    """So do the topics that are made from it."""
    with server.log_on("p") as peer, server.log_on("c") as consumer:
        put(peer, "summed", {"who": "a", "n": 1}, {"who": "b", "n": 2}, {"who": "a", "n": 4})
        a, b = {"who": "a", "n": 5, "count": 2}, {"who": "b", "n": 2, "count": 1}
        assert shown(server, "sums", "who", {"a": a, "b": b})
        assert shown(server, "slow", "who", {"a": a, "b": b})
        marks = consume(consumer, "summed", "1", 2)
        assert shown(server, "sums", "who", {"a": {"who": "a", "n": 4, "count": 1}})
        acknowledge(consumer, "summed", marks[0])
        consumer.receive()  # room for the third one
        assert shown(server, "sums", "who", {})
        consumer.send({"c": "unsubscribe", "cid": "u", "sub_id": "1"})
        consumer.flush()
        assert shown(server, "sums", "who", {"a": a | {"n": 4, "count": 1}, "b": b})


def test_a_view_of_a_queue_is_there_after_a_restart(tmp_path: Path) -> None:
    """Of what has not been acknowledged: leases have ended."""
    with running_server(tmp_path, elements=_elements()) as server, server.log_on("p") as peer:
        put(peer, "summed", *({"who": "a", "n": n} for n in (1, 2, 4)))
        first, _ = consume(peer, "summed", "1", 2)
        peer.send({"c": "sow_delete", "cid": "d", "t": "summed", "bm": first, "a": "persisted"})
        while peer.receive()[0]["c"] != "ack":
            pass  # the next message comes as well
    with running_server(tmp_path, elements=_elements()) as server:
        a = {"who": "a", "n": 6, "count": 2}
        assert shown(server, "sums", "who", {"a": a})
        with server.log_on("p") as peer:
            assert query(peer, "summed", orderby="/n DESC").messages == [
                {"who": "a", "n": 4},
                {"who": "a", "n": 2},
            ]
            put(peer, "summed", {"who": "a", "n": 8})
            assert shown(server, "sums", "who", {"a": a | {"n": 14, "count": 3}})


def test_a_view_joins_messages_with_records(server: RunningServer) -> None:
    with server.log_on("p") as peer, server.log_on("c") as consumer:
        peer.publish("people", b'{"who":"a","name":"Ann"}')
        put(peer, "joined", {"who": "a", "n": 1}, {"who": "a", "n": 4})
        assert shown(server, "named", "name", {"Ann": {"name": "Ann", "n": 5}})
        (mark,) = consume(consumer, "joined", "1", 1)
        assert shown(server, "named", "name", {"Ann": {"name": "Ann", "n": 4}})
        acknowledge(consumer, "joined", mark, "cancel")


GROUPED = "projection=[/who,SUM(/n) AS /n],grouping=[/who]"


def test_an_aggregated_subscription_takes_nothing(server: RunningServer) -> None:
    with server.log_on("p") as peer, server.log_on("c") as consumer, server.log_on("l") as looker:
        put(peer, "followed", {"who": "a", "n": 1}, {"who": "b", "n": 2}, {"who": "a", "n": 4})
        sums = [{"who": "a", "n": 5}, {"who": "b", "n": 2}]
        assert query(looker, "followed", o=GROUPED, orderby="/who").messages == sums
        looker.send({"c": "sow_and_subscribe", "cid": "1", "t": "followed", "o": f"{GROUPED},oof"})
        assert sorted(receive_group(looker).messages, key=lambda one: str(one["who"])) == sums
        first, second = consume(consumer, "followed", "1", 2)
        told = [looker.receive() for _ in range(2)]
        assert [(header["c"], json.loads(body)["who"]) for header, body in told] == [
            ("p", "a"),
            ("oof", "b"),
        ]
        assert json.loads(told[0][1]) == {"who": "a", "n": 4}
        put(peer, "followed", {"who": "c", "n": 7})
        header, body = looker.receive()
        assert (header["c"], json.loads(body)) == ("p", {"who": "c", "n": 7})
        acknowledge(consumer, "followed", first, "cancel")
        assert second


def test_a_page_of_a_queue_takes_nothing(server: RunningServer) -> None:
    with server.log_on("p") as peer, server.log_on("c") as consumer, server.log_on("l") as looker:
        put(peer, "paged", *({"n": n} for n in range(5)))
        page = {"top_n": 2, "orderby": "/n", "o": "skip_n=1"}
        looker.send({"c": "sow_and_subscribe", "cid": "1", "t": "paged"} | page)
        assert receive_group(looker).messages == [{"n": 1}, {"n": 2}]
        consume(consumer, "paged", "1", 1)
        header, body = looker.receive()
        assert (header["c"], json.loads(body)) == ("p", {"n": 3})


@pytest.mark.parametrize(
    ("queue", "spoil", "reason"),
    [
        ("tried", lambda peer, mark: acknowledge(peer, "tried", mark, "expire"), "forced_expire"),
        ("aged", lambda peer, mark: None, "time_limit"),
    ],
    ids=["forced", "time"],
)
def test_what_expires_from_a_queue_runs_actions(
    server: RunningServer, queue: str, spoil: Callable[[RawPeer, str], None], reason: str
) -> None:
    """With the reasons of the User Guide (On SOW Message Expiration)."""
    with server.log_on("r") as reader, server.log_on("p") as peer, server.log_on("c") as consumer:
        reader.subscribe(f"dead-{queue}", "1")
        peer.publish(f"{queue}-in", b'{"n":1}', x="mine")
        (mark,) = consume(consumer, queue, "1", 1) if queue == "tried" else ("",)
        spoil(consumer, mark)
        letter = json.loads(reader.receive()[1])
        assert letter == {"topic": queue, "message": {"n": 1}, "reason": reason, "mark": "mine"}


def test_a_message_that_is_given_back_too_often_runs_actions(server: RunningServer) -> None:
    with server.log_on("r") as reader, server.log_on("p") as peer, server.log_on("c") as consumer:
        reader.subscribe("dead-tried", "1")
        put(peer, "tried", {"n": 2})
        (mark,) = consume(consumer, "tried", "1", 1)
        acknowledge(consumer, "tried", mark, "cancel")
        assert consumer.receive()[0]["bm"] == mark
        acknowledge(consumer, "tried", mark, "cancel")
        assert json.loads(reader.receive()[1])["reason"] == "max_cancels"
        put(peer, "tried", {"n": 3})
        consumer.receive()
        for number in range(3):
            with server.log_on(f"c{number}") as other:
                consumer.send({"c": "unsubscribe", "cid": "u", "sub_id": "1"})
                consumer.flush()
                other.subscribe("tried", "1")
                other.receive()
                if number == 1:
                    break
        assert json.loads(reader.receive()[1])["reason"] == "max_deliveries"


def test_the_log_says_why_messages_are_not_delivered(server: RunningServer) -> None:
    """Together with a minidump: of the oldest message, and of the first that no consumer has."""
    with server.log_on("p") as peer, server.log_on("busy") as busy, server.log_on("picky") as picky:
        put(peer, "told", *({"n": n} for n in range(3)))
        (mark,) = consume(busy, "told", "1", 1)
        picky.subscribe("told", "1", filter="/n > 7")
        server.process.send_signal(signal.SIGQUIT)
        for text in (
            "queue told (json): 3 messages: 2 available, 1 leased",
            "  consumer busy: has 1 of 1, 1 of this queue; was sent 1",
            "  consumer picky: has 0 of 1, 0 of this queue; was sent 0, filter /n > 7",
            f"  the oldest message, {mark}, of ",
            "has been leased to busy for ",
            "busy has a full backlog: 1 of 1; does not match the filter of picky",
        ):
            assert server.logs(text), text
