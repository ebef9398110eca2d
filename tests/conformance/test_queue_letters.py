"""Dead letters (an extension): what leaves a queue without having been acknowledged, is published.

Its correlation id says why, as the query of a URL; the message is what it was.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import cast
from urllib.parse import parse_qs

import pytest

from server.security.entitlement import FixedEntitlement
from server.security.modules import ENTITLEMENT_MODULES, EntitlementFactory
from server.security.permissions import Permission, Permit
from tests.support.queues import (
    Header,
    Options,
    bookmarks,
    consume,
    done,
    elements,
    make_safe,
    put,
    take,
)
from tests.support.raw import RawPeer
from tests.support.server import RunningServer, free_port, running_server
from tests.support.sow import query

QUEUES: dict[str, Options] = {
    "tried": {"MaxCancels": 2, "DeadLetterTopic": "dead-tried"},
    "returned": {"MaxDeliveries": 1, "DeadLetterTopic": "dead-returned"},
    "late": {"Expiration": "100ms", "DeadLetterTopic": "dead-late"},
    "given-up": {"DeadLetterTopic": "dead-given-up"},
    "once": {
        "Semantics": "at-most-once",
        "Expiration": "100ms",
        "DeadLetterTopic": "dead-once",
    },
    "bytes": {"DeadLetterTopic": "dead-bytes"},
    "records": {"DeadLetterTopic": "dead-records"},
    "done": {"DeadLetterTopic": "dead-done"},
    "kept": {"UnderlyingTopic": "dead-kept"},
    "broken": {"UnderlyingTopic": "in-broken", "DeadLetterTopic": "dead-broken"},
    "beside": {"UnderlyingTopic": "in-broken"},
    "some": {"DeadLetterTopic": "dead-some"},
    "put-aside": {"UnderlyingTopic": "dead-some"},
    "put-aside-strictly": {"UnderlyingTopic": "dead-some", "Leasing": "strict"},
    "sent-letters": {"UnderlyingTopic": "dead-some", "Semantics": "at-most-once"},
    "repair": {"UnderlyingTopic": "dead-broken"},
    "forged": {"DeadLetterTopic": "dead-forged"},
    "forgeries": {"UnderlyingTopic": "dead-forged"},
    "keeping": {"DeadLetterTopic": "dead-kept", "Expiration": "1h"},
}

RECORDS = """
<Topic>
  <Name>dead-records</Name><MessageType>json</MessageType><Key>/n</Key>
  <FileName>./sow/%n.sow</FileName>
  <Preprocessing><Field>/n + 0 AS /n</Field></Preprocessing>
</Topic>
"""
RECORDED = "<Topic><Name>^dead-</Name><MessageType>json</MessageType></Topic>"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server; each test has queues of its own."""
    directory = tmp_path_factory.mktemp("server")
    with running_server(directory, elements=elements(QUEUES, RECORDS, RECORDED)) as running:
        yield running


def letters(server: RunningServer, name: str, count: int) -> list[tuple[dict[str, str], bytes]]:
    """The dead letters of a queue, from the log: what each says, and the message."""
    with server.log_on("mourner") as peer:
        peer.subscribe(f"dead-{name}", "m", bm="0")
        found = [(said(header), body) for header, body in take(peer, count)]
        assert peer.hears_nothing()
        return found


def said(header: Header) -> dict[str, str]:
    """What a dead letter says in its correlation id."""
    return {name: value for name, (value,) in parse_qs(header["x"], strict_parsing=True).items()}


def test_what_a_letter_says(server: RunningServer) -> None:
    """How often it was tried, who had it last, where it came from; and its own correlation id."""
    with server.log_on("publisher") as publisher:
        publisher.publish("in-tried", b'{"n": 1}', x="a&b=c 100%")
        publisher.flush()
    marks = []
    with server.log_on("worker #1") as worker:
        consume(worker, "tried")
        for _ in range(2):
            (message,) = take(worker, 1)
            marks.append(message[0]["bm"])
            assert done(worker, "tried", bm=marks[-1], o="cancel") == 1
    ((letter, body),) = letters(server, "tried", 1)
    assert body == b'{"n": 1}'
    assert letter == {
        "queue": "tried",
        "topic": "in-tried",
        "reason": "max_cancels",
        "deliveries": "2",
        "cancels": "2",
        "last_consumer": "worker #1",
        "bookmark": marks[0],
        "correlation_id": "a&b=c 100%",
    }


