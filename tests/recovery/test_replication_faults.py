"""Instances that replicate have all kinds of trouble at once; in the end each holds everything.

They are killed, also with the power, and stand still; their disks are full; lines are cut, in one
direction or both, and are slow; clocks are wrong. Publishers go from one instance to another
meanwhile. When the trouble is over, every instance has to hold what `Model` says, which is all that
was ever published, but for what was refused for want of space.

`make test-long` does it again and again, in all topologies; AMPERAGE_SEED repeats a run.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.recovery.moving_publishers import (
    SIZES,
    TOPICS,
    Logged,
    Model,
    MovingPublisher,
    read_log,
)
from tests.recovery.stable_storage import Watch, fail_power
from tests.replication.topologies import TOPOLOGIES, Topology
from tests.support.chances import chance_of
from tests.support.clocks import WallClock
from tests.support.cluster import DOWNGRADE, ORDERS, Cluster, Instance, cluster
from tests.support.server import ServerEnded
from tests.support.small_disk import SmallDisk, small_disk
from tests.support.waiting import wait_until

TROUBLES: Final = 8
"""How often something happens in a run."""

USUAL: Final = ("mesh",)
"""Topologies of usual runs: one asynchronous, one that passes messages on, one with two ways."""

_MEGABYTES: Final = 120
"""Size of a disk: what all publishers publish together is less, with the journals in advance."""

_RECORDS: Final = ORDERS.replace("orders.sow", "journal/orders.sow")
"""Records that are on the same disk as the journals."""

_LARGE: Final = (300, 3000, 40_000, 200_000)
"""Sizes of messages of which it takes few to fill a journal."""


@dataclass(frozen=True)
class Prepared:
    """What is done with the process of an instance before it runs."""

    disk: SmallDisk | None
    watch: Watch
    clock: WallClock

    def __call__(self) -> None:
        """Prepare this process."""
        if self.disk is not None:
            self.disk()
        self.watch()
        self.clock()


@dataclass
class Trouble:
    """What goes wrong with the instances of a cluster.

    Attributes:
        cluster: whom it happens to.
        chance: decides what happens.
        disks: where instances have their journals and records, by name; others' are never full.
        happened: all of it, in words.
        spells: by name of an instance, how often its disk became full or got space again.
    """

    cluster: Cluster
    chance: random.Random
    disks: Mapping[str, SmallDisk] = field(default_factory=dict)
    happened: list[str] = field(default_factory=list)
    spells: dict[str, int] = field(default_factory=dict)
    _frozen: set[str] = field(default_factory=set)
    _full: set[str] = field(default_factory=set)

    def start(self, instance: Instance) -> None:
        """Start an instance; which time it is there is left to chance.

        Should it need space for that which it has not got, it gets some.
        """
        shadows = instance.directory / "shadows"
        shadows.mkdir(exist_ok=True)
        clock = self._clock(instance)
        clock.set(self.chance.choice((0.0, 0.0, -3600.0, 86_400.0)))
        prepared = Prepared(self.disks.get(instance.name), Watch(shadows, None), clock)
        try:
            instance.start(prepared)
        except ServerEnded:
            if instance.name not in self._full:
                raise
            assert "No space left on device" in instance.server.log()
            instance.kill()
            self._make_space(instance)
            instance.start(prepared)

    def strike(self) -> None:
        """Let one thing happen."""
        kinds: list[Callable[[], str]] = [
            self._kill,
            self._kill,
            self._freeze,
            self._set_clock,
            self._cut,
            self._part,
            self._hang_up,
            self._slow,
            self._mend,
            self._revive,
        ]
        if self.disks:
            kinds += [self._fill, self._fill]
        self.happened.append(self.chance.choice(kinds)())

    def end(self) -> None:
        """Let everything be as it should."""
        self.cluster.network.heal()
        for instance in self.cluster:
            self._make_space(instance)
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
        disk = self.disks.get(instance.name)
        directory = instance.directory if disk is None else disk.root.parent
        lost = fail_power(directory, instance.directory / "shadows", self.chance)
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

    def _clock(self, instance: Instance) -> WallClock:
        return WallClock(instance.directory / "clock")

    def _set_clock(self) -> str:
        instance = self._any_instance()
        ahead = self.chance.choice((0.0, -60.0, 3600.0, -86_400.0, 86_400.0))
        self._clock(instance).set(ahead)
        return f"the clock of {instance.name} is set {ahead:.0f} seconds ahead"

    def _thaw(self, instance: Instance) -> None:
        if instance.name in self._frozen:
            self._frozen.discard(instance.name)
            instance.thaw()

    def _fill(self) -> str:
        instance = self._any_instance()
        if instance.name in self._full:
            self._make_space(instance)
            return f"{instance.name} has space again"
        self._full.add(instance.name)
        self._turn_over(instance)
        self.disks[instance.name].fill()
        return f"the disk of {instance.name} is full"

    def _make_space(self, instance: Instance) -> None:
        if instance.name in self._full:
            self._full.discard(instance.name)
            self.disks[instance.name].make_space()
            self._turn_over(instance)

    def _turn_over(self, instance: Instance) -> None:
        self.spells[instance.name] = self.spells.get(instance.name, 0) + 1

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
    """Long runs are in all topologies."""
    if "topology" in metafunc.fixturenames:
        names = tuple(TOPOLOGIES) if metafunc.config.getoption("--long") else USUAL
        metafunc.parametrize("topology", [TOPOLOGIES[name] for name in names], ids=names)


@contextmanager
def small_disks(instances: Cluster) -> Iterator[dict[str, SmallDisk]]:
    """Disks for the journals and the records of all instances, which are gone in the end."""
    with ExitStack() as stack:
        disks = {}
        for instance in instances:
            place = instance.directory / "journal"
            place.mkdir()
            disks[instance.name] = stack.enter_context(small_disk(place, _MEGABYTES))
        yield disks


def work_in_trouble(
    cluster: Cluster, disks: Mapping[str, SmallDisk], chance: random.Random, *, keeps_order: bool
) -> tuple[Model, Trouble]:
    """Let publishers work while things go wrong, until all is well and everything is safe."""
    trouble = Trouble(cluster, random.Random(chance.random()), disks)
    publishers = [
        MovingPublisher(
            f"publisher-{number}",
            [cluster[name] for name in homes],
            random.Random(chance.random()),
            chance.choice((SIZES, _LARGE, _LARGE)),
            is_refused=True,
            spells=trouble.spells,
        )
        for number, homes in enumerate(cluster.topology.homes)
    ]
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
        print(f"{one.name}: {one.refused} refusals, {len(one.passed_over)} commands passed over")
        for failure in one.failures:
            raise failure
    return Model(publishers, keeps_order), trouble


def check(cluster: Cluster, model: Model) -> None:
    """Wait until every instance has everything, and compare all of it."""

    def logs() -> dict[str, list[Logged]]:
        return {instance.name: read_log(instance.server) for instance in cluster}

    def are_whole() -> bool:
        found = logs()
        bookmarks = [{one.bookmark for one in log} for log in found.values()]
        return all(one == bookmarks[0] for one in bookmarks) and not any(
            map(model.missing, found.values())
        )

    def lacking() -> str:
        lines = (
            f"{name} has {len(one)}, lacks {model.missing(one)}" for name, one in logs().items()
        )
        return "\n".join(lines)

    wait_until(are_whole, lacking)
    for instance in cluster:
        model.check(instance.name, instance.server)


def _progress(publisher: MovingPublisher) -> str:
    return f"{publisher.name}: {publisher.acknowledged} of {len(publisher.commands)}"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_everything_gets_everywhere(tmp_path: Path, topology: Topology) -> None:
    """See above."""
    chance = chance_of(topology.name)
    with (
        cluster(tmp_path, topology, elements=_RECORDS, topics=TOPICS, preallocated=1) as instances,
        small_disks(instances) as disks,
    ):
        model, trouble = work_in_trouble(instances, disks, chance, keeps_order=topology.is_sync)
        check(instances, model)
        for instance in instances:
            instance.kill()
            trouble.start(instance)
            model.check(instance.name, instance.server)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_nothing_is_lost_that_only_one_instance_had(tmp_path: Path) -> None:
    """Where nobody waits for an instance that is away, it gets what it has missed all the same."""
    elements = _RECORDS + DOWNGRADE.format(every="200ms", age="400ms")
    chance = chance_of()
    topology = TOPOLOGIES["pair"]
    with (
        cluster(tmp_path, topology, elements=elements, topics=TOPICS, preallocated=1) as instances,
        small_disks(instances) as disks,
    ):
        model, _ = work_in_trouble(instances, disks, chance, keeps_order=False)
        check(instances, model)
