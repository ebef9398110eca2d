"""Acknowledging messages of queues (AMPS User Guide, Acknowledging Messages)."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tests.support.queues import (
    Header,
    Options,
    bookmarks,
    consume,
    done,
    elements,
    numbers,
    put,
    take,
)
from tests.support.raw import RawPeer
from tests.support.server import RunningServer, module_server
from tests.support.sow import receive_group

QUEUES: dict[str, Options] = {
    "any": {},
    "batches": {},
    "plain": {},
    "another": {},
    "filter": {},
    "keys": {"UnderlyingTopic": "in-records"},
    "command": {},
    "early": {},
    "many-early": {"MaxPerSubscriptionBacklog": 10_000},
    "foreign": {"Leasing": "strict"},
    "lent": {"Leasing": "sublet"},
    "cancel": {},
    "later": {},
    "cancels": {"MaxCancels": 2},
    "deliveries": {"MaxDeliveries": 2},
    "expire": {},
    "expiring": {"Expiration": "300ms"},
    "model-queue": {"Expiration": "1h", "ExpirationModel": "queue"},
    "model-latest": {"Expiration": "1h", "ExpirationModel": "latest"},
    "model-earliest": {"Expiration": "1h", "ExpirationModel": "earliest"},
    "model-default": {"Expiration": "1h", "ExpirationModel": "default"},
    "stored": {},
    "repeated": {},
    "many": {"MaxPerSubscriptionBacklog": 10_000},
    "jobs.high": {"UnderlyingTopic": "in-high", "LeasePeriod": "1h"},
    "queue://jobs.(low)": {
        "element": "LocalQueue",
        "UnderlyingTopic": "in-local",
        "LeasePeriod": "1h",
    },
    "jobs.once": {"UnderlyingTopic": "in-once", "Semantics": "at-most-once"},
    "jobs.[": {"UnderlyingTopic": "in-bracket"},
}

RECORDS = """
<Topic>
  <Name>in-records</Name><MessageType>json</MessageType><Key>/n</Key>
  <FileName>./sow/%n.sow</FileName>
