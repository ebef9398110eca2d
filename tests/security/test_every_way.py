"""A user gets nothing that they may not see by any way there is, and all that they may see.

There are topics of each kind that a user may read (`open`), may not (`closed`), may read some of
(`limited`), and may read without a field (`masked`); views, conflated topics, and queues among
them, which are made from topics that nobody but the publisher may read.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from itertools import count
from typing import Any, Final

import pytest

from tests.admin.support import ask
from tests.security.entitled import entitled_server
from tests.security.http_support import ADMIN
from tests.security.ways import GROUPS, KINDS, WAYS, Way, table
from tests.support.raw import SILENCE_SECONDS, RawPeer
from tests.support.server import ROOT, RunningServer, free_port
from tests.support.sow import receive_group, split_records
from tests.support.waiting import WAIT_SECONDS, wait_until

RIGHTS: Final = ("open", "closed", "limited", "masked")
LIMIT: Final = "/desk = 'x' AND USER() = 'ann' AND CLIENT_NAME() = 'reader'"
"""What may be seen of `limited`: the functions tell of the reader, and not of the publisher."""

DOCUMENTS: Final = {
    "root": {
        "logon": True,
        "topic": [{"topic": ".*", "read": True, "write": True}],
        "admin": [{"topic": ".*", "read": True}],
    },
    "ann": {
        "logon": True,
        "topic": [
            {"topic": "^open/", "read": True},
            {"topic": "^limited/", "read": LIMIT},
            {"topic": "^masked/", "read": True, "select": "-/secret"},
            {"topic": "^named/", "read": "TOPIC_NAME() = 'logical/named/a'"},
            {"topic": "^timed/", "read": "/until > UNIX_TIMESTAMP()"},
            {"topic": "^slow/(a+)+$", "read": False},
            {"topic": "^slow/", "read": True, "write": True},
        ],
    },
    "eve": {
        "logon": True,
        "admin": [{"topic": "closed|views$", "read": False}, {"topic": ".*", "read": True}],
    },
}


def _elements(right: str) -> str:
    field = "<Field>/{0}</Field>"
    fields = "".join(map(field.format, ("id", "desk", "secret")))
    return f"""
  <Topic>
    <Name>{right}/sow</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>{right}/container</Name><Pattern>^logical/{right}/</Pattern>
    <MessageType>json</MessageType><Key>/id</Key><Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>{right}/past</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>{right}.sow</FileName>
    <History><Window>1h</Window><Granularity>0s</Granularity></History>
  </Topic>
  <Topic>
    <Name>closed/for/{right}</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>closed/into/{right}</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>into-{right}.sow</FileName>
  </Topic>
  <View>
    <Name>{right}/view</Name><MessageType>json</MessageType>
    <UnderlyingTopic>closed/for/{right}</UnderlyingTopic>
    <Projection>{fields}</Projection><Grouping>{field.format("id")}</Grouping>
  </View>
  <ConflatedTopic>
    <Name>{right}/conflated</Name><MessageType>json</MessageType>
    <UnderlyingTopic>closed/for/{right}</UnderlyingTopic><Interval>100ms</Interval>
  </ConflatedTopic>
  <Queue>
    <Name>{right}/queue</Name><MessageType>json</MessageType>
    <UnderlyingTopic>closed/into/{right}</UnderlyingTopic>
    <MaxPerSubscriptionBacklog>1000</MaxPerSubscriptionBacklog>
  </Queue>"""


ELEMENTS: Final = f"""
<SOW>
  {"".join(map(_elements, RIGHTS))}
  <Topic>
    <Name>named/container</Name><Pattern>^logical/named/</Pattern>
    <MessageType>json</MessageType><Key>/id</Key><Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>timed/sow</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <FlushInterval>1ms</FlushInterval>
  <Topic><Name>/(logged|past)$</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>^closed/into/</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


INTERVAL: Final = "<Interval>1s</Interval>"


