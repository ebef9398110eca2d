"""What queues have beyond those of AMPS."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from tests.support.queues import make_safe
from tests.support.raw import RawPeer
from tests.support.server import RunningServer, module_server, running_server
from tests.support.sow import query

MANY = "<MaxPerSubscriptionBacklog>100</MaxPerSubscriptionBacklog>"
QUEUES = {
    "patient": "<RetryDelay>1h</RetryDelay>",
    "brisk": "<RetryDelay>1h</RetryDelay><MaxRetryDelay>1ms</MaxRetryDelay>",
    "leased": "<LeasePeriod>300ms</LeasePeriod>" + MANY,
    "endless": MANY,
    "counted": MANY,
    "again": MANY,
    "ordered": "<OrderKey>/order</OrderKey>" + MANY,
    "flowing": "<OrderKey>/order</OrderKey>" + MANY,
    "ranked": "<OrderKey>/order</OrderKey><Priority>/n</Priority>" + MANY,
}

ELEMENTS = (
    "<TransactionLog><JournalDirectory>./journal</JournalDirectory>"
    "<PreallocatedJournalFiles>1</PreallocatedJournalFiles><MinJournalSize>10MB</MinJournalSize>"
    + "".join(
        f"<Topic><Name>{name}</Name><MessageType>json</MessageType></Topic>" for name in QUEUES
    )
    + "</TransactionLog><SOW>"
    + "".join(
        f"<LocalQueue><Name>{name}</Name><MessageType>json</MessageType>{more}</LocalQueue>"
        for name, more in QUEUES.items()
    )
    + "</SOW>"
)
server = module_server(ELEMENTS)


def hand_back(peer: RawPeer, queue: str, mark: str, options: str = "cancel") -> None:
    """Cancel a message."""
    header = {"c": "sow_delete", "cid": "d", "t": queue, "bm": mark, "o": options}
    assert peer.ask(header | {"a": "processed"})["status"] == "success"


def test_a_message_that_is_handed_back_stays_away(server: RunningServer) -> None:
    """For RetryDelay, and out of sight; the consumer may say that it is to come at once."""
    with server.log_on("c") as peer:
        peer.publish("patient", b'{"n":1}')
        peer.publish("patient", b'{"n":2}')
        peer.flush()
        peer.subscribe("patient", "1")
        first = peer.receive()[0]["bm"]
        hand_back(peer, "patient", first)
        header, body = peer.receive()
        assert body == b'{"n":2}'
        assert query(peer, "patient").messages == []
        hand_back(peer, "patient", header["bm"], "cancel,delay=0s")
        again, body = peer.receive()
        assert (again["bm"], body) == (header["bm"], b'{"n":2}')


def test_the_delay_has_a_limit(server: RunningServer) -> None:
    with server.log_on("c") as peer:
        peer.publish("brisk", b"{}")
        peer.flush()
        peer.subscribe("brisk", "1")
        mark = peer.receive()[0]["bm"]
        hand_back(peer, "brisk", mark)
        assert peer.receive()[0]["bm"] == mark


def publish(server: RunningServer, queue: str, *messages: tuple[object, int]) -> None:
    """Publish messages with a key and a number each; None for no key."""
    with server.log_on("publisher") as peer:
        for key, n in messages:
            peer.publish(queue, json.dumps({"order": key, "n": n}).encode())
        peer.flush()


def receive(peer: RawPeer, count: int) -> dict[int, str]:
    """The bookmarks of so many messages, by their numbers, in the order in which they come."""
    got = [peer.receive() for _ in range(count)]
    return {json.loads(body)["n"]: header["bm"] for header, body in got}


def done(peer: RawPeer, queue: str, mark: str) -> None:
    """Acknowledge a message; what is delivered for that comes later."""
    peer.send({"c": "sow_delete", "t": queue, "bm": mark})


def test_messages_of_one_key_come_one_after_the_other(server: RunningServer) -> None:
    """Whoever gets them, with room for all; other keys flow, and so does what has none."""
    publish(server, "ordered", ("a", 1), ("a", 2), ("b", 3), (None, 4), (1, 5), (1.0, 6), (None, 7))
    with server.log_on("one") as one, server.log_on("two") as two:
        one.subscribe("ordered", "1", o="max_backlog=100")
        got = receive(one, 5)
        assert list(got) == [1, 3, 4, 5, 7]
        assert one.hears_nothing()
        two.subscribe("ordered", "2", o="max_backlog=100")
        assert two.hears_nothing()
        done(two, "ordered", got[1])
        done(two, "ordered", got[5])
        assert list(receive(two, 2)) == [2, 6]


def test_what_comes_back_is_still_the_first_of_its_key(server: RunningServer) -> None:
    """Also when its consumer goes; a later message never overtakes it."""
    publish(server, "flowing", ("a", 1), ("a", 2), ("b", 3))
    with server.log_on("one") as one:
        one.subscribe("flowing", "1", o="max_backlog=100")
        got = receive(one, 2)
        hand_back(one, "flowing", got[1])
        assert list(receive(one, 1)) == [1]
    with server.log_on("two") as two:
        two.subscribe("flowing", "2", o="max_backlog=100")
        got = receive(two, 2)
        assert list(got) == [1, 3]
        done(two, "flowing", got[1])
        assert list(receive(two, 1)) == [2]


def test_priorities_are_among_the_first_of_each_key(server: RunningServer) -> None:
    publish(server, "ranked", ("a", 1), ("a", 9), ("b", 5))
    with server.log_on("one") as one:
        one.subscribe("ranked", "1", o="max_backlog=100")
        got = receive(one, 2)
        assert list(got) == [5, 1]
        done(one, "ranked", got[1])
        assert list(receive(one, 1)) == [9]


def test_order_survives_a_restart(tmp_path: Path) -> None:
    """Keys are worked out again from what the log has."""
    with running_server(tmp_path, elements=ELEMENTS) as server:
        publish(server, "ordered", ("a", 1), ("a", 2), ("b", 3), ("b", 4))
        make_safe(server)
        server.stop(signal.SIGKILL)
    with running_server(tmp_path, elements=ELEMENTS) as server, server.log_on("one") as one:
        one.subscribe("ordered", "1", o="max_backlog=100")
        got = receive(one, 2)
        assert list(got) == [1, 3]
        done(one, "ordered", got[3])
        assert list(receive(one, 1)) == [4]


def extend(peer: RawPeer, queue: str, mark: str, options: str = "extend") -> Any:
    """Extend the lease of a message, and give the ack; messages before it are passed over."""
    peer.send({"c": "sow_delete", "cid": "e", "t": queue, "bm": mark, "o": options, "a": "stats"})
    while (header := peer.receive()[0])["c"] != "ack":
        continue
    return header


def test_a_lease_is_extended(server: RunningServer) -> None:
    """By whoever has it: the others come back meanwhile."""
    publish(server, "leased", ("a", 1), ("a", 2))
    with server.log_on("one") as one, server.log_on("two") as two:
        one.subscribe("leased", "1", o="max_backlog=100")
        first, second = receive(one, 2).values()
        assert extend(two, "leased", first, "extend=1h")["records_deleted"] == 0
        assert extend(one, "leased", f"{first},{second},7|7|", "extend=1h")["matches"] == 2
        assert extend(one, "leased", second)["records_deleted"] == 1
        for _ in range(2):
            assert list(receive(one, 1)) == [2]
        assert extend(one, "leased", first, "extend=0s")["records_deleted"] == 1
        while list(receive(one, 1)) != [1]:
            continue


def test_what_has_no_end_is_not_extended(server: RunningServer) -> None:
    """Without a LeasePeriod leases last as long as the connection."""
    publish(server, "endless", ("a", 1))
    with server.log_on("one") as one:
        one.subscribe("endless", "1", o="max_backlog=100")
        (mark,) = receive(one, 1).values()
        assert extend(one, "endless", mark)["records_deleted"] == 0
        assert extend(one, "endless", mark, "extend=1s")["records_deleted"] == 0


def test_filters_may_ask_how_often_a_message_was_leased(server: RunningServer) -> None:
    """Whenever it comes, and whenever it comes back."""
    publish(server, "counted", ("a", 1), ("a", 2), ("a", 3))
    with server.log_on("fresh") as fresh, server.log_on("second") as second:
        fresh.subscribe("counted", "1", filter="LEASE_COUNT() = 0", o="max_backlog=100")
        second.subscribe("counted", "2", filter="LAST_LEASED() > 0", o="max_backlog=100")
        got = receive(fresh, 3)
        hand_back(fresh, "counted", got[2])
        assert list(receive(second, 1)) == [2]
        header = {"c": "sow_delete", "cid": "d", "t": "counted", "a": "stats"}
        assert fresh.ask(header | {"filter": "LEASE_COUNT() > 0"})["records_deleted"] == 1
        publish(server, "counted", ("a", 4))
        assert list(receive(fresh, 1)) == [4]


def test_what_matched_before_it_was_leased_need_not_match_after_that(
    server: RunningServer,
) -> None:
    publish(server, "again", ("a", 1), ("a", 2), ("a", 3), ("a", 4))
    with server.log_on("one") as one, server.log_on("two") as two, server.log_on("all") as every:
        one.subscribe("again", "1", filter="LEASE_COUNT() = 0", o="max_backlog=1")
        first = receive(one, 1)[1]
        two.subscribe("again", "2", filter="LEASE_COUNT() < 1", o="max_backlog=1")
        second = receive(two, 1)[2]
        every.subscribe("again", "3", o="max_backlog=1")
        third = receive(every, 1)[3]  # which the others would have got next
        every.ask({"c": "unsubscribe", "cid": "u", "sub_id": "3", "a": "processed"})
        assert third
        done(one, "again", first)
        assert list(receive(one, 1)) == [4]
        done(two, "again", second)
        assert two.hears_nothing()
