"""Messages that fill a disk or a journal soon, and what has become of them."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.support.raw import QUICK_ACKS, RawPeer
from tests.support.server import RunningServer

ELEMENTS: Final = """
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>{sow}/orders.sow</FileName><SlabSize>1MB</SlabSize>
  </Topic>
  <Topic>
    <Name>aside</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>{sow}/aside.sow</FileName><SlabSize>1MB</SlabSize>
  </Topic>
  <Topic>
    <Name>quotes</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>{journal}</JournalDirectory>
  <JournalSize>10MB</JournalSize>
  <Topic><Name>^(orders|events)$</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


SIZE: Final = 100_000
MOST: Final = 1_000
"""Messages after which every disk here is full."""


class Publisher:
    """Publishes large messages, each answered before the next is sent.

    Args:
        peer: its connection.
        topic: where.
        first: the first sequence number.

    Attributes:
        size: about how many bytes a message has.
        safe: the numbers of the messages that have been stored.
    """

    def __init__(self, peer: RawPeer, topic: str, first: int = 1) -> None:
        self.peer = peer
        self.topic = topic
        self.sequence = first
        self.size = SIZE
        self.safe: list[int] = []

    def publish(self, key: int | None = None) -> dict[str, Any]:
        """Publish once; gives the persisted ack."""
        number = self.sequence
        body = {"id": number if key is None else key, "n": number, "pad": "x" * self.size}
        header = {"c": "publish", "t": self.topic, "s": number, "a": "persisted"}
        ack = self.peer.ask(header, json.dumps(body).encode())
        assert (ack["a"], ack["s"]) == ("persisted", number), ack
        self.sequence += 1
        if ack["status"] == "success":
            self.safe.append(number)
        return ack

    def until_refused(self) -> dict[str, Any]:
        """Publish until that fails; gives the failure."""
        for _ in range(MOST):
            if (ack := self.publish())["status"] == "failure":
                return ack
        raise AssertionError("the disk does not become full")


def log_on(server: RunningServer, name: str = "publisher") -> RawPeer:
    """A publisher's connection, whose acks come at once."""
    return server.log_on(name, o=QUICK_ACKS)


def replay(server: RunningServer, topic: str) -> list[int]:
    """The numbers of the messages in the log."""
    with server.log_on("reader") as peer:
        peer.send({"c": "subscribe", "sub_id": "r", "t": topic, "bm": "0", "a": "completed"})
        numbers: list[int] = []
        while (answer := peer.receive())[0]["c"] != "ack":
            numbers.append(json.loads(answer[1])["n"])
        return numbers
