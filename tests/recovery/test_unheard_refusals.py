"""A message is refused, and its publisher may not hear of it: it must not take it for stored.

Behind it, others have been stored. Whatever happens meanwhile, the publisher is told before it is
told how far it has got, and that is over when it has gone on.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from amperage import FilePublishStore, HAClient
from server.storage.journal.sequence_gaps import MAX_GAP_RANGES
from tests.recovery.large_messages import ELEMENTS, SIZE, Publisher, log_on, replay
from tests.recovery.test_mended_log import flip, spoil
from tests.replication.topologies import Topology, both
from tests.support.cluster import ORDERS, PAIR, Cluster, Instance, cluster
from tests.support.long_form import spread
from tests.support.raw import QUICK_ACKS, RawPeer
from tests.support.server import RunningServer, running_server
from tests.support.small_disk import small_disk
from tests.support.sow import query
from tests.support.waiting import wait_until

ENRICHED: Final = "<Enrichment><Field>/n + 0 AS /next</Field></Enrichment>"
LOCAL: Final = f"""
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>orders.sow</FileName>
    {ENRICHED}
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory>
  <JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>events</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
BAD: Final = b"no JSON"

Answer = tuple[list[int], int, int]


def come_back(peer: RawPeer) -> Answer:
    """Log on.

    Returns:
        The numbers that are said to have failed, up to where all is stored, the highest.
    """
    header = {"c": "logon", "cid": "l", "client_name": "publisher", "mt": "json", "a": "processed"}
    peer.send(header | {"o": QUICK_ACKS})
    failed: list[int] = []
    while (answer := peer.receive_header()).get("cid") != "l":
        assert (answer["c"], answer["a"]) == ("ack", "persisted")
        assert (answer["status"], answer["reason"]) == ("failure", "not stored")
        failed.append(answer["s"])
    return failed, answer["s"], int(answer["bm"].split("|")[1])


def told(server: RunningServer) -> Answer:
    """What a logon is answered, after which nothing is sent."""
    with server.connect() as peer:
        return come_back(peer)


def message(number: int) -> bytes:
    return b'{"id":%d,"n":%d}' % (number, number)


def publish(peer: RawPeer, number: int, body: bytes = b"", topic: str = "orders") -> dict[str, Any]:
    """Publish a message; gives the ack."""
    header = {"c": "publish", "t": topic, "s": number, "a": "persisted"}
    return peer.ask(header, body or message(number))


def bad_body(server: RunningServer) -> None:
    with log_on(server) as peer:
        assert publish(peer, 1)["status"] == "success"
        assert publish(peer, 2, BAD)["reason"] == "invalid message"
        assert publish(peer, 3)["status"] == "success"


def bad_topic(server: RunningServer) -> None:
    with log_on(server) as peer:
        assert publish(peer, 1)["status"] == "success"
        assert publish(peer, 2, topic="/AMPS/none")["reason"] == "invalid topic"
        assert publish(peer, 3)["status"] == "success"


def bad_deletion(server: RunningServer) -> None:
    with log_on(server) as peer:
        assert publish(peer, 1)["status"] == "success"
        deletion = {"c": "sow_delete", "t": "orders", "f": "1 1", "s": 2, "a": "persisted"}
        assert peer.ask(deletion)["reason"] == "bad filter"
        assert publish(peer, 3)["status"] == "success"


def within_a_run(server: RunningServer) -> None:
    """Of messages that are obeyed together, those behind are stored before the answer is made."""
    with log_on(server) as peer:
        with peer.at_once():
            for number in range(1, 21):
                header = {"c": "publish", "t": "orders", "s": number, "a": "persisted"}
                peer.send(header, BAD if number == 15 else message(number))
        while (ack := peer.receive_header())["s"] < 20:
            assert ack["status"] == "success" or ack["s"] == 15


REFUSALS: Final = {
    "a bad message": (bad_body, ([2], 3, 3)),
    "a bad topic": (bad_topic, ([2], 3, 3)),
    "a bad deletion": (bad_deletion, ([2], 3, 3)),
    "within a run": (within_a_run, ([15], 20, 20)),
}

ENDS: Final[dict[str, signal.Signals | None]] = {
    "killed": signal.SIGKILL,
    "not": None,
    "stopped": signal.SIGTERM,
}


@pytest.mark.parametrize("end", spread(tuple(ENDS), 1))
@pytest.mark.parametrize("why", REFUSALS)
def test_a_publisher_is_told_again_until_it_goes_on(tmp_path: Path, why: str, end: str) -> None:
    refuse, answer = REFUSALS[why]
    how = ENDS[end]
    with running_server(tmp_path, elements=LOCAL) as server:
        refuse(server)
        if how is not None:
            server.stop(how)
    with running_server(tmp_path, elements=LOCAL) as server:
        assert told(server) == answer
        with server.connect() as peer:
            assert come_back(peer) == answer
            assert publish(peer, answer[2] + 1)["status"] == "success"
        after: Answer = [], answer[1] + 1, answer[2] + 1
        assert told(server) == after
        server.stop(signal.SIGKILL)
    with running_server(tmp_path, elements=LOCAL) as server:
        assert told(server) == after


