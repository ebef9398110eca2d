"""Publishes to many topics, sent together, mean what they mean one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.chances import examples
from tests.support.long_form import spread
from tests.support.raw import RawPeer, frame
from tests.support.server import RunningServer, module_server

ELEMENTS: Final = """
<SOW>
  <Topic>
    <Name>mixed/records</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>mixed/kept</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>kept.sow</FileName><Expiration>1h</Expiration>
  </Topic>
  <Topic>
    <Name>mixed/given</Name><MessageType>json</MessageType><FileName>given.sow</FileName>
  </Topic>
  <Topic>
    <Name>mixed/counted</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>counted.sow</FileName>
    <Enrichment>
      <Field>COALESCE(/count OF PREVIOUS, 0) + 1 AS /count</Field>
      <Field>CONCAT(SUBSTR(CLIENT_NAME(), 1, 9), TOPIC_NAME(), SOW_KEY()) AS /names</Field>
      <Field>CORRELATION_ID() AS /mark HINT OPTIONAL</Field>
    </Enrichment>
  </Topic>
  <Topic>
    <Name>mixed/renamed</Name><MessageType>json</MessageType><Key>/own</Key>
    <FileName>renamed.sow</FileName>
    <Preprocessing><Field>/id % 2 AS /own</Field></Preprocessing>
    <Enrichment><Field>/n + 1 AS /next</Field></Enrichment>
  </Topic>
  <Topic>
    <Name>mixed/dated</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>dated.sow</FileName>
    <History><Window>1h</Window><Granularity>0s</Granularity></History>
  </Topic>
  <Topic>
    <Name>patterns</Name><MessageType>json</MessageType><Key>/id</Key>
    <Pattern>^mixed/pattern</Pattern><FileName>pattern.sow</FileName>
  </Topic>
  <Topic>
    <Name>stored/a</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>stored/b</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>stored/c</Name><MessageType>json</MessageType><Key>/id</Key><FileName>c.sow</FileName>
  </Topic>
  <Topic>
    <Name>stored/d</Name><MessageType>json</MessageType><Key>/id</Key><FileName>d.sow</FileName>
  </Topic>
  <Topic>
    <Name>unlogged</Name><MessageType>json</MessageType><Key>/id</Key>
    <Pattern>^stored/pattern</Pattern><FileName>unlogged.sow</FileName>
  </Topic>
  <Topic>
    <Name>stored/counted</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>stored-counted.sow</FileName>
    <Enrichment><Field>COALESCE(/count OF PREVIOUS, 0) + 1 AS /count</Field></Enrichment>
  </Topic>
  <Topic>
    <Name>stored/given</Name><MessageType>json</MessageType><FileName>stored-given.sow</FileName>
  </Topic>
  <Topic>
    <Name>stored/dated</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>stored-dated.sow</FileName>
    <History><Window>1h</Window><Granularity>0s</Granularity></History>
  </Topic>
  <Queue>
    <Name>jobs</Name><MessageType>json</MessageType><UnderlyingTopic>mixed/jobs</UnderlyingTopic>
  </Queue>
  <Queue>
    <Name>several</Name><MessageType>json</MessageType>
    <UnderlyingTopic>^mixed/(b|jobs|records)$</UnderlyingTopic>
    <DefaultPublishTarget>mixed/b</DefaultPublishTarget>
  </Queue>
  <Queue><Name>own</Name><MessageType>json</MessageType></Queue>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>^mixed/</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>patterns</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>own</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
server = module_server(ELEMENTS)

LOGGED_RECORDS: Final = (
    "mixed/records",
    "mixed/kept",
    "mixed/given",
    "mixed/pattern1",
    "mixed/pattern2",
    "mixed/pattern3",
    "mixed/counted",
    "mixed/renamed",
    "mixed/dated",
)
STORED: Final = (
    "stored/a",
    "stored/b",
    "stored/c",
    "stored/d",
    "stored/pattern1",
    "stored/pattern2",
    "stored/counted",
    "stored/given",
    "stored/dated",
)
RECORDS: Final = (*LOGGED_RECORDS, *STORED)
LOGGED: Final = ("mixed/a", "mixed/b", "mixed/c", *LOGGED_RECORDS, "mixed/jobs", "own", "several")
QUEUES: Final = ("jobs", "several", "own")
OTHERS: Final = (("plain/x", "plain/y"), STORED, STORED[:2], STORED[2:], ("plain/x", *STORED))
"""Topics that are not in the log."""
HEARD: Final = (
    "^(mixed|plain|stored)/",
    "^(mixed|plain)/",
    "^(mixed/kept|plain/x)$",
    "^(mixed/[ab]|plain/x)$",
    "^(stored/a|plain/x)$",
    "^(mixed/pattern2|plain/x)$",
    "plain/x",
)
"""Topics of a subscription."""
ACKS: Final = ("", "persisted", "processed,persisted", "processed", "completed,processed", "mixed")
"""The acks of all messages; `mixed` stands for others from one to the next."""
runs: Final = count()


