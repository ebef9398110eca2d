"""Links under whatever may happen to connections: in the end everybody has everything, once."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from server.replication.links.link import HEARTBEAT_TIMEOUT_S
from tests.replication.links.support import Instance, Network, Pipe, destination
from tests.replication.memory import Log
from tests.support.chances import examples

STEPS = 150


class Trouble:
    """Two instances, and what happens to them.

    Args:
        seed: everything follows from it.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.network = Network()
        self.network.clock.work_per_look = 0.0
        self.a = self.network.instance("A", destination("B", port=2), listens=1)
        self.b = self.network.instance("B", destination("A", port=1), listens=2)
        self.strict = self.random.choice(("", "", "A", "B", "AB"))
        self.hurry = self.random.choice((0.0, 0.000_1, 0.002))
        for instance in (self.a, self.b):
            self._make_restless(instance)

    def _make_restless(self, instance: Instance) -> None:
        """Let time go by while an instance works, so that slices end anywhere."""
        clock = self.network.clock

        def elapsed() -> float:
            clock.worked += self.random.random() * self.hurry
            return clock.time + clock.worked

        instance.elapsed = elapsed

    @property
    def one(self) -> Instance:
        return self.random.choice((self.a, self.b))

    @property
    def pipe(self) -> Pipe | None:
        return self.random.choice(self.network.pipes) if self.network.pipes else None

    def step(self) -> None:
        """Something happens."""
        kinds = (
            (self.publish, 6),
            (self.commit, 6),
            (self.move, 20),
            (self.wait, 10),
            (self.connect, 2),
            (self.cut, 1),
            (self.lose, 1),
            (self.restart, 1),
            (self.stall, 1),
            (self.block, 2),
            (self.set_clock, 1),
        )
        self.random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]()

    def publish(self) -> None:
        instance = self.one
        instance.publish(self.random.randrange(1, 30), f"at {instance.name}")

    def commit(self) -> None:
        self.one.commit()

    def move(self) -> None:
        for pipe in list(self.network.pipes):
            pipe.arrive(self.random.choice((1, 30, 1000, 100_000)))

    def wait(self) -> None:
        self.network.clock.advance(self.random.choice((0.0, 0.001, 0.1, 1.0)))

    def set_clock(self) -> None:
        """The wall clock of all instances is set, forward or back."""
        self.network.clock.set_ahead(self.random.choice((0.0, -60.0, 3600.0, -86_400.0, 86_400.0)))

    def connect(self) -> None:
        for instance, other in self.random.sample([(self.a, self.b), (self.b, self.a)], 2):
            if not instance.links.is_connected(other.name):
                lack = "it is not encrypted" if other.name in self.strict else None
                self.network.connect(instance, other.name, other, falls_short=lack)
                return

    def cut(self) -> None:
        """A connection ends, and what was on its way is lost."""
        pipe = self.pipe
        if pipe is not None:
            self._forget(pipe)
            for end in (pipe, pipe.other):
                if end is not None and end.link is not None:
                    end.link.connection_lost()

    def lose(self) -> None:
        """A connection ends, and nobody is told, or one end."""
        pipe = self.pipe
        if pipe is not None:
            self._forget(pipe)
            if self.random.random() < 0.5 and pipe.link is not None:
                pipe.link.connection_lost()

    def _forget(self, pipe: Pipe) -> None:
        assert pipe.other is not None
        for end in (pipe, pipe.other):
            self.network.pipes.remove(end)

    def restart(self) -> None:
        """An instance ends and starts again; what it has said arrives nevertheless, or nothing."""
        old = self.one
        for pipe in self.network.pipes:
            if pipe.owner is old:
                pipe.link = None
                pipe.close()
        old.links.close()
        self.network.instances.remove(old)
        new = self.network.instance(
            old.name,
            *(one.spec for one in old.replication.destinations.values()),
            listens=1 if old is self.a else 2,
            nonce=old.replication.nonce + 1,
            log=old.entries,
        )
        self._make_restless(new)
        if old is self.a:
            self.a = new
        else:
            self.b = new

    def stall(self) -> None:
        instance = self.one
        instance.room = None if instance.room is not None else self.random.randrange(5)

    def block(self) -> None:
        pipe = self.pipe
        if pipe is not None:
            pipe.is_ready = not pipe.is_ready
            if pipe.is_ready and pipe.link is not None:
                pipe.link.resume_writing()

    def heal(self) -> None:
        """Let everything be well from now on."""
        self.a.room = self.b.room = None
        for pipe in self.network.pipes:
            pipe.is_ready = True
            if pipe.link is not None:
                pipe.link.resume_writing()
        for _ in range(40):
            self.connect()
            self.network.pass_time(1)
            if self.is_well:
                return

    @property
    def is_well(self) -> bool:
        """Whether each has what the other one has, and knows that, and they stay connected."""
        a, b = self.a, self.b
        return (
            contents(a.entries) == contents(b.entries)
            and all(one.replication.settled_txid == one.entries.last_txid for one in (a, b))
            and a.links.is_connected("B")
            and b.links.is_connected("A")
        )


def contents(log: Log) -> Counter[tuple[int, int]]:
    """The names of all messages."""
    return Counter((row[2], row[3]) for row in log.rows)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(examples(80)))
def test_in_the_end_both_have_everything(seed: int) -> None:
    trouble = Trouble(seed)
    for _ in range(STEPS):
        trouble.step()
    trouble.heal()
    a, b = trouble.a, trouble.b
    assert trouble.is_well
    assert set(contents(a.entries).values()) <= {1}
    trouble.network.pass_time(2 * HEARTBEAT_TIMEOUT_S)
    assert trouble.is_well
    assert a.logs("1E-0003") == b.logs("1E-0003") == [], "neither has broken the protocol"
    assert a.logs("1E-0001") == b.logs("1E-0001") == [], "nobody is taken for a copy"