def test_a_refused_message_that_comes_again_is_no_duplicate(tmp_path: Path) -> None:
    """It is refused again: those behind it are stored, and it would come behind them."""
    with running_server(tmp_path, elements=LOCAL) as server, log_on(server) as peer:
        for number in (1, 2, 3):
            publish(peer, number, BAD if number == 2 else b"")
        for number, reason in ((1, "duplicate"), (2, "not stored"), (3, "duplicate")):
            assert publish(peer, number)["reason"] == reason
        assert publish(peer, 4)["status"] == "success"


def test_what_nothing_is_stored_behind_may_come_again(tmp_path: Path) -> None:
    """It has the same number then, as if it had never been refused."""
    with running_server(tmp_path, elements=LOCAL) as server:
        with log_on(server) as peer:
            assert publish(peer, 1)["status"] == "success"
            assert publish(peer, 2, BAD)["status"] == "failure"
            assert publish(peer, 2)["status"] == "success"
            assert publish(peer, 3, BAD)["status"] == "failure"
        assert told(server) == ([], 2, 2)
        with log_on(server) as peer:
            assert publish(peer, 3)["status"] == "success"
        assert told(server) == ([], 3, 3)


def test_nothing_is_stored_behind_more_than_can_be_told(tmp_path: Path) -> None:
    """Until the publisher logs on again; then it hears of all of it, and goes on."""
    count = 2_100
    with running_server(tmp_path, elements=LOCAL) as server:
        with log_on(server) as peer:
            with peer.at_once():
                for number in range(1, count + 1):
                    header = {"c": "publish", "t": "orders", "s": number, "a": "persisted"}
                    peer.send(header, BAD if number % 2 else message(number))
            why: dict[int, str] = {}
            while len(why) < count // 2 or count not in why:
                ack = peer.receive_header()
                if ack["status"] == "failure":
                    why[ack["s"]] = ack["detail"]
        refused = [number for number, text in why.items() if "too many messages" in text]
        assert refused == list(range(2 * MAX_GAP_RANGES, count + 1, 2))
        stored = 2 * MAX_GAP_RANGES - 2
        with server.connect() as peer:
            assert come_back(peer) == (list(range(1, stored, 2)), stored, stored)
            assert publish(peer, stored + 1)["status"] == "success"
        assert told(server) == ([], stored + 1, stored + 1)


@pytest.mark.parametrize("topic", ["orders", "events"])
@pytest.mark.parametrize("at_once", [False, True])
def test_smaller_messages_find_room_on_a_full_disk(
    tmp_path: Path, topic: str, *, at_once: bool
) -> None:
    """What does not fit is not taken for stored, one by one and in a run."""
    (tmp_path / "small").mkdir()
    elements = ELEMENTS.format(sow=".", journal="small")
    with small_disk(tmp_path / "small", 45) as disk:
        with running_server(tmp_path, elements=elements, prepare=disk) as server:
            with log_on(server) as peer:
                publisher = Publisher(peer, topic)
                publisher.publish()
                disk.fill()
                publisher.until_refused()
                first = publisher.sequence
                if at_once:
                    publish_at_once(peer, topic, first, large=first + 10)
                else:
                    assert publish(peer, first, topic=topic)["status"] == "success"
            kill(server)
            disk.make_space()
        with running_server(tmp_path, elements=elements, prepare=disk) as server:
            if at_once:
                assert told(server) == ([first - 1, first + 10], first + 19, first + 19)
            else:
                assert told(server) == ([first - 1], first, first)
            assert first - 1 not in replay(server, topic)


def publish_at_once(peer: RawPeer, topic: str, first: int, large: int) -> None:
    """Publish 20 messages, of which one does not fit."""
    with peer.at_once():
        for number in range(first, first + 20):
            padding = b"x" * SIZE if number == large else b""
            body = b'{"id":%d,"n":%d,"pad":"%s"}' % (number, number, padding)
            peer.send({"c": "publish", "t": topic, "s": number, "a": "persisted"}, body)
    refused = []
    while (ack := peer.receive_header())["s"] < first + 19:
        refused += [ack["s"]] * (ack["status"] == "failure")
    assert refused == [large]


def kill(server: RunningServer) -> None:
    """End a server without warning."""
    server.stop(signal.SIGKILL)