class Publish(NamedTuple):
    """A message to publish.

    Attributes:
        topic: where to.
        sequence: its number; 0 for none.
        correlation_id: its correlation id, empty for none.
        sow_key: its SOW key, empty for none.
        lifetime: in seconds, 0 for none.
        is_delta: whether the message has only the fields that change.
        deletes: whether it deletes the record that it would replace otherwise.
        is_turned: whether the keys of its header are in the reverse order.
        command_id: its command id, empty for none.
    """

    topic: str
    sequence: int
    correlation_id: str
    sow_key: str
    lifetime: int
    is_delta: bool
    deletes: bool
    is_turned: bool
    command_id: str

    def frame(self, acks: str, body: bytes) -> bytes:
        """Return its bytes. Without a number, an ack that it is persisted would be apart."""
        command = "delta_publish" if self.is_delta else "publish"
        if self.deletes:
            command, acks = "sow_delete", f"{acks},stats" if acks else acks
        header: dict[str, Any] = {"c": command, "t": self.topic}
        if self.correlation_id:
            header["x"] = self.correlation_id
        if self.sow_key:
            header["k"] = self.sow_key
        if self.lifetime:
            header["e"] = self.lifetime
        if self.sequence:
            header["s"] = self.sequence
        if self.command_id:
            header["cid"] = self.command_id
        if acks and (self.sequence or "persisted" not in acks):
            header["a"] = acks
        keys = reversed(header) if self.is_turned else header
        return frame({key: header[key] for key in keys}, body)


@st.composite
def publishes(draw: st.DrawFn, some: Sequence[str] = ()) -> list[Publish]:
    """Many messages to a few topics, or to some; a few have numbers that have come before."""
    topics = some
    if not topics:
        logged = draw(st.lists(st.sampled_from(LOGGED), max_size=4, unique=True))
        topics = [*logged, *draw(st.sampled_from([(), *OTHERS]))] or ["plain/x", "plain/y"]
    steps = [1, 1, 1, 1, 1, 1, 2, 7, 0, -3] if draw(st.booleans()) else [1, 2]
    is_numbered, sequence = draw(st.booleans()), 0
    rare, usual = st.just(()), st.sampled_from([(), (), (), (1,), (1, 2, 3)])
    metadata = draw(st.sampled_from([rare, usual]))  # the values that a header has
    deltas = draw(st.sampled_from([st.just(False), st.booleans(), st.just(True)]))
    deletions = draw(st.sampled_from([st.just(False), st.integers(0, 4).map(lambda n: n == 0)]))
    has_ids = draw(st.sampled_from([st.just(False), st.booleans(), st.just(True)]))
    made: list[Publish] = []
    for number in range(draw(st.integers(10, 60))):
        sequence = max(sequence + draw(st.sampled_from(steps)), 1)
        values = draw(metadata)
        mark = f"m{number}" if 1 in values else "m" if draw(st.integers(0, 19)) == 7 else ""
        topic = draw(st.sampled_from(topics))
        made.append(
            Publish(
                topic,
                sequence if is_numbered else 0,
                mark,
                draw(st.sampled_from(["7", "key", "a, b"])) if 2 in values else "",
                3600 if 3 in values else 0,
                draw(deltas),
                topic in RECORDS and draw(deletions),
                draw(st.sampled_from([False, False, True])),
                f"id {number}" if draw(has_ids) else "",
            )
        )
    return made


Message = tuple[str, dict[str, Any], str, str]
"""Topic, body without the name of the run, correlation id, SOW key."""


class Outcome(NamedTuple):
    """What publisher and subscribers have seen.

    Attributes:
        processed: the `processed`, `completed` and `stats` acks that are successes.
        refused: those that are failures. The failures of a batch are sent before its successes, as
            for a batch to one topic.
        failed: the numbers with a `persisted` ack that is a failure.
        persisted: the last number persisted.
        delivered: the messages of a subscription to some or all topics.
        selected: those of a subscription with a filter to one of them.
        logged: those of the log.
        records: the bodies of the records.
        queued: those of the messages in queues, in their order.
    """

    processed: list[dict[str, Any]]
    refused: list[dict[str, Any]]
    failed: list[int]
    persisted: int
    delivered: list[Message]
    selected: list[Message]
    logged: list[Message]
    records: list[Any]
    queued: list[Any]