def test_a_consumer_that_goes_away_too_often(server: RunningServer) -> None:
    put(server, "in-returned", [1])
    with server.log_on("gone") as gone:
        consume(gone, "returned")
        take(gone, 1)
    ((letter, _),) = letters(server, "returned", 1)
    assert (letter["reason"], letter["deliveries"], letter["cancels"]) == (
        "max_deliveries",
        "1",
        "0",
    )
    assert letter["last_consumer"] == "gone"


def test_time(server: RunningServer) -> None:
    """Nobody has had it."""
    put(server, "in-late", [1])
    ((letter, _),) = letters(server, "late", 1)
    assert (letter["reason"], letter["deliveries"]) == ("time_limit", "0")
    assert "last_consumer" not in letter


def test_a_client_gives_messages_up(server: RunningServer, peer: RawPeer) -> None:
    """By bookmark or filter, leased or not, as many as there are, in the order in which it does."""
    put(server, "in-given-up", range(100))
    consume(peer, "given-up", 1)
    (first,) = take(peer, 1)
    with server.log_on("giver") as giver:
        assert done(giver, "given-up", bm=first[0]["bm"], o="expire") == 1
        take(peer, 1)
        assert done(giver, "given-up", filter="1=1", o="expire") == 99
    found = letters(server, "given-up", 100)
    assert [body for _, body in found] == [b'{"n":%d}' % n for n in range(100)]
    assert {letter["reason"] for letter, _ in found} == {"forced_expire"}
    assert [letter["deliveries"] for letter, _ in found] == ["1", "1"] + ["0"] * 98


def test_at_most_once(server: RunningServer) -> None:
    """What expires before it has been sent; what has been sent has left the queue."""
    with server.log_on("once") as peer:
        consume(peer, "once", 1)
        put(server, "in-once", [1, 2])
        take(peer, 1)
        ((letter, body),) = letters(server, "once", 1)
    assert (letter["reason"], body) == ("time_limit", b'{"n":2}')


def test_bodies_are_bytes(server: RunningServer, peer: RawPeer) -> None:
    """Also such as are none of their message type."""
    bodies = [b'{"n": 1, "n": 2}', b"\xff\x00 no json", b""]
    put(server, "in-bytes", bodies)
    consume(peer, "bytes")
    assert done(peer, "bytes", bm=bookmarks(take(peer, 3)), o="expire") == 3
    assert [body for _, body in letters(server, "bytes", 3)] == bodies


def test_a_topic_with_records_takes_letters(server: RunningServer) -> None:
    """What it cannot take is said in the log, and keeps nothing else from being published."""
    put(server, "in-records", [b'{"n": 1, "a": 1}', b"no json", b'{"n": 1, "a": 2}'])
    with server.log_on("giver") as giver:
        consume(giver, "records")
        assert done(giver, "records", bm=bookmarks(take(giver, 3)), o="expire") == 3
        assert server.logs("1D-0020")
        assert query(giver, "dead-records").messages == [{"n": 1, "a": 2}]


def test_what_is_done_has_no_letter(server: RunningServer, peer: RawPeer) -> None:
    """Nor has what is given back."""
    put(server, "in-done", [1, 2])
    consume(peer, "done", 1)
    assert done(peer, "done", bm=take(peer, 1)[0][0]["bm"], o="cancel") == 1
    with server.log_on("giver") as giver:
        take(peer, 1)
        assert done(giver, "done", filter="1=1") == 2
    assert letters(server, "done", 0) == []


def test_letters_may_be_worked_off(server: RunningServer, peer: RawPeer) -> None:
    """Like any messages: a queue over their topic, and filters on what they say."""
    put(server, "in-keeping", range(3))
    with server.log_on("giver") as giver:
        assert done(giver, "keeping", filter="/n > 0", o="expire") == 2
    consume(peer, "kept", filter="CORRELATION_ID() LIKE 'reason=forced_expire&' AND /n = 2")
    ((header, body),) = take(peer, 1)
    assert (said(header)["queue"], body) == ("keeping", b'{"n":2}')


