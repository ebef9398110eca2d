"""Peers that say anything, in any order: nobody else is harmed, and nothing is believed."""

from __future__ import annotations

import random

import msgspec
import pytest

from server.replication.core import (
    VERSION,
    Ack,
    BatchColumns,
    ConstantColumn,
    DedupState,
    HeartbeatFrame,
    Hello,
    HelloRefusal,
    OutboundFrame,
    PackedBatch,
    PositionRequest,
    PositionResponse,
    PublisherWindow,
    ReplicationBatch,
    SharedProperties,
    encode,
)
from server.storage.journal import JournalOrigin, JournalTopic
from server.storage.journal.format.layout import crc32c
from tests.replication.batches import packed, together
from tests.replication.links.support import (
    Instance,
    Network,
    OpenGate,
    Pipe,
    destination,
)
from tests.support.chances import examples

EDGES = (0, 1, 2, 999, 1000, 1001, 1010, 1 << 32, (1 << 63) - 1, (1 << 64) - 1)


class Liar:
    """Makes frames that can be read, and need make no sense.

    Args:
        seed: of what it says.
        description: what it says of itself.
    """

    def __init__(self, seed: int, description: bytes) -> None:
        self.random = random.Random(seed)
        self._description = description

    @property
    def number(self) -> int:
        choice = self.random.random()
        return self.random.choice(EDGES) if choice < 0.6 else self.random.randrange(990, 1020)

    def hello(self) -> Hello:
        return Hello(VERSION, "B", "B", "log", 1, description=self._description, nonce=5)

    def ack(self) -> Ack:
        lanes = [(self.number, self.number) for _ in range(self.random.randrange(3))]
        return Ack(self.number, lanes)

    def batch(self) -> PackedBatch:
        after, upto = sorted((self.number, self.number))
        return packed(
            ReplicationBatch(
                after, upto, together(*(self.run() for _ in range(self.random.randrange(3))))
            )
        )

    def run(self) -> BatchColumns:
        count = self.random.randrange(1, 4)
        data = [self.random.randbytes(self.random.randrange(20)) for _ in range(count)]
        path = self.random.choice(("", "A", "A@A,B", "C,D@E", "%", ",,@"))
        topic = self.random.choice((("json", "orders"), ("json", "other"), ("", "")))

        def column(*values: int) -> ConstantColumn:
            return ConstantColumn(self.random.choice(values or EDGES), count)

        return BatchColumns(
            [SharedProperties(JournalTopic(*topic), JournalOrigin("user", path))],
            ConstantColumn(0, count),
            column(),
            column(),
            column(),
            column(),
            column(1, 1, 1, 2, 3, 200),
            column(),
            column(),
            [crc32c(one) if self.random.random() < 0.9 else 0 for one in data],
            data,
        )

    def frame(self) -> OutboundFrame:
        """Anything."""
        had = [PublisherWindow(self.number, self.number, [(self.number, self.number)])]
        return self.random.choice(
            (
                self.hello(),
                HelloRefusal("no"),
                HeartbeatFrame(),
                PositionRequest("stream", self.number, self.number, "B!A", self.number),
                PositionResponse(self.random.choice((None, self.number)), self.ack()),
                DedupState(had, is_last=self.random.random() < 0.5),
                self.ack(),
                self.batch(),
            )
        )


@pytest.mark.long
@pytest.mark.parametrize("seed", range(examples(150, 16)))
def test_whatever_a_peer_says_others_go_on(seed: int) -> None:
    network = Network()
    other = destination("C", port=None, sync=False, excluded=["replicate"])
    a = network.instance("A", destination("B", port=None, excluded=["replicate"]), other)
    c = network.instance("C", destination("A", port=1, excluded=["replicate"]))
    network.connect(c, "A", a)
    network.settle()
    description = msgspec.msgpack.encode(Instance("B").description)
    liar = Liar(seed, description)
    for _ in range(5):
        near, far = Pipe("liar:1"), Pipe("A:1")
        near.other, far.other = far, near
        far.link = a.links.accept(far, "replication", OpenGate())
        network.pipes += [near, far]
        near.send(encode(liar.hello()))
        if liar.random.random() < 0.7:  # something that makes sense, to get further
            near.send(encode(PositionRequest("stream", 1, 0)) + encode(PositionResponse(None)))
            near.send(encode(DedupState([], is_last=True)))
        for _ in range(liar.random.randrange(1, 12)):
            near.send(encode(liar.frame()))
        network.settle()
        a.publish(1)
        network.settle()
    a.publish(3)
    network.settle()
    assert a.bodies()[-3:] == c.bodies()[-3:]
    network.pass_time(1)
    assert a.sender("C").stored_txid == a.entries.last_txid