def play(
    server: RunningServer,
    made: list[Publish],
    acks: str,
    heard: str,
    *,
    at_once: bool,
    bookmarks: bool,
) -> Outcome:
    """Publish messages, all in one write or each when the one before is done with."""
    run = f"run{next(runs)}"
    delete_records(server)  # deltas would be merged into those of the run before
    bodies = [
        json.dumps({"id": number % 5, "n": number, f"n{number % 3}": number, "run": run}).encode()
        for number in range(len(made))
    ]
    each = [ACKS[number % 5] if acks == "mixed" else acks for number in range(len(made))]
    frames = [one.frame(ack, body) for one, ack, body in zip(made, each, bodies, strict=True)]
    flush = frame({"c": "flush", "cid": "flush", "a": "completed"})
    batches = [b"".join(frames) + flush] if at_once else [one + flush for one in frames]
    numbers = [one.sequence for one in made]
    expected = max(numbers, default=0) if any("persisted" in one for one in each) else 0
    answers: list[dict[str, Any]] = []
    options = {"o": "bookmark"} if bookmarks else {}
    with (
        server.log_on(f"all-{run}") as everything,
        server.log_on(f"some-{run}") as some,
        server.connect() as peer,
    ):
        everything.subscribe(heard, "s", **({"f": f"/run = '{run}'"} if bookmarks else {}))
        some.subscribe("mixed/b", "f", f=f"/id > 2 AND /run = '{run}'", **options)
        peer.log_on(f"publisher-{run}", o="ack_conflation=1ms")
        for batch in batches:
            peer.socket.sendall(batch)
            while (answer := peer.receive_header()).get("cid") != "flush":
                answers.append(answer)
        end = json.dumps({"id": 9, "run": run}).encode()
        last = {"s": expected + 1, "a": "persisted"} if expected else {}
        peer.send({"c": "publish", "t": "mixed/b"} | last, end)
        peer.publish("plain/x", end)
        while persisted(answers) <= expected and expected:  # all failures come before the last ack
            answers.append(peer.receive_header())
        prompt = [one for one in answers if one["a"] != "persisted"]
        return Outcome(
            [one for one in prompt if one["status"] == "success"],
            [one for one in prompt if one["status"] == "failure"],
            [one["s"] for one in answers if one["a"] == "persisted" and one["status"] == "failure"],
            persisted(answers),
            read(everything, "plain/x"),
            read(some, "mixed/b"),
            logged(server, run),
            bodies_of(server, run, RECORDS, orderby="/id,/n"),
            bodies_of(server, run, QUEUES),
        )


def delete_records(server: RunningServer) -> None:
    """Delete the records of all topics."""
    with server.log_on("cleaner") as peer:
        for topic in RECORDS:
            peer.send({"c": "sow_delete", "t": topic, "cid": topic, "f": "1=1", "a": "completed"})
        for _ in RECORDS:
            assert peer.receive_header()["status"] == "success"


def persisted(answers: list[dict[str, Any]]) -> int:
    """Return the last number persisted."""
    return max(
        (one["s"] for one in answers if (one["a"], one["status"]) == ("persisted", "success")),
        default=0,
    )


def read(peer: RawPeer, last_topic: str) -> list[Message]:
    """Receive the messages of a run, up to the one that ends it."""
    found: list[Message] = []
    while True:
        header, data = peer.receive()
        body = json.loads(data)
        del body["run"]
        if "n" in body:
            found.append((header["t"], body, header.get("x", ""), header.get("k", "")))
        elif header["t"] == last_topic:
            return found


def logged(server: RunningServer, run: str) -> list[Message]:
    """Return the messages that the log has of a run."""
    with server.log_on(f"reader-{run}") as peer:
        peer.send(
            {"c": "subscribe", "sub_id": "r", "t": "^mixed/[^j]", "bm": "0"}
            | {"f": f"/run = '{run}'"}
        )
        return read(peer, "mixed/b")


def bodies_of(server: RunningServer, run: str, topics: Sequence[str], **options: str) -> list[Any]:
    """Return the bodies of records, or of messages in queues, of a run, without its name."""
    found = []
    with server.log_on(f"query-{run}") as peer:
        for topic in topics:
            query = {"c": "sow", "t": topic, "cid": "q", "f": f"/run = '{run}'", "bs": 1}
            peer.send(query | options)
            while (received := peer.receive())[0]["c"] != "group_end":
                if received[0]["c"] == "sow":
                    found.append({**json.loads(received[1].partition(b"}")[2]), "run": topic})
    return found


