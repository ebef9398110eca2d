"""Instances, publishers and a network in one process, on a clock that is a heap of events.

Everything that happens follows from one seed. What fails in the world: processes die and come back
without the unsynced end of their log, entries of logs cannot be read for a while, disks are
replaced by empty ones, connections are cut while things are on their way, the network is cut in one
direction or both, an end of a connection is gone without the other one knowing. In every third
schedule, next to nothing is already too much to be told apart while it waits for other instances.
What is checked while that goes on, and at the end, is in `checks`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import Any

from server.replication.core.ack_order import MAX_ACK_UNITS
from tests.replication.basics import MILLISECOND, SECOND
from tests.replication.connection import Connection
from tests.replication.instance import Instance
from tests.replication.publisher import Publisher
from tests.replication.subscriber import Subscriber
from tests.replication.topologies import Topology

FEW_UNITS = 1


@dataclass
class Faults:
    """How often what happens, as weights."""

    kill: int = 4
    forget: int = 0
    replace_disk: int = 0
    cut: int = 4
    one_way: int = 3
    partition: int = 4
    half_open: int = 2
    stall: int = 1
    remove_journals: int = 0
    downgrade: int = 0
    damage: int = 0
    refuse: int = 0
    reload: int = 0


class World:
    """All there is.

    Args:
        seed: everything follows from it.
        topology: who replicates to whom.
        faults: what goes wrong how often.
        messages: that each publisher publishes.
        make: makes instances; mutants have their own way.
    """

    def __init__(
        self,
        seed: int,
        topology: Topology,
        faults: Faults | None = None,
        messages: int = 12,
        make: type[Instance] | None = None,
        trouble: int = 6,
    ) -> None:
        self.random = Random(seed)
        self.seed = seed
        self.topology = topology
        self.faults = faults or Faults()
        self.now = 0
        self.in_bytes = seed % 8 == 0
        self.most_units = FEW_UNITS if seed % 3 == 0 else MAX_ACK_UNITS
        self._events: list[tuple[int, int, Callable[[], object]]] = []
        self._count = 0
        self.blocked: set[tuple[str, str]] = set()
        self.connections: list[Connection] = []
        self.is_calm = False
        self.acked: dict[tuple[int, int], tuple[str, int]] = {}
        self.published: dict[tuple[int, int], bytes] = {}
        self.disk_losses: dict[str, int] = defaultdict(int)
        self.was_downgraded = False
        self.conflicts: set[tuple[int, int]] = set()
        self.journal: list[str] = []
        kind = make or Instance
        self.instances = {name: kind(self, name) for name in topology.instances}
        for instance in self.instances.values():
            instance.boot()
        self.publishers = [
            Publisher(self, f"publisher {number}", homes, messages)
            for number, homes in enumerate(topology.homes)
        ]
        self.subscribers: list[Subscriber] = []
        self.trouble = trouble

    # Time.

    def at(self, delay: int, then: Callable[[], object]) -> None:
        self._count += 1
        heappush(self._events, (self.now + delay, self._count, then))

    def run(self, until: Callable[[], bool], limit: int, steps: int = 60_000) -> bool:
        """Let things happen until something is true; false if time is over before."""
        end = self.now + limit
        while self._events and not until():
            if self._events[0][0] > end or steps <= 0:
                return False
            self.now, _, then = heappop(self._events)
            steps -= 1
            then()
        return until()

    def say(self, text: str) -> None:
        self.journal.append(f"{self.now / SECOND:9.4f} {text}")

    # The network.

    def can_reach(self, one: str, other: str) -> bool:
        return (one, other) not in self.blocked

    def find(self, one: str, other: str) -> Connection | None:
        for connection in self.connections:
            if connection.is_between(one, other) and not connection.is_over:
                return connection
        return None

    # What goes wrong.

    def start_trouble(self) -> None:
        for _ in range(self.trouble):
            self.at(self.random.randrange(0, 2 * SECOND), self._something)

    def _something(self) -> None:
        faults = vars(self.faults)
        kinds = [kind for kind, weight in faults.items() if weight]
        kind = self.random.choices(kinds, [faults[kind] for kind in kinds])[0]
        name = self.random.choice(self.topology.instances)
        other = self.random.choice(self.topology.instances)
        getattr(self, f"_{kind}")(name, other)

    def _kill(self, name: str, other: str) -> None:
        instance = self.instances[name]
        if instance.is_up:
            self.say(f"kill {name}")
            instance.die()
            self.at(self.random.randrange(5, 800) * MILLISECOND, instance.boot)

    def _forget(self, name: str, other: str) -> None:
        if self.instances[name].is_up:
            self._kill(name, other)
            self.instances[name].remembered = None

    def _replace_disk(self, name: str, other: str) -> None:
        instance = self.instances[name]
        others = [one for one in self.instances.values() if one is not instance]
        # Of what was acknowledged somewhere, another instance has to have it.
        if instance.is_up and all(one.is_whole for one in others) and self._is_covered(instance):
            self.say(f"new disk for {name}")
            self.disk_losses[name] += 1
            instance.die()
            instance.lose_disk()
            self.at(self.random.randrange(5, 800) * MILLISECOND, instance.boot)

    def _is_covered(self, instance: Instance) -> bool:
        others: set[Any] = set()
        for one in self.instances.values():
            if one is not instance:
                others |= one.on_disk()
        return instance.on_disk() <= others

    def _cut(self, name: str, other: str) -> None:
        for connection in self.connections:
            if connection.is_between(name, other):
                self.say(f"cut {name} {other}")
                connection.cut()

    def _one_way(self, name: str, other: str) -> None:
        self._block((name, other))

    def _partition(self, name: str, other: str) -> None:
        self._block((name, other), (other, name))

    def _block(self, *ways: tuple[str, str]) -> None:
        self.say(f"block {ways}")
        self.blocked.update(ways)
        duration = self.random.randrange(5, 1000) * MILLISECOND
        self.at(duration, lambda: self._unblock(*ways))

    def _unblock(self, *ways: tuple[str, str]) -> None:
        self.blocked.difference_update(ways)
        for connection in self.connections:
            connection.flow()

    def _half_open(self, name: str, other: str) -> None:
        connection = self.find(name, other)
        if connection is not None:
            self.say(f"half open {name} {other}")
            connection.close(name, tell=False)
            self.at(300 * MILLISECOND, lambda: connection.close(other, tell=False))

    def _stall(self, name: str, other: str) -> None:
        instance = self.instances[name]
        instance.room = self.random.randrange(0, 4)
        self.at(self.random.randrange(5, 400) * MILLISECOND, instance.unstall)

    def _refuse(self, name: str, other: str) -> None:
        """Messages of publishers find no room for a while; others, which are smaller, do."""
        instance = self.instances[name]
        self.say(f"{name} refuses some")
        instance.refuses = 0.5
        self.at(self.random.randrange(50, 1000) * MILLISECOND, partial(self._take, instance))

    def _take(self, instance: Instance) -> None:
        instance.refuses = 0.0

    def _remove_journals(self, name: str, other: str) -> None:
        self.instances[name].remove_journals()

    def _downgrade(self, name: str, other: str) -> None:
        instance = self.instances[name]
        if instance.is_up:
            for destination in sorted(instance.settlement.awaited_destinations):
                if self.random.random() < 0.5:
                    self.was_downgraded = True
                    instance.settlement.downgrade(destination)
                    again = instance.settlement
                    self.at(200 * MILLISECOND, partial(again.upgrade, destination))
            instance.wake()

    def _reload(self, name: str, other: str) -> None:
        instance = self.instances[name]
        if instance.is_up:
            self.say(f"other destinations for {name}")
            instance.change_destinations()

    def _damage(self, name: str, other: str) -> None:
        """Entries at the end of a log cannot be read for a while; some are given up meanwhile."""
        instance = self.instances[name]
        log = instance.log
        for txid in range(max(log.last_txid - 6, log.first_txid), log.last_txid + 4):
            if self.random.random() < 0.5:
                self.say(f"{name} cannot read {txid}")
                log.damaged[txid] = self.random.random() < 0.5
                delay = self.random.randrange(5, 900) * MILLISECOND
                self.at(delay, partial(instance.mend, log, txid))
                if not any(link.is_sync for link in self.topology.links):
                    self.at(delay // 2, partial(instance.give_up, txid))  # nobody waits for it

    def heal(self) -> None:
        """Let everything be well from now on."""
        self.is_calm = True
        self.blocked.clear()
        for connection in self.connections:
            connection.flow()
        for instance in self.instances.values():
            instance.unstall()
            self._take(instance)
            for txid in list(instance.log.damaged):
                instance.mend(instance.log, txid)
            if instance.is_up:
                for name in list(instance.settlement.downgraded_destinations):
                    instance.settlement.upgrade(name)
