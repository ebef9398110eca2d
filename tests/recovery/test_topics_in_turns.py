"""Topics that take turns are at an instance that gets them as they are where they come from.

Records, views, conflated topics, queues, deltas, and the order across topics.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import PAIR, Instance, cluster
from tests.support.queues import consume
from tests.support.raw import QUICK_ACKS, RawPeer
from tests.support.sow import query
from tests.support.waiting import wait_until

ELEMENTS = """
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>orders.sow</FileName>
  </Topic>
  <Topic>
    <Name>prices</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>prices.sow</FileName>
  </Topic>
  <Topic>
    <Name>desks</Name><MessageType>json</MessageType><Key>/id</Key><Pattern>^desk/</Pattern>
    <FileName>desks.sow</FileName>
  </Topic>
  <Topic>
    <Name>counted</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>counted.sow</FileName>
    <Enrichment><Field>COALESCE(/count OF PREVIOUS, 0) + 1 AS /count</Field></Enrichment>
  </Topic>
  <Topic>
    <Name>dated</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>dated.sow</FileName>
    <History><Window>1h</Window><Granularity>0s</Granularity></History>
  </Topic>
  <Topic>
    <Name>given</Name><MessageType>json</MessageType><FileName>given.sow</FileName>
  </Topic>
  <View>
    <Name>values</Name><MessageType>json</MessageType>
    <UnderlyingTopic>
      <Join>[json].[orders].[/id] = [json].[prices].[/id]</Join>
    </UnderlyingTopic>
    <Projection>
      <Field>[json].[orders].[/group] AS /group</Field>
      <Field>SUM([json].[orders].[/n] * [json].[prices].[/price]) AS /value</Field>
    </Projection>
    <Grouping><Field>[json].[orders].[/group]</Field></Grouping>
  </View>
  <ConflatedTopic>
    <Name>slow</Name><MessageType>json</MessageType><UnderlyingTopic>prices</UnderlyingTopic>
    <Interval>100ms</Interval>
  </ConflatedTopic>
  <LocalQueue>
    <Name>jobs</Name><MessageType>json</MessageType>
    <UnderlyingTopic>^(orders|notes)$</UnderlyingTopic>
    <DefaultPublishTarget>notes</DefaultPublishTarget>
    <MaxPerSubscriptionBacklog>10000</MaxPerSubscriptionBacklog>
  </LocalQueue>