@settings(max_examples=examples(300), deadline=None)
@given(publishes(), st.sampled_from(ACKS), st.sampled_from(HEARD), st.booleans())
def test_messages_sent_together_mean_what_they_mean_one_by_one(
    server: RunningServer, made: list[Publish], acks: str, heard: str, bookmarks: bool
) -> None:
    """Deliveries in their order, the log, records, acks and refusals, whatever topics there are."""
    together = play(server, made, acks, heard, at_once=True, bookmarks=bookmarks)
    assert together == play(server, made, acks, heard, at_once=False, bookmarks=bookmarks)


TOGETHER: Final = (
    ("mixed/a", "mixed/b", "plain/x", "plain/y"),
    ("mixed/a", "mixed/kept", "mixed/records", "plain/x", "stored/a"),
    ("mixed/records", "plain/x", "stored/a", "stored/b"),
    ("mixed/jobs", "own", "stored/c", "stored/d", "plain/x"),
    ("mixed/pattern1", "mixed/pattern2", "mixed/pattern3", "mixed/kept", "plain/x"),
    ("mixed/counted", "mixed/renamed", "mixed/dated", "mixed/given", "stored/counted"),
    ("mixed/given", "mixed/a", "mixed/pattern1", "stored/given", "stored/dated"),
)


@pytest.mark.parametrize(
    ("heard", "topics"),
    spread([(heard, topics) for heard in HEARD[:2] for topics in TOGETHER], 7, several=True),
)
@settings(max_examples=examples(100, 4), deadline=None)
@given(st.data(), st.sampled_from(ACKS))
def test_topics_of_all_kinds_share_batches(
    server: RunningServer, topics: tuple[str, ...], heard: str, data: st.DataObject, acks: str
) -> None:
    """In the log or not, with records or without, with queues."""
    made = data.draw(publishes(topics))
    together = play(server, made, acks, heard, at_once=True, bookmarks=False)
    assert together == play(server, made, acks, heard, at_once=False, bookmarks=False)


@pytest.mark.parametrize("heard", ["plain/x", "^(stored/a|mixed/records|plain/x)$"])
@pytest.mark.parametrize("topics", [STORED[:2], STORED[2:], LOGGED_RECORDS[:2], LOGGED[:2]])
def test_headers_of_one_topic_may_have_their_keys_in_any_order(
    server: RunningServer, topics: tuple[str, ...], heard: str
) -> None:
    """Messages of a topic keep their order, though their headers differ."""
    made = [
        Publish(topics[n % 2], 0, "", "", 0, False, False, n // 2 % 2 == 0, "") for n in range(80)
    ]
    together = play(server, made, "", heard, at_once=True, bookmarks=False)
    assert together == play(server, made, "", heard, at_once=False, bookmarks=False)


@pytest.mark.parametrize("delta", [b"[]", b"null", b"", b'{"v":1}'])
@pytest.mark.parametrize("stored", [b"", b"null", b"5", b'{"v":0}'])
def test_a_delta_among_many_means_what_it_means_alone(
    server: RunningServer, stored: bytes, delta: bytes
) -> None:
    """It is merged, or refused, whatever the record is; without a key both are for one record."""
    messages = [("publish", b'{"id":9}'), ("delta_publish", b'{"id":9,"w":1}')] * 20
    messages += [("publish", stored), ("delta_publish", delta), ("delta_publish", b'{"id":9}')]
    outcomes = []
    for at_once in (True, False):
        delete_records(server)
        with server.log_on(f"deltas-{next(runs)}") as peer:
            frames = [
                frame({"c": command, "t": "mixed/kept", "s": number, "a": "processed"}, body)
                for number, (command, body) in enumerate(messages, 1)
            ]
            acks = []
            for data in [b"".join(frames)] if at_once else frames:
                peer.socket.sendall(data)
                acks += [peer.receive_header() for _ in range(len(frames) if at_once else 1)]
            peer.send({"c": "sow", "t": "mixed/kept", "cid": "q", "bs": 1})
            records = []
            while (received := peer.receive())[0]["c"] != "group_end":
                records.append(received[1].partition(b"}")[2])
            found = sorted((ack["s"], ack["status"], ack.get("reason", "")) for ack in acks)
            outcomes.append((found, sorted(records)))
    assert outcomes[0] == outcomes[1]
