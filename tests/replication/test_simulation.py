"""Whatever dies, is cut or replaced, instances end up with the same messages, once and in order.

Every schedule follows from its seed; a failure names it. `make test-long` tries others of each
topology. The mutants show that the checker sees what it is there for.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from amperage.wire.bookmarks import EPOCH, NOW
from tests.replication.checks import run
from tests.replication.instance import Instance
from tests.replication.mutants import KNOWN_SEEDS, MUTANTS
from tests.replication.simulation import Faults, World
from tests.replication.subscriber import Subscriber
from tests.replication.topologies import TOPOLOGIES
from tests.replication.violation import Violation
from tests.support.chances import GIVEN_SEED

TROUBLES: dict[str, Faults] = {
    "faults": Faults(),
    "lost cursors": Faults(forget=4),
    "new disks": Faults(replace_disk=4),
    "removed journals": Faults(remove_journals=4),
    "downgrades": Faults(downgrade=4),
    "damage": Faults(damage=8),
    "refusals": Faults(refuse=8, damage=2),
    "reloads": Faults(reload=8),
}


FAULTS_FOR_MUTANTS = Faults(damage=4, refuse=4)

_NO_WAY_BACK = ("ring", "new disks")


def play(
    seed: int,
    topology: str,
    faults: Faults,
    make: type[Instance] = Instance,
    subscribers: Sequence[tuple[str, ...]] = (),
) -> None:
    world = World(seed, TOPOLOGIES[topology], faults, make=make, trouble=12)
    for homes, start in product(subscribers, (EPOCH, NOW)):
        world.subscribers.append(Subscriber(world, homes, start))
    try:
        run(world)
    except Exception as problem:
        problem.add_note(f"seed {seed} of {topology} with {faults}")
        problem.add_note("\n".join(world.journal))
        raise


# In a ring whose links lead one way, those that have what an instance has lost do not send to it.
KINDS = [(t, trouble) for t in TOPOLOGIES for trouble in TROUBLES if (t, trouble) != _NO_WAY_BACK]


@pytest.mark.parametrize(("topology", "trouble"), KINDS)
def test_nothing_is_lost_or_comes_twice(topology: str, trouble: str, seeds: range) -> None:
    for seed in seeds:
        play(seed, topology, TROUBLES[trouble])


@pytest.mark.parametrize(
    ("seed", "topology"), [(38, "pair"), (27, "async"), (23, "chain"), (16, "mesh")]
)
def test_what_is_missing_elsewhere_is_not_here_because_what_follows_is(
    seed: int, topology: str
) -> None:
    """Schedules in which the news that a message is missing comes together with later ones."""
    play(seed, topology, TROUBLES["refusals"])


@pytest.mark.parametrize("trouble", ["faults", "lost cursors", "downgrades"])
@pytest.mark.parametrize(
    ("topology", "homes"),
    [
        ("pair", [("A", "B")]),
        ("async", [("A", "B")]),
        ("hub", [("A", "H"), ("H", "B")]),
        ("mesh", [("A", "B", "C")]),
    ],
)
def test_subscribers_that_move_get_everything_once(
    topology: str, homes: list[tuple[str, ...]], trouble: str, seeds: range
) -> None:
    """Whatever the order of messages is at each instance, also if none had come before the move."""
    for seed in seeds:
        play(seed, topology, TROUBLES[trouble], subscribers=homes)


@pytest.mark.long
@pytest.mark.parametrize("topology", ["ring", "mesh", "square", "groups"])
def test_instances_do_not_wait_in_a_circle_when_much_is_waited_for(topology: str) -> None:
    # Every third schedule is one in which next to nothing is too much.
    for seed in range(0, 120 if GIVEN_SEED else 15, 3):
        play(seed, topology, Faults())


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planted_defect_is_found(mutant: str) -> None:
    topology, make = MUTANTS[mutant]
    for seed in (KNOWN_SEEDS.get(mutant, 0), *range(400)):
        try:
            play(seed, topology, FAULTS_FOR_MUTANTS, make)
        except Violation:
            return
        except Exception:  # what the core itself refuses is found, too
            return
    pytest.fail(f"an instance that {mutant} passes for one that does not")


def test_a_schedule_follows_from_its_seed() -> None:
    def journal() -> list[Any]:
        world = World(7, TOPOLOGIES["mesh"], trouble=12)
        run(world)
        return [*world.journal, sorted(world.acked.items())]

    assert journal() == journal()
