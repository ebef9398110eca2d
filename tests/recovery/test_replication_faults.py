"""Instances that replicate have all kinds of trouble at once; in the end each holds everything.

They are killed, also with the power, and stand still; lines are cut, in one direction or both, and
are slow; clocks are wrong. Publishers go from one instance to another meanwhile. When the trouble
is over, every instance has to hold what `Model` says, which is all that was ever published.

`--fault-runs 100` does it for longer, and AMPERAGE_SEED repeats a run.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.recovery.killing import chance_of
from tests.recovery.moving_publishers import TOPICS, Model, MovingPublisher, read_log
from tests.recovery.stable_storage import Watch, fail_power
from tests.replication.topologies import TOPOLOGIES, Topology
from tests.support.cluster import DOWNGRADE, ORDERS, Cluster, Instance, cluster
from tests.support.waiting import wait_until

TROUBLES: Final = 8
"""How often something happens in a run."""

RUN_IN_TESTS: Final = ("pair", "async", "hub", "chain", "ring", "mesh")


@dataclass(frozen=True)
class WrongClock:
    """Prepares a process: its clock is so many seconds ahead."""

    seconds: float

    def __call__(self) -> None:
        """Let this process believe that it is another time."""
        tell, tell_ns = time.time, time.time_ns
        time.time = lambda: tell() + self.seconds
        time.time_ns = lambda: tell_ns() + round(self.seconds * 1e9)


@dataclass(frozen=True)
class Prepared:
    """What is done with the process of an instance before it runs."""

    watch: Watch
    clock: WrongClock

    def __call__(self) -> None:
        """Prepare this process."""
        self.watch()
        self.clock()


@dataclass
class Trouble:
    """What goes wrong with the instances of a cluster.

    Attributes:
        cluster: whom it happens to.
        chance: decides what happens.
        happened: all of it, in words.
    """

    cluster: Cluster
    chance: random.Random
    happened: list[str] = field(default_factory=list)
    _frozen: set[str] = field(default_factory=set)

    def start(self, instance: Instance) -> None:
        """Start an instance; which time it is there is left to chance."""
        shadows = instance.directory / "shadows"
        shadows.mkdir(exist_ok=True)
        clock = WrongClock(self.chance.choice((0.0, 0.0, -3600.0, 86_400.0)))
        instance.start(Prepared(Watch(shadows, None), clock))

    def strike(self) -> None:
        """Let one thing happen."""
        kinds: list[Callable[[], str]] = [
            self._kill,
            self._kill,
            self._freeze,
            self._cut,
            self._part,
            self._hang_up,
            self._slow,
            self._mend,
            self._revive,
        ]
        self.happened.append(self.chance.choice(kinds)())

    def end(self) -> None:
        """Let everything be as it should."""
        self.cluster.network.heal()
        for instance in self.cluster:
            self._thaw(instance)
            if not instance.is_up:
                self.start(instance)

    def _kill(self) -> str:
        instance = self._any_instance()
        if not instance.is_up:
            return self._revive()
        self._frozen.discard(instance.name)
        instance.kill()
        if self.chance.random() < 0.5:
            return f"{instance.name} is killed"
        lost = fail_power(instance.directory, instance.directory / "shadows", self.chance)
        return f"{instance.name} has no power, and loses {lost} sectors"

    def _freeze(self) -> str:
        instance = self._any_instance()
        if not instance.is_up:
            return self._revive()
        if instance.name in self._frozen:
            self._thaw(instance)
            return f"{instance.name} goes on"
        self._frozen.add(instance.name)
        instance.freeze()
        return f"{instance.name} stands still"

    def _thaw(self, instance: Instance) -> None:
        if instance.name in self._frozen:
            self._frozen.discard(instance.name)
            instance.thaw()

    def _revive(self) -> str:
        down = [instance for instance in self.cluster if not instance.is_up]
        if not down:
            return "nothing happens"
        instance = self.chance.choice(down)
        self.start(instance)
        return f"{instance.name} comes back"

    def _cut(self) -> str:
        one, other = self._any_line()
        self.cluster.network.cut(one, other)
        return f"nothing gets from {one} to {other}"

    def _part(self) -> str:
        one, other = self._any_line()
        self.cluster.network.part(one, other)
        return f"{one} and {other} are cut off from each other"

    def _hang_up(self) -> str:
        one, other = self._any_line()
        self.cluster.network.hang_up(one, other)
        return f"the connections between {one} and {other} end"

    def _slow(self) -> str:
        one, other = self._any_line()
        delay, rate = self.chance.uniform(0.01, 0.3), self.chance.choice((None, 2e4, 1e6))
        self.cluster.network.slow(one, other, delay, rate)
        return f"it takes {delay:.2f} seconds from {one} to {other}, at {rate} bytes a second"

    def _mend(self) -> str:
        self.cluster.network.heal()
        return "all lines are good"

    def _any_instance(self) -> Instance:
        return self.chance.choice(list(self.cluster))

    def _any_line(self) -> tuple[str, str]:
        link = self.chance.choice(self.cluster.topology.links)
        ends = [link.source, link.destination]
        self.chance.shuffle(ends)
        return ends[0], ends[1]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """As many runs as are asked for; more than one also of the topologies that are left out."""
    runs = int(metafunc.config.getoption("--fault-runs"))
    if "topology" in metafunc.fixturenames:
        names = RUN_IN_TESTS if runs == 1 else tuple(TOPOLOGIES)
        metafunc.parametrize("topology", [TOPOLOGIES[name] for name in names], ids=names)
    if "number" in metafunc.fixturenames:
        metafunc.parametrize("number", range(runs))


def work_in_trouble(
    cluster: Cluster, chance: random.Random, *, keeps_order: bool
) -> tuple[Model, Trouble]:
    """Let publishers work while things go wrong, until all is well and everything is safe."""
    publishers = [
        MovingPublisher(
            f"publisher-{number}",
            [cluster[name] for name in homes],
            random.Random(chance.random()),
        )
        for number, homes in enumerate(cluster.topology.homes)
    ]
    trouble = Trouble(cluster, random.Random(chance.random()))
    for instance in cluster:
        trouble.start(instance)
    stop = threading.Event()
    threads = [threading.Thread(target=one.run, args=(stop,), daemon=True) for one in publishers]
    for thread in threads:
        thread.start()
    try:
        for _ in range(TROUBLES):
            time.sleep(chance.uniform(0.05, 0.6))
            trouble.strike()
        trouble.end()
    finally:
        print("\n".join(trouble.happened))
        stop.set()
    wait_until(
        lambda: all(one.is_safe or one.failures for one in publishers),
        lambda: f"not everything becomes safe: {[_progress(one) for one in publishers]}",
    )
    for thread in threads:
        thread.join()
    for one in publishers:
        for failure in one.failures:
            raise failure
    return Model(publishers, keeps_order), trouble


def check(cluster: Cluster, model: Model) -> None:
    """Wait until every instance has everything, and compare all of it."""
    for instance in cluster:
        wait_until(
            lambda: len(read_log(instance.server)) >= model.messages,  # noqa: B023 - called at once
            lambda: (
                f"{instance.name} has {len(read_log(instance.server))} of"  # noqa: B023 - likewise
                f" {model.messages} messages"
            ),
        )
        model.check(instance.name, instance.server)


def _progress(publisher: MovingPublisher) -> str:
    return f"{publisher.name}: {publisher.acknowledged} of {len(publisher.commands)}"


@pytest.mark.timeout(900)
def test_everything_gets_everywhere(tmp_path: Path, topology: Topology, number: int) -> None:
    """See above."""
    chance = chance_of(number)
    with cluster(tmp_path, topology, topics=TOPICS) as instances:
        model, trouble = work_in_trouble(instances, chance, keeps_order=topology.is_sync)
        check(instances, model)
        for instance in instances:
            instance.kill()
            trouble.start(instance)
            model.check(instance.name, instance.server)


@pytest.mark.timeout(900)
def test_nothing_is_lost_that_only_one_instance_had(tmp_path: Path, number: int) -> None:
    """Where nobody waits for an instance that is away, it gets what it has missed all the same."""
    elements = ORDERS + DOWNGRADE.format(every="200ms", age="400ms")
    chance = chance_of(number)
    with cluster(tmp_path, TOPOLOGIES["pair"], elements=elements, topics=TOPICS) as instances:
        model, _ = work_in_trouble(instances, chance, keeps_order=False)
        check(instances, model)