@pytest.mark.parametrize("is_lost", [False, True])
def test_journals_that_are_full_have_it_too(tmp_path: Path, *, is_lost: bool) -> None:
    """Also when the table of publishers, which has it, is lost."""
    with running_server(tmp_path, elements=LOCAL) as server:
        bad_body(server)
        with server.log_on("another") as peer:
            for _ in range(3):
                for _ in range(110):
                    peer.publish("events", b'{"pad":"%s"}' % (b"x" * SIZE))
                peer.flush()
            wait_until(lambda: len(list((tmp_path / "journal").glob("*.index.gz"))) >= 2)
        kill(server)
        if is_lost:
            (tmp_path / "journal/test-instance.clients.ack").unlink()
    with running_server(tmp_path, elements=LOCAL) as server:
        assert told(server) == ([2], 3, 3)


def test_a_publisher_of_ours_hears_of_it_when_it_comes_back(tmp_path: Path) -> None:
    """What its store has kept, and the server refused, is handed to the program."""
    store = FilePublishStore(tmp_path / "messages")
    for number in (1, 2, 3):
        store.add(b'{"c":"publish","t":"orders","a":"persisted"', BAD if number == 2 else b"{}")
        store.commit()
    refused: list[int] = []
    with running_server(tmp_path, elements=LOCAL) as server:
        bad_body(server)
        with HAClient(
            [f"tcp://127.0.0.1:{server.port}/amps/json"],
            "publisher",
            publish_store=store,
            on_refused=lambda message, _: refused.append(message.sequence),
        ) as client:
            client.connect()
            client.publish_flush()
            assert refused == [2]
            assert not len(store)
            client.publish("orders", message(4))
            client.publish_flush()
        assert told(server) == ([], 4, 4)


# Replicated.

APART: Final = Topology("apart", both(("A", "B"), is_sync=False), (("A", "B"),))
"""Two servers that do not wait for one another."""


def on_pair(tmp_path: Path) -> AbstractContextManager[Cluster]:
    """Two servers that stand in for one another, with records that refuse what is no JSON."""
    return cluster(tmp_path, APART, elements=ORDERS.replace("</Topic>", f"{ENRICHED}</Topic>"))


def stored(instance: Instance, highest: int) -> bool:
    """Whether a server has got messages up to a number."""
    with instance.server.log_on("reader") as peer:
        return {"id": highest, "n": highest, "next": highest} in query(peer, "orders").messages


def test_the_publisher_moves_to_another_server(tmp_path: Path) -> None:
    """That one knows, too; and when the publisher has heard there, the first one knows that."""
    with on_pair(tmp_path) as pair:
        pair.start()
        bad_body(pair["A"].server)
        wait_until(lambda: stored(pair["B"], 3), pair.logs)
        pair["A"].kill()
        assert told(pair["B"].server)[0] == [2]
        pair["B"].kill()
        pair["B"].start()
        with pair["B"].server.connect() as peer:
            assert come_back(peer)[0] == [2]
            peer.publish("orders", message(4), s=4)
            pair["A"].start()
            wait_until(lambda: stored(pair["A"], 4), pair.logs)
        assert told(pair["A"].server) == ([], 4, 4)


def test_what_another_server_has_taken_is_there(tmp_path: Path) -> None:
    """A server refuses what the other one takes while they are apart; both know when they meet."""
    with on_pair(tmp_path) as pair:
        pair["A"].start()
        bad_body(pair["A"].server)
        pair["A"].stop()
        pair["B"].start()
        with log_on(pair["B"].server) as peer:
            for number in (1, 2, 3):
                peer.publish("orders", message(number), s=number)
            peer.flush()
        pair["A"].start()
        for name in ("A", "B"):
            wait_until(lambda: told(pair[name].server) == ([], 3, 3), pair.logs)  # noqa: B023 - now


@pytest.mark.parametrize("damage", spread([partial(spoil, bodies=True), flip], 1))
def test_what_a_damaged_log_has_left_out_is_told(
    tmp_path: Path, damage: Callable[..., None]
) -> None:
    """A destination that has got what is behind it; when it gets that, too, it is told no more."""
    with cluster(tmp_path, PAIR, elements="") as pair:
        pair["A"].start()
        with log_on(pair["A"].server) as peer:
            for number in (1, 2, 3):
                peer.publish("events", b'{"n":%d,"p":0}' % number, s=number)
            peer.flush()
        pair["A"].stop()
        (journal,) = pair["A"].directory.glob("journal/*0.journal")
        intact = journal.read_bytes()
        damage(pair["A"], 2)
        pair.start()
        wait_until(lambda: replay(pair["B"].server, "events") == [1, 3], pair.logs)
        pair["A"].stop()
        assert told(pair["B"].server) == ([2], 3, 3)
        pair["B"].kill()
        journal.write_bytes(intact)
        pair.start()
        wait_until(lambda: replay(pair["B"].server, "events") == [1, 3, 2], pair.logs)
        assert told(pair["B"].server) == ([], 3, 3)