COUNTING: dict[str, Options] = {
    "counted": {"DeadLetterTopic": "dead-counted"},
    "letters": {"UnderlyingTopic": "dead-counted"},
}


def test_counts_survive_a_restart(tmp_path: Path) -> None:
    """Deliveries and cancels, and who had a message last, also if the server is killed."""
    everything = elements(COUNTING, recorded=RECORDED)
    with running_server(tmp_path, elements=everything) as server:
        put(server, "in-counted", [1])
        with server.log_on("first") as peer:
            consume(peer, "counted", 1)
            (message,) = take(peer, 1)
            assert done(peer, "counted", bm=message[0]["bm"], o="cancel") == 1
            take(peer, 1)
        make_safe(server)
        server.stop(signal.SIGKILL)
    with running_server(tmp_path, elements=everything) as server:
        with server.log_on("giver") as giver:
            assert done(giver, "counted", filter="1=1", o="expire") == 1
        ((letter, _),) = letters(server, "counted", 1)
    assert (letter["deliveries"], letter["cancels"], letter["last_consumer"]) == ("2", "1", "first")
    with running_server(tmp_path, elements=everything) as server:
        letters(server, "counted", 1)


def redrive(peer: RawPeer, name: str, **keys: str) -> int:
    """Redrive dead letters, and give how many went back."""
    return done(peer, name, o="redrive", **keys)


def numbers_in(peer: RawPeer, name: str) -> list[int]:
    """What is in a queue and has not been leased."""
    return [message["n"] for message in query(peer, name).messages]


def test_letters_are_redriven(server: RunningServer, peer: RawPeer) -> None:
    """By filter: back into the queue that they came from, and into no other of the same topic."""
    with server.log_on("publisher") as publisher:
        for n in range(40):
            publisher.publish("in-broken", b'{"n":%d}' % n, x=f"id {n}")
        publisher.flush()
    assert done(peer, "broken", filter="1=1", o="expire") == 40
    assert done(peer, "beside", filter="1=1") == 40
    with server.log_on("giver") as giver:
        assert redrive(giver, "repair", filter="/n < 35") == 35
        assert numbers_in(giver, "broken") == list(range(35))
        assert numbers_in(giver, "beside") == []
        assert numbers_in(giver, "repair") == list(range(35, 40))
        consume(giver, "broken")
        header, body = giver.receive()
        assert (header["x"], body) == ("id 0", b'{"n":0}')


def test_a_letter_is_redriven_by_its_bookmark(server: RunningServer, peer: RawPeer) -> None:
    """What is none, what somebody else has under strict leasing, and what has left, stays."""
    put(server, "in-some", range(3))
    put(server, "dead-some", [3])
    assert done(peer, "some", filter="1=1", o="expire") == 3
    consume(peer, "put-aside-strictly")
    marks = bookmarks(take(peer, 4))
    with server.log_on("other") as other:
        assert redrive(other, "put-aside-strictly", bm=marks) == 0
        assert redrive(other, "put-aside", bm=marks + ",7|7|") == 3
        assert numbers_in(other, "put-aside") == [3]
        assert numbers_in(other, "some") == [0, 1, 2]
    assert redrive(peer, "put-aside-strictly", bm=marks) == 3
    with server.log_on("sent") as sent:
        consume(sent, "sent-letters")
        take(sent, 4)
        assert redrive(sent, "sent-letters", bm=marks) == 0
        assert numbers_in(sent, "some") == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    ("queue", "topic", "count"),
    [
        ("forged", "in-forged", 1),  # as a letter of the queue
        ("beside", "in-broken", 0),  # it has no letters
        ("broken", "in-broken", 0),  # it has them somewhere else
        ("forged", "in-broken", 0),  # its messages come from another topic
        ("forged", "", 0),
        ("", "in-forged", 0),
        ("no-such", "in-forged", 0),
    ],
)
def test_what_a_letter_says_has_to_fit_the_configuration(
    server: RunningServer, peer: RawPeer, queue: str, topic: str, count: int
) -> None:
    """Else whoever may write letters could have anything published by who redrives them."""
    says = f"queue={queue}&topic={topic}&reason=client&deliveries=1&cancels=0&bookmark=1|1|"
    with server.log_on("publisher") as publisher, server.log_on("watcher") as watcher:
        for one in {"in-forged", "in-broken", topic} - {""}:
            watcher.subscribe(one, one)
        publisher.publish("dead-forged", b'{"n":666}', x=says)
        publisher.flush()
        assert redrive(peer, "forgeries", filter="1=1") == count
        assert numbers_in(peer, "forgeries") == [666] * (1 - count)
        if not count:
            assert watcher.hears_nothing()
    done(peer, "forgeries", filter="1=1")
    done(peer, "forged", filter="1=1")