</SOW>
"""

OTHERS = ("counted", "dated", "given")
RECORDS = ("orders", "prices", "^desk/", "values", "slow", *OTHERS)
ALL = "^(orders|prices|notes|desk/|counted|dated|given)"
Sent = tuple[dict[str, Any], dict[str, Any]]


def in_turns(first: int, last: int) -> Iterator[Sent]:
    """Headers and bodies of messages to topics that take turns; there are deltas and deletions."""
    for number in range(first, last + 1):
        key, header = number % 37, dict[str, Any](s=number)
        match number % 7:
            case 0 | 3:
                header |= {"c": "publish", "t": "orders"}
                body = {"id": key, "group": key % 5, "n": number}
            case 1:
                header |= {"c": "publish", "t": "prices"}
                body = {"id": key, "price": number % 11, "of": number}
            case 2:
                header |= {"c": "delta_publish", "t": "prices"}
                body = {"id": key, "price": number % 13}
            case 4:
                header |= {"c": "publish", "t": "notes", "x": "m" * (number % 3)}
                body = {"n": number}
            case 5:
                header |= {"c": "publish", "t": OTHERS[number // 7 % 3], "k": f"key {key}"}
                body = {"id": key, "n": number}
            case _:
                header |= {"c": "publish", "t": f"desk/{number % 4}", "e": "100000"}
                body = {"id": key, "n": number}
        yield header, body


def send(peer: RawPeer, first: int, last: int) -> None:
    """Publish in one go; now and then an order is deleted."""
    with peer.at_once():
        for header, body in in_turns(first, last):
            acks = {"a": "persisted"} if header["s"] == last else {}
            peer.send(header | acks, json.dumps(body).encode())
            if header["s"] % 100 == 0:
                peer.send({"c": "sow_delete", "t": "orders", "filter": "/id = 3"})


def take_ack(peer: RawPeer, last: int) -> None:
    """Wait until everything up to a number is acknowledged.

    A duplicate is refused once the message that it repeats is safe, so that a refusal is as good.
    """
    acknowledged = 0
    while acknowledged < last:
        ack = peer.receive_header()
        assert ack["status"] == "success" or ack["reason"] == "duplicate", ack
        acknowledged = ack.get("s", 0)


def records(instance: Instance) -> dict[str, list[tuple[str, str]]]:
    """What all topics with records have, each record with the topic that it was published to."""
    with instance.server.log_on("reader") as peer:
        return {
            topic: sorted((head["t"], body.decode()) for head, body in query(peer, topic).records)
            for topic in RECORDS
        }


def logged(instance: Instance) -> list[tuple[str, bytes, str]]:
    """All messages, in the order of the log: topic, body, correlation id."""
    found = []
    with instance.server.log_on("auditor") as peer:
        peer.send({"c": "subscribe", "sub_id": "a", "t": ALL, "bm": "0", "a": "completed"})
        while (received := peer.receive())[0]["c"] != "ack":
            head, body = received
            found.append((head["t"], body, head.get("x", "")))
    return found


def queued(instance: Instance, count: int) -> list[bytes]:
    """So many messages of the queue."""
    with instance.server.log_on("worker") as peer:
        consume(peer, "jobs", 10_000)
        return [peer.receive()[1] for _ in range(count)]


def listen(peer: RawPeer) -> None:
    """Subscribe to all topics, and to what changes in records."""
    peer.subscribe(ALL, "all")
    peer.send(
        {"c": "delta_subscribe", "cid": "d", "sub_id": "deltas", "t": "prices", "a": "processed"}
    )
    assert peer.receive_header()["status"] == "success"


def heard(peer: RawPeer, last: bytes) -> dict[str, list[tuple[str, bytes]]]:
    """What came of each subscription, up to the last message."""
    came: dict[str, list[tuple[str, bytes]]] = {"all": [], "deltas": []}
    while True:
        head, body = peer.receive()
        for sub_id in head["sids"].split(","):
            came[sub_id].append((head["t"], body))
        if body == last:
            return came


@pytest.mark.timeout(300)
def test_a_destination_has_what_its_source_has_whoever_dies(tmp_path: Path) -> None:
    with cluster(tmp_path, PAIR, elements=ELEMENTS, topics=ALL) as pair:
        one, other = pair
        pair.start()
        for round_, dies in enumerate((other, other, one)):
            first, last = 1_200 * round_ + 1, 1_200 * round_ + 1_200
            with one.server.log_on("p", o=QUICK_ACKS) as peer:
                send(peer, first, first + 599)
                take_ack(peer, first + 599)
                send(peer, first + 600, last)
                dies.kill()
                dies.start()
                if dies is other:
                    take_ack(peer, last)
            if dies is one:
                with one.server.log_on("p", o=QUICK_ACKS) as peer:
                    send(peer, first + 600, last)
                    take_ack(peer, last)
        wait_until(lambda: logged(other) == logged(one), lambda: "the logs stay different")
        wait_until(lambda: records(other) == records(one), lambda: (records(one), records(other)))
        count = sum(topic in ("orders", "notes") for topic, *_ in logged(one))
        assert queued(other, count) == queued(one, count)
        with one.server.log_on("near") as near, other.server.log_on("far") as far:
            for listener in (near, far):
                listen(listener)
            with one.server.log_on("p", o=QUICK_ACKS) as peer:
                send(peer, 3_601, 4_200)
                peer.publish("notes", b"the end", s=4_201)
                take_ack(peer, 4_200)
            assert heard(far, b"the end") == heard(near, b"the end")
        wait_until(lambda: records(other) == records(one), lambda: (records(one), records(other)))