</Topic>
"""


server = module_server(elements(QUEUES, RECORDS))


def delete(peer: RawPeer, name: str, **keys: Any) -> Header:
    """Acknowledge, and give the ack."""
    return peer.ask({"c": "sow_delete", "cid": "d", "t": name, "a": "stats"} | keys)


REFUSALS = [
    ({}, "invalid command"),
    ({"bm": "1|1|", "filter": "1=1"}, "invalid command"),
    ({"filter": "1=1", "sow_keys": "1"}, "invalid command"),
    ({"bm": "nonsense"}, "invalid bookmark"),
    ({"bm": "1|1|,2|x|"}, "invalid bookmark"),
    ({"bm": "99999999999999999999999|1|"}, "invalid bookmark"),
    ({"bm": ",".join(["1|1|"] * 10_001)}, "invalid bookmark"),
    ({"bm": "1|1|", "o": "forget"}, "invalid option"),
    ({"bm": "1|1|", "o": "cancel,expire"}, "invalid option"),
    ({"bm": "1|1|", "o": "delay=1s"}, "invalid option"),
    ({"bm": "1|1|", "o": "extend=later"}, "invalid option"),
    ({"bm": "1|1|", "o": "extend,expire"}, "invalid option"),
    ({"bm": "1|1|", "o": "redrive,cancel"}, "invalid option"),
    ({"filter": "1=1", "o": "extend"}, "invalid option"),
    ({"bm": "1|1|", "o": "cancel,delay=soon"}, "invalid option"),
    ({"filter": "/n = "}, "bad filter"),
]


@pytest.mark.parametrize(("keys", "reason"), REFUSALS)
def test_what_is_refused(peer: RawPeer, keys: dict[str, Any], reason: str) -> None:
    """With a reason; the connection stays."""
    ack = delete(peer, "any", **keys)
    assert (ack["status"], ack["reason"]) == ("failure", reason)
    peer.flush()


def test_bookmarks_are_for_queues(peer: RawPeer) -> None:
    """Other topics have nothing that could be acknowledged."""
    ack = delete(peer, "in-records", bm="1|1|")
    assert (ack["status"], ack["reason"]) == ("failure", "invalid topic")


def test_batches(server: RunningServer, peer: RawPeer) -> None:
    """As many bookmarks as one likes, with spaces or an empty end; others have no effect."""
    put(server, "in-batches", range(85))
    consume(peer, "batches")
    messages = take(peer, 85)
    with server.log_on("acker") as acker:
        assert done(acker, "batches", bm=bookmarks(messages[:80])) == 80
        assert done(acker, "batches", bm=bookmarks(messages[70:82])) == 2
        assert done(acker, "batches", bm=bookmarks(messages[82:]) + ",77|77|") == 3
        assert done(acker, "batches", filter="1=1") == 0


ACKS = {  # header: whether the message has left the queue after that
    '{"c":"sow_delete","t":"plain","bm":"%s"}': True,
    '{"c":"sow_delete","bm":"%s","t":"plain"}': True,
    '{"c":"sow_delete","t":"plain","bm":"%s"}{}': False,  # with a body
    '{"c":"sow_delete","t":"plain","bm":" %s, "}': True,
    '{"c":"sow_delete","t":"plain","bm":"%s,1"}': False,
    '{"c":"sow_delete","t":"plain","bm":"%s,,1|1"}': False,
    '{"c":"sow_delete","t":"plain","bm":"7|7|,\\u0037|7|,%s"}': True,
    '{"c":"sow_delete","t":"plain","bm":"%s","bm":"1|1|"}': False,  # the last one counts
    '{"c":"sow_delete","t":"plain","bm":"1|1|","bm":"%s"}': True,
    '{"c":"sow_delete","t":"plain","bm":"%s","x":"\\"bm\\":\\"1|1|"}': True,
    '{"c":"sow_delete","t":"plain","bm":"%s","o":"cancel"}': False,
    '{"c":"sow_delete","t":"plain","bm":"%s","filter":"1=1"}': False,
    '{"c":"sow_delete","t":"another","bm":"%s"}': False,
    '{"c":"sow_delete","t":"^plain","bm":"%s"}': False,
    '{"c":"ack","t":"plain","bm":"%s"}': True,
}

LIKE_REGEXES = {
    "jobs.high": "in-high",
    "queue://jobs.(low)": "in-local",
    "jobs.once": "in-once",
    "jobs.[": "in-bracket",
}
"""Queues whose names have characters of regular expressions, and the topics that feed them."""


@pytest.mark.parametrize(("name", "source"), LIKE_REGEXES.items())
@pytest.mark.parametrize(
    "header",
    [
        '{"c":"sow_delete","t":"%s","bm":"%s"}',
        '{"c":"ack","t":"%s","bm":"%s"}',
        '{"c":"sow_delete","t":"%s","bm":"%s","o":"expire"}',
    ],
)
def test_a_queue_with_the_name_of_a_regex(
    server: RunningServer, peer: RawPeer, other: RawPeer, name: str, source: str, header: str
) -> None:
    """An acknowledgement names a queue, whose messages leave, also with the same header again."""
    put(server, source, range(3))
    consume(peer, name, o="non_regex_topic")
    for message, _ in take(peer, 3):
        text = header % (name, message["bm"])
        other.socket.sendall(struct.pack(">I", len(text)) + text.encode())
    other.flush()
    assert delete(other, name, filter="1=1")["topic_matches"] == 0


@pytest.mark.parametrize(("name", "source"), list(LIKE_REGEXES.items())[:2])
def test_leases_of_a_queue_with_the_name_of_a_regex(
    server: RunningServer, peer: RawPeer, name: str, source: str
) -> None:
    """They are extended and given back, and a filter or SOW keys acknowledge them."""
    put(server, source, range(2))
    consume(peer, name, o="non_regex_topic")
    (first, _), (second, _) = take(peer, 2)
    assert delete(peer, name, bm=first["bm"], o="extend")["matches"] == 1
    assert delete(peer, name, bm=first["bm"], o="cancel")["matches"] == 1
    (again, _), *_ = take(peer, 1)
    assert again["bm"] == first["bm"]
    assert done(peer, name, filter="/n = 0") == 1
    assert done(peer, name, bm=second["bm"]) == 1


@pytest.mark.parametrize(("header", "has_left"), ACKS.items())
def test_acknowledgements_alike(
    server: RunningServer, peer: RawPeer, other: RawPeer, header: str, *, has_left: bool
) -> None:
    """Each means what it says, however plain those before it were, and the first one alike."""
    put(server, "in-plain", range(4))
    consume(peer, "plain")
    first, second, third, fourth = [message[0]["bm"] for message in take(peer, 4)]
    plain = next(iter(ACKS))
    for text in (plain % first, header % second, header % third, plain % fourth):
        other.socket.sendall(struct.pack(">I", len(text)) + text.encode())
    other.flush()
    left = [not done(other, "plain", filter=f"/n = {n}") for n in range(4)]
    assert left == [True, has_left, has_left, True]


def test_a_filter_acknowledges_whoever_has_them(
    server: RunningServer, peer: RawPeer, other: RawPeer
) -> None:
    """The ack says how many there were, how many matched, and how many left."""
    put(server, "in-filter", range(6))
    consume(peer, "filter", 2)
    take(peer, 2)
    ack = delete(other, "filter", filter="/n > 0 AND /n < 5")
    counts = ack["topic_matches"], ack["matches"], ack["records_deleted"]
    assert tuple(map(int, counts)) == (6, 4, 4)
    assert numbers(take(peer, 1)) == [5]


def test_a_filter_over_many(server: RunningServer, peer: RawPeer) -> None:
    """It is done little by little, and all of it before the ack; what comes after it, waits."""
    put(server, "in-many", range(3000))
    ack = delete(peer, "many", filter="/n < 2990")
    assert (int(ack["topic_matches"]), int(ack["records_deleted"])) == (3000, 2990)
    consume(peer, "many")
    assert numbers(take(peer, 10)) == list(range(2990, 3000))


def test_sow_keys(server: RunningServer, peer: RawPeer) -> None:
    """Each message of a record has its key."""
    put(server, "in-records", [1, 2, 1, 3])
    peer.send({"c": "sow", "cid": "q", "t": "in-records", "f": "/n = 1"})
    ((header, _),) = receive_group(peer).records
    assert done(peer, "keys", sow_keys=header["k"]) == 2
    assert done(peer, "keys", filter="1=1") == 2


def test_the_command_ack(server: RunningServer, peer: RawPeer) -> None:
    """It is taken as a sow_delete, options included, and refused as that is."""
    put(server, "in-command", range(2))
    consume(peer, "command", 1)
    (header, _), *_ = take(peer, 1)
    command = {"c": "ack", "cid": "d", "t": "command", "bm": header["bm"], "a": "stats"}
    assert peer.ask(command | {"o": "cancel"})["records_deleted"] == 1
    assert peer.receive()[0]["bm"] == header["bm"]
    ack = peer.ask(command | {"bm": "", "a": "processed"})
    assert (ack["status"], ack["reason"]) == ("failure", "invalid command")
    assert peer.ask(command)["records_deleted"] == 1
    assert numbers(take(peer, 1)) == [1]


def test_the_command_ack_for_no_queue(peer: RawPeer) -> None:
    """It is refused as a sow_delete with bookmarks is, and the connection stays."""
    ack = peer.ask({"c": "ack", "cid": "d", "t": "in-command", "bm": "1|1|", "a": "processed"})
    assert (ack["status"], ack["reason"]) == ("failure", "invalid topic")
    peer.flush()


@pytest.mark.parametrize("keys", [{}, {"bm": "1|1|"}])
def test_other_acks_are_no_command(server: RunningServer, keys: dict[str, str]) -> None:
    """They are what servers say."""
    with server.log_on("server") as peer:
        ack = peer.ask({"c": "ack", "cid": "1", "a": "processed"} | keys)
        assert (ack["status"], ack["reason"]) == ("failure", "unknown command")
        assert peer.is_disconnected()


def test_an_ack_before_its_message(server: RunningServer, peer: RawPeer) -> None:
    """The message is not delivered when it comes."""
    consume(peer, "early")
    put(server, "in-early", [1])
    (header, _), *_ = take(peer, 1)
    client, number, _ = header["bm"].split("|")
    with server.log_on("numbered") as numbered:
        numbered.publish("in-early", b'{"n":2}', s="1")
        numbered.flush()
        (header, _), *_ = take(peer, 1)
        client, number, _ = header["bm"].split("|")
        assert done(peer, "early", bm=f"{client}|{int(number) + 1}|") == 0
        for number in (2, 3):
            numbered.publish("in-early", b'{"n":%d}' % (number + 1), s=str(number))
        assert numbers(take(peer, 1)) == [4]


def test_messages_that_come_with_many_acknowledged_before(
    server: RunningServer, peer: RawPeer
) -> None:
    """What has left is forgotten, now and then, and never what has only just come."""
    consume(peer, "many-early", 10_000)
    with server.log_on("steady") as numbered:
        numbered.publish("in-many-early", b'{"n":1}', s=1)
        messages = take(peer, 1)
        client, *_ = messages[0][0]["bm"].split("|")
        early = ",".join(f"{client}|{number}|" for number in range(2, 3000) if number % 4)
        assert done(peer, "many-early", bm=early) == 0
        with numbered.at_once():
            for number in range(2, 3001):
                numbered.publish("in-many-early", b'{"n":%d}' % number, s=number)
        messages += take(peer, 750)
        assert numbers(messages) == [1, *range(4, 3001, 4)]
        assert done(peer, "many-early", bm=bookmarks(messages)) == len(messages)


STRICTNESS = [("foreign", 0), ("lent", 1)]


@pytest.mark.parametrize(("name", "count"), STRICTNESS)
def test_leasing(
    server: RunningServer, peer: RawPeer, other: RawPeer, name: str, count: int
) -> None:
    """Who does not have a message may acknowledge it, unless Leasing is strict."""
    put(server, f"in-{name}", range(2))
    consume(peer, name, 1)
    messages = take(peer, 1)
    assert done(other, name, bm=bookmarks(messages)) == count
    if not count:
        assert peer.hears_nothing()
        assert done(peer, name, bm=bookmarks(messages)) == 1
    assert numbers(take(peer, 1)) == [1]
    assert done(other, name, filter="1=1") == count


def test_unleased_messages_may_be_acknowledged(server: RunningServer, peer: RawPeer) -> None:
    """Also where Leasing is strict."""
    put(server, "in-foreign", [7])
    assert done(peer, "foreign", filter="/n = 7") == 1


def test_cancel(server: RunningServer, peer: RawPeer, other: RawPeer) -> None:
    """The message is the next for whoever has room."""
    put(server, "in-cancel", range(3))
    consume(peer, "cancel", 1)
    messages = take(peer, 1)
    consume(other, "cancel", 1)
    assert numbers(take(other, 1)) == [1]
    consume(peer, "cancel", 0, o="replace")
    assert done(peer, "cancel", bm=bookmarks(messages), o="cancel") == 1
    assert done(peer, "cancel", bm=bookmarks(messages), o="cancel") == 0  # it has come back
    assert done(peer, "cancel", bm="77|77|", o="cancel") == 0
    assert done(peer, "cancel", filter="/n = 1") == 1
    assert numbers(take(other, 1)) == [0]


def test_cancel_with_a_delay(server: RunningServer, peer: RawPeer) -> None:
    """Others go before it meanwhile."""
    put(server, "in-later", range(2))
    consume(peer, "later", 1)
    messages = take(peer, 1)
    assert done(peer, "later", bm=bookmarks(messages), o="cancel,delay=1ms") == 1
    got = take(peer, 1)
    assert done(peer, "later", bm=bookmarks(got)) == 1
    got += take(peer, 1)
    assert sorted(numbers(got)) == [0, 1]


def test_the_last_cancel(server: RunningServer, peer: RawPeer) -> None:
    """A message expires when it has been cancelled as often as it may be."""
    put(server, "in-cancels", range(2))
    consume(peer, "cancels", 1)
    for _ in range(2):
        messages = take(peer, 1)
        assert numbers(messages) == [0]
        assert done(peer, "cancels", bm=bookmarks(messages), o="cancel") == 1
    assert numbers(take(peer, 1)) == [1]


def test_the_last_delivery(server: RunningServer, peer: RawPeer) -> None:
    """A message expires when it comes back and has been delivered as often as it may be."""
    put(server, "in-deliveries", range(2))
    for _ in range(2):
        consume(peer, "deliveries", 1)
        assert numbers(take(peer, 1)) == [0]
        peer.ask({"c": "unsubscribe", "cid": "u", "sub_id": "s", "a": "processed"})
    consume(peer, "deliveries", 1)
    assert numbers(take(peer, 1)) == [1]


def test_expire(server: RunningServer, peer: RawPeer) -> None:
    """The message leaves at once."""
    put(server, "in-expire", range(2))
    consume(peer, "expire", 1)
    assert done(peer, "expire", bm=bookmarks(take(peer, 1)), o="expire") == 1
    assert numbers(take(peer, 1)) == [1]


def test_messages_expire(server: RunningServer, peer: RawPeer) -> None:
    """Those that nobody has had in time."""
    put(server, "in-expiring", [1])
    while int(delete(peer, "expiring", filter="/n = 0")["topic_matches"]):
        pass
    consume(peer, "expiring")
    put(server, "in-expiring", [2])
    assert numbers(take(peer, 1)) == [2]


# Whether a message that wants to expire at once in a queue of an hour stays, by model.
MODELS = [("queue", True), ("latest", True), ("earliest", False), ("default", False)]


@pytest.mark.parametrize(("model", "stays"), MODELS)
def test_expiration_models(
    server: RunningServer, peer: RawPeer, model: str, *, stays: bool
) -> None:
    """Which of two expirations counts, the queue's or the message's."""
    name = f"model-{model}"
    peer.publish(f"in-{name}", b'{"n":1}', e="1")
    peer.flush()
    if stays:
        header = {"c": "sow_delete", "cid": "d", "t": name, "a": "stats", "filter": "/n = 0"}
        assert int(peer.ask(header)["topic_matches"]) == 1
        return
    while int(delete(peer, name, filter="/n = 0")["topic_matches"]):
        pass


def test_all_acks(server: RunningServer, peer: RawPeer) -> None:
    """Received and processed, completed and stats, persisted when it is recorded."""
    put(server, "in-stored", [1])
    peer.send(
        {
            "c": "sow_delete",
            "cid": "d",
            "t": "stored",
            "filter": "1=1",
            "a": "received,processed,completed,stats,persisted",
        }
    )
    acks = [peer.receive_header() for _ in range(5)]
    assert {ack["a"] for ack in acks} == {
        "received",
        "processed",
        "completed",
        "stats",
        "persisted",
    }
    assert {ack["status"] for ack in acks} == {"success"}


def test_numbered_acknowledgements_count_once(server: RunningServer) -> None:
    """A client that repeats one after a reconnect is told that it is known."""
    put(server, "in-repeated", range(2))
    with server.log_on("acker") as peer:
        assert done(peer, "repeated", filter="/n = 0", s="1") == 1
        ack = delete(peer, "repeated", filter="/n = 1", s="1")
        assert (ack["status"], ack["reason"]) == ("failure", "duplicate")
        assert done(peer, "repeated", filter="/n = 1", s="2") == 1