def test_what_was_redriven_may_come_again_to_nothing(tmp_path: Path) -> None:
    """After a restart it is where it was: in the queue, and no dead letter."""
    queues: dict[str, Options] = {
        "jobs": {"DeadLetterTopic": "dead"},
        "others": {"UnderlyingTopic": "in-jobs"},
        "letters": {"UnderlyingTopic": "dead"},
    }
    recorded = "<Topic><Name>dead</Name><MessageType>json</MessageType></Topic>"
    everything = elements(queues, recorded=recorded)
    with running_server(tmp_path, elements=everything) as server:
        put(server, "in-jobs", range(5))
        with server.log_on("giver") as giver:
            assert done(giver, "others", filter="/n < 4") == 4
            assert done(giver, "jobs", filter="1=1", o="expire") == 5
            assert redrive(giver, "letters", filter="/n <> 2") == 4
        make_safe(server)
        server.stop(signal.SIGKILL)
    with running_server(tmp_path, elements=everything) as server, server.log_on("giver") as giver:
        assert numbers_in(giver, "jobs") == [0, 1, 3, 4]
        assert numbers_in(giver, "others") == [4]
        assert numbers_in(giver, "letters") == [2]
        assert done(giver, "jobs", filter="/n = 3", o="expire") == 1
        assert numbers_in(giver, "letters") == [2, 3]


READING_TRANSPORT = """
<Transport>
  <Name>reading</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>
  <Protocol>amps</Protocol>
  <Entitlement><Module>amps-default-no-entitlement-module</Module></Entitlement>
</Transport>
"""


class ReadingOnly:
    """Lets everybody do everything but publish."""

    def get_permit(self, permission: Permission, resource: str) -> Permit:
        """See `Permissions`."""
        return Permit(permission is not Permission.WRITE_TOPIC)

    def allows_instance(self, name: str) -> bool | None:
        return None

    def release(self) -> None:
        """See `Permissions`."""


def let_read_only() -> None:
    """Prepare a server: a module by which nothing may be done lets read from topics."""
    modules = cast("dict[str, EntitlementFactory]", ENTITLEMENT_MODULES)
    name = "amps-default-no-entitlement-module"
    modules[name] = lambda _options, _services: FixedEntitlement(ReadingOnly())


def test_redriving_takes_the_permission_to_publish(tmp_path: Path) -> None:
    """To the topic that the message came from; without it, letters stay, to be read and taken."""
    port = free_port()
    with running_server(
        tmp_path,
        elements=elements(COUNTING, recorded=RECORDED),
        transports=READING_TRANSPORT.format(port=port),
        prepare=let_read_only,
    ) as server:
        put(server, "in-counted", [1, 2])
        with server.log_on("giver") as giver, RawPeer(port) as reader:
            assert reader.log_on("reader")["status"] == "success"
            assert done(giver, "counted", filter="1=1", o="expire") == 2
            assert redrive(reader, "letters", filter="1=1") == 0
            assert numbers_in(reader, "letters") == [1, 2]
            assert done(reader, "letters", filter="/n = 1") == 1
            assert redrive(giver, "letters", filter="1=1") == 1
            assert numbers_in(reader, "counted") == [2]