def _basic(user: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:".encode()).decode()


class Scene:
    """A server, and what has been published there.

    Attributes:
        server: the server.
        admin: the port of its admin interface.
    """

    def __init__(self, server: RunningServer, admin: int) -> None:
        self.server = server
        self.admin = admin
        self._published: dict[str, list[dict[str, Any]]] = {}
        self._ids = count(1)

    def published(self, right: str, kind: str) -> list[dict[str, Any]]:
        """What has been published for a topic so far."""
        return self._published.setdefault(_source(right, kind), [])

    def publish(self, right: str, kind: str) -> list[dict[str, Any]]:
        """Publish messages of two desks for a topic, and give them."""
        source = _source(right, kind)
        some = [
            {"id": next(self._ids), "desk": desk, "secret": f"hush {source}"} for desk in ("x", "y")
        ]
        self.published(right, kind).extend(some)
        with self.server.log_on("publisher", user_id="root") as publisher:
            for one in some:
                publisher.publish(source, json.dumps(one).encode())
            publisher.flush()
        return some

    def keys(self, topic: str) -> str:
        """The SOW keys of a topic."""
        with self.server.log_on("auditor", user_id="root") as peer:
            peer.send({"c": "sow", "cid": "k", "t": topic, "bs": 1000})
            keys = []
            while (frame := peer.receive())[0]["c"] != "group_end":
                if frame[0]["c"] == "sow":
                    keys += [record["k"] for record, _ in split_records(*frame)]
            return ",".join(keys)


def _source(right: str, kind: str) -> str:
    """Where messages for a topic are published."""
    if kind == "queue":
        return f"closed/into/{right}"
    return f"closed/for/{right}" if kind in ("view", "conflated") else _topic(right, kind)


def _topic(right: str, kind: str) -> str:
    return f"logical/{right}/a" if kind == "logical" else f"{right}/{kind}"


def _seen(way: Way, right: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What may be seen of messages: what the permission document says."""
    if right == "closed" or (right == "masked" and way.probes):
        return []
    if right == "limited":
        messages = [one for one in messages if one["desk"] == "x"]
    hidden = {"secret"} if right == "masked" else set()
    if "select" in way.header.get("o", ""):
        hidden |= {"desk"}
    return [{name: one[name] for name in one if name not in hidden} for one in messages]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    admin = free_port()
    elements = ELEMENTS + ADMIN.format(port=admin).replace("</Admin>", INTERVAL + "</Admin>")
    directory = tmp_path_factory.mktemp("ways")
    with entitled_server(directory, DOCUMENTS, elements=elements) as server:
        scene = Scene(server, admin)
        for right in RIGHTS:
            for kind in KINDS:
                if kind != "conflated":  # made from what the view is made from
                    scene.publish(right, kind)
        yield scene


def gather(peer: RawPeer, expected: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What comes, until it is what is expected, and then nothing for a while."""
    got: list[dict[str, Any]] = []
    while True:
        is_there = all(one in got for one in expected)
        try:
            header, content = peer.receive(SILENCE_SECONDS if is_there else WAIT_SECONDS)
        except TimeoutError:
            return got
        bodies = []
        if header["c"] == "sow":
            bodies = [body for _, body in split_records(header, content)]
        elif header["c"] != "ack" and content:
            bodies = [content]
        for body in bodies:
            message = json.loads(body)
            got.append({name: value for name, value in message.items() if value is not None})


CASES: Final = [
    pytest.param(way, right, kind, id=f"{right}-{kind}-{way.what.replace('`', '')}")
    for way in WAYS
    for right in RIGHTS
    for kind in way.kinds
]


@pytest.mark.parametrize(("way", "right", "kind"), CASES)
def test_all_that_may_be_seen_comes_and_nothing_else(
    scene: Scene, way: Way, right: str, kind: str
) -> None:
    topic = _topic(right, kind)
    expected = _seen(way, right, scene.published(right, kind)) if way.sees_before else []
    header = way.header | {"cid": "1", "t": f"^{topic}$" if way.is_regex else topic, "bs": 10}
    if way.by_keys:
        header["sow_keys"] = scene.keys(topic)
    with scene.server.log_on("reader", user_id="ann") as reader:
        ack = reader.ask(header | {"a": "processed"})
        if right == "closed" and not way.is_regex:
            assert (ack["status"], ack["reason"]) == ("failure", "not entitled")
        else:
            assert ack["status"] == "success", ack
        if way.sees_after:
            expected = expected + _seen(way, right, scene.publish(right, kind))
        got = gather(reader, expected)
    assert _distinct(got) == _distinct(expected)


def _distinct(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each message once: replays and pages may have some of them twice."""
    return sorted(
        ({tuple(sorted(one.items())): one for one in messages}).values(), key=lambda one: one["id"]
    )


def test_the_table_of_the_manual_has_these_ways() -> None:
    """Take the rows from `tests.security.ways.table`."""
    manual = (ROOT / "docs" / "security.md").read_text()
    assert table() in manual


def test_a_record_that_may_be_seen_no_more_is_out_of_focus(scene: Scene) -> None:
    """It is shown as it was; not as it is."""
    with (
        scene.server.log_on("mover", user_id="root") as publisher,
        scene.server.log_on("reader", user_id="ann") as reader,
    ):
        reader.ask(
            {"c": "subscribe", "cid": "1", "t": "limited/sow", "o": "oof", "a": "processed"}
            | {"filter": "/id = 0"}
        )
        for desk in ("x", "y", "y", "x"):
            publisher.publish("limited/sow", json.dumps({"id": 0, "desk": desk}).encode())
        publisher.send({"c": "sow_delete", "t": "limited/sow", "filter": "/id = 0"})
        frames = [reader.receive() for _ in range(4)]
        assert [
            (one["c"], one.get("reason"), json.loads(body)["desk"]) for one, body in frames
        ] == [
            ("p", None, "x"),
            ("oof", "entitlement", "x"),
            ("p", None, "x"),
            ("oof", "deleted", "x"),
        ]
        assert reader.hears_nothing()


def test_a_replay_of_a_queue_is_one_of_what_feeds_it(scene: Scene) -> None:
    """Who may read the queue may not therefore read these topics."""
    with scene.server.log_on("reader", user_id="ann") as reader:
        header = {"c": "subscribe", "cid": "1", "t": "open/queue", "bm": "0", "a": "processed"}
        assert reader.ask(header)["status"] == "success"
        assert reader.hears_nothing()


def test_logical_topics_are_told_apart_by_their_names(scene: Scene) -> None:
    """They have the permissions of what they are kept in, whose filter may ask for the name."""
    with (
        scene.server.log_on("publisher", user_id="root") as publisher,
        scene.server.log_on("reader", user_id="ann") as reader,
    ):
        header = {"c": "sow_and_subscribe", "cid": "1", "t": "^logical/named/", "a": "completed"}
        for before in (True, False):
            for name in ("b", "a"):
                publisher.publish(f"logical/named/{name}", b'{"id":%d}' % before)
            publisher.flush()
            if before:
                reader.send(header | {"o": "oof"})
                group = receive_group(reader)
                assert [one["t"] for one, _ in group.records] == ["logical/named/a"]
                assert reader.receive_header()["a"] == "completed"
        assert reader.receive()[0]["t"] == "logical/named/a"
        publisher.send({"c": "sow_delete", "t": "^logical/named/", "filter": "1=1"})
        frames = [reader.receive()[0] for _ in range(2)]
        assert {(one["c"], one["t"]) for one in frames} == {("oof", "logical/named/a")}
        assert reader.hears_nothing()


def test_nobody_is_told_how_many_records_there_are_for_others(scene: Scene) -> None:
    with scene.server.log_on("reader", user_id="ann") as reader:
        for options in ("", "top_n=1,skip_n=0", "projection=[/id],grouping=[/desk]"):
            command = "sow_and_subscribe" if "skip_n" in options else "sow"
            reader.send(
                {"c": command, "cid": options, "t": "limited/sow", "o": options, "a": "stats"}
            )
            while (header := reader.receive()[0])["c"] != "ack":
                pass
            seen = [one for one in scene.published("limited", "sow") if one["desk"] == "x"]
            assert header["topic_matches"] == len(seen)


def test_a_subscription_that_is_replaced_gets_nothing_of_a_closed_topic(scene: Scene) -> None:
    """The replacement succeeds, and is silent (AMPS User Guide, Replacing the Topic)."""
    with scene.server.log_on("reader", user_id="ann") as reader:
        header = {"c": "subscribe", "cid": "1", "sub_id": "1", "a": "processed"}
        assert reader.ask(header | {"t": "open/adhoc"})["status"] == "success"
        assert reader.ask(header | {"t": "closed/adhoc", "o": "replace"})["status"] == "success"
        scene.publish("closed", "adhoc")
        assert reader.hears_nothing()


@pytest.mark.parametrize("which", ["bm", "filter", "sow_keys", "one by one"])
def test_only_messages_that_may_be_seen_are_acknowledged(scene: Scene, which: str) -> None:
    """What a consumer may not read of a queue stays for others."""
    scene.publish("limited", "queue")
    there = scene.published("limited", "queue")
    left = [one for one in there if one["desk"] == "y"]
    subscription = {"c": "subscribe", "cid": "1", "t": "limited/queue", "o": "max_backlog=1000"}
    with scene.server.log_on("everyone", user_id="root") as consumer:
        consumer.send(subscription)
        headers = [consumer.receive()[0] for _ in there]
    header = {"c": "sow_delete", "cid": "2", "t": "limited/queue", "a": "stats"}
    if which == "filter":
        header[which] = "1=1"
    elif which == "sow_keys":
        header[which] = scene.keys("closed/into/limited")
    elif which == "bm":
        header[which] = ",".join(one["bm"] for one in headers)
    with scene.server.log_on("reader", user_id="ann") as reader:
        if which == "one by one":  # with a header that is recognized
            for one in headers:
                reader.send({"c": "sow_delete", "t": "limited/queue", "bm": one["bm"]})
            header |= {"bm": "1|1|"}
        ack = reader.ask(header)
        again = reader.ask(header)
    deleted = 0 if which == "one by one" else len(there) - len(left)
    assert ack["records_deleted"] == ack["topic_matches"] == deleted
    assert again["matches"] == again["records_deleted"] == 0, "they have left the queue"
    with scene.server.log_on("everyone", user_id="root") as consumer:
        consumer.send(subscription)
        assert _distinct(gather(consumer, left)) == left
    there[:] = left


def test_what_cannot_be_taken_apart_is_not_shown(scene: Scene) -> None:
    """Of a message that cannot be parsed nothing is left; binary messages are refused."""
    header = {"c": "subscribe", "cid": "1", "a": "processed", "o": "select=[+/id]"}
    with (
        scene.server.log_on("publisher", user_id="root") as publisher,
        scene.server.log_on("reader", user_id="ann") as reader,
    ):
        assert reader.ask(header | {"t": "masked/adhoc"})["status"] == "success"
        for body in (b"hush", b'"hush"', b'["hush"]', b'{"id":1} hush', b'{"id":1,"secret":"hush'):
            publisher.publish("masked/adhoc", body)
            assert reader.receive()[1] == b""
    with (
        scene.server.log_on("publisher", "binary", user_id="root") as publisher,
        scene.server.log_on("reader", "binary", user_id="ann") as reader,
    ):
        del header["o"]
        assert reader.ask(header | {"t": "masked/adhoc"})["reason"] == "not entitled"
        assert reader.ask(header | {"t": "^(masked|open)/adhoc$"})["status"] == "success"
        publisher.publish("masked/adhoc", b"hush")
        publisher.publish("open/adhoc", b"open")
        assert reader.receive()[1] == b"open"
        assert scene.server.logs("25-0020")


@pytest.mark.parametrize(("topic", "messages"), [("masked/adhoc", 1), ("open/adhoc", 2)])
def test_messages_are_not_told_apart_by_what_is_hidden(
    scene: Scene, topic: str, messages: int
) -> None:
    with (
        scene.server.log_on("publisher", user_id="root") as publisher,
        scene.server.log_on("reader", user_id="ann") as reader,
    ):
        reader.subscribe(topic, "1", o="conflation=100ms,conflation_key=[/secret]")
        with publisher.at_once():
            for number in range(2):
                publisher.publish(topic, b'{"id":%d,"secret":"%d"}' % (number, number))
        assert [json.loads(reader.receive()[1])["id"] for _ in range(messages)][-1] == 1
        assert reader.hears_nothing()


def test_groups_are_not_followed_of_what_changes_by_itself(scene: Scene) -> None:
    """A query of them sees what may be seen now."""
    with scene.server.log_on("reader", user_id="ann") as reader:
        header = {"t": "timed/sow", "o": GROUPS, "a": "processed"}
        follow = {"c": "sow_and_subscribe", "cid": "1", "sub_id": "1"}
        assert reader.ask(header | follow)["reason"] == "not entitled"
        assert reader.ask(header | {"c": "sow", "cid": "2"})["status"] == "success"


@pytest.mark.parametrize("topic", ["/AMPS/ClientStatus", "/AMPS/SOWStats", "closed/nothing"])
def test_other_topics_are_refused(scene: Scene, topic: str) -> None:
    with scene.server.log_on("reader", user_id="ann") as reader:
        for command in ("subscribe", "sow_and_subscribe", "sow"):
            header = {"c": command, "cid": command, "t": topic, "a": "processed"}
            assert reader.ask(header)["reason"] == "not entitled"


CLOSED: Final = (
    "closed/nothing",
    "closed/sow",
    "closed/past",
    "closed/view",
    "closed/conflated",
    "closed/queue",
    "closed/logged",
    "closed/into/open",
    "logical/closed/a",
)
"""Topics of all kinds that ann may not touch; the first one is not there."""


@pytest.mark.parametrize(
    "header",
    [
        {"c": "subscribe", "o": "oof"},
        {"c": "subscribe", "o": "pause", "bm": "0"},
        {"c": "subscribe", "o": "live,rate=10", "bm": "0"},
        {"c": "subscribe", "o": "conflation=1s"},
        {"c": "subscribe", "o": "max_backlog=3", "sub_id": "s"},
        {"c": "sow", "o": f"{GROUPS}"},
        {"c": "sow", "bm": "0"},
        {"c": "sow_and_subscribe", "bm": "0"},
        {"c": "sow_and_subscribe", "o": "top_n=2,skip_n=0"},
        {"c": "sow_and_subscribe", "o": f"{GROUPS},oof"},
        {"c": "sow_delete", "bm": "1|1|"},
        {"c": "sow_delete", "o": "cancel", "f": "1=1"},
        {"c": "sow_delete", "o": "redrive", "sow_keys": "1"},
        {"c": "ack", "bm": "1|1|"},
    ],
)
def test_a_refusal_does_not_tell_what_a_topic_is(scene: Scene, header: dict[str, Any]) -> None:
    """Whatever does not go with one, the command is not entitled."""
    with scene.server.log_on("reader", user_id="ann") as reader:
        for topic in CLOSED:
            answer = reader.ask(header | {"cid": "1", "t": topic, "a": "processed"})
            assert answer["reason"] == "not entitled", (topic, answer)
            action = "write to" if header["c"] == "sow_delete" else "read from"
            assert answer["detail"] == f"user 'ann' may not {action} topic {topic!r}"


@pytest.mark.parametrize("more", [{}, {"o": "oof"}, {"bm": "0"}, {"bm": "0", "o": "live"}])
def test_a_replacement_does_not_tell_what_a_topic_is(scene: Scene, more: dict[str, str]) -> None:
    """It is silent, whatever it asks for."""
    options = ",".join(filter(None, ("replace", more.get("o"))))
    with scene.server.log_on("reader", user_id="ann") as reader:
        reader.subscribe("open/sow", "s")
        for topic in CLOSED:
            header = {"c": "subscribe", "cid": "1", "sub_id": "s", "t": topic, "a": "processed"}
            answer = reader.ask(header | more | {"o": options})
            assert answer["status"] == "success", (topic, answer)


def test_a_rule_that_cannot_be_decided_refuses(scene: Scene) -> None:
    """What it may be there to refuse is not let through by those behind it; the log says so."""
    slow = "slow/" + "a" * 40 + "b"
    with (
        scene.server.log_on("reader", user_id="ann") as reader,
        scene.server.log_on("publisher", user_id="root") as publisher,
    ):
        for topic in ("slow/aaa", slow):
            for command in ("subscribe", "publish"):
                answer = reader.ask({"c": command, "cid": topic, "t": topic, "a": "processed"})
                assert answer["reason"] == "not entitled"
        reader.subscribe("^slow/", "s")
        for topic in (slow, "slow/b"):
            publisher.publish(topic, b"{}")
        header, _ = reader.receive()
        assert header["t"] == "slow/b"
    assert scene.server.logs("25-0021")


@pytest.mark.parametrize(
    "path", ["/amps.json", "/amps/instance/sow.json", "/metrics", "/console", "/amps/administrator"]
)
def test_the_admin_interface_shows_nothing(scene: Scene, path: str) -> None:
    assert ask(scene.admin, path, authorization=_basic("ann")).status == 403


@pytest.mark.parametrize(
    ("path", "suggested"),
    [
        ("/amps/instance/views/closed%2Fvie", "closed/view"),
        ("/amps/instance/views/closed%2Fvie?t0=20200101", ""),
        ("/amps/instance/sow/json.closed%2Fso", "closed/sow"),
        ("/amps/instance/view", "views"),
        ("/amps/instance?watch=view", "views"),
        ("/amps/instance/transports/no-such", ""),
        ("/amps/instance/clients/99999/subscriptions", ""),
        ("/amps/instance/nothing/like/this", ""),
    ],
)
def test_nobody_learns_what_is_there_from_what_is_not(
    scene: Scene, path: str, suggested: str
) -> None:
    """Whoever may see nothing is refused alike; others are not led to what is hidden from them."""
    everything = ask(scene.admin, path, authorization=_basic("root"))
    assert everything.status in (400, 404)
    assert suggested in everything.text.partition("did you mean")[2]
    nothing = ask(scene.admin, path, authorization=_basic("ann"))
    assert nothing.status == 403
    assert "did you mean" not in nothing.text
    some = ask(scene.admin, path, authorization=_basic("eve"))
    assert some.status in (400, 403, 404)
    assert not suggested or suggested not in some.text.partition("did you mean")[2]


def _instance(scene: Scene, path: str) -> Any:
    reply = ask(scene.admin, f"/amps/instance/{path}.json", authorization=_basic("root"))
    return reply.json["amps"]["instance"]


def test_it_is_explained_what_is_kept_from_a_client(scene: Scene) -> None:
    bound = LIMIT.replace("USER()", "'ann'").replace("CLIENT_NAME()", "'explained'")
    with scene.server.log_on("explained", user_id="ann") as reader:
        topics = ("limited/sow", "^masked/sow", "open/sow", "closed/sow", "^closed/s")
        for sub_id, topic in enumerate(topics):
            replaces = topic == "closed/sow"
            reader.subscribe("open/sow" if replaces else topic, str(sub_id))
            if replaces:
                reader.subscribe(topic, str(sub_id), o="replace")
        reader.ask({"c": "sow", "cid": "1", "t": "closed/sow", "a": "processed"})

        def client() -> dict[str, Any] | None:
            clients = _instance(scene, "clients")["clients"]
            return next((one for one in clients if one["client_name"] == "explained"), None)

        def filters() -> dict[str, str]:
            found = _instance(scene, "subscriptions")["subscriptions"]
            return {one["topic"]: one["entitlement_filter"] for one in found}

        wait_until(lambda: (found := client()) is not None and int(found["denied_reads"]) >= 2)
        wait_until(lambda: "closed/sow" in filters())
        assert filters()["limited/sow"] == bound
        assert filters()["^masked/sow"] == filters()["open/sow"] == ""
        found = client()
        assert found is not None
        explained = _instance(scene, f"clients/{found['id']}/explain")["clients"][0]["explain"]
    said = [one["says"] for one in explained["reasons"] if one["name"] == "entitlement"]
    assert len(said) == 4
    assert f"only messages that match {bound} (topic, entry 2: read is {LIMIT})" in said[0]
    assert any("only what -/secret leaves of them" in one for one in said)
    closed = "'closed/sow' its user may see nothing (no entry is about it)"
    assert sum(closed in one for one in said) == 2
