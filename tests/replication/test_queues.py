"""A queue that instances share: nothing is lost, and nothing is delivered by two without a reason.

Every schedule follows from its seed; a failure names it. `make test-long` tries others of each
topology. The mutants show that the checker sees what it is there for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from server.queues.core import message_state
from tests.replication.basics import MILLISECOND
from tests.replication.queue_checks import check_owners, run
from tests.replication.queue_mutants import KNOWN_SEEDS, MUTANTS
from tests.replication.queue_simulation import Host, Workshop
from tests.replication.simulation import Faults
from tests.replication.topologies import TOPOLOGIES
from tests.replication.violation import Violation
from tests.support.as_written import ENVIRONMENT, ROOT

_MESH = TOPOLOGIES["mesh"]
_DIRECT = tuple(replace(link, is_sync=False, pass_through=()) for link in _MESH.links)
NO_PASSING = replace(_MESH, links=_DIRECT)
"""Where an acknowledgement may overtake its message."""

KINDS = {**TOPOLOGIES, "no passing through": NO_PASSING}


def play(seed: int, topology: str, faults: Faults, make: type[Host] = Host, **how: Any) -> Workshop:
    world = Workshop(seed, KINDS[topology], faults, make=make, **how)
    try:
        run(world)
    except Exception as problem:
        problem.add_note(f"seed {seed} of {topology} with {faults}")
        problem.add_note("\n".join(world.journal))
        raise
    return world


@pytest.mark.parametrize("topology", KINDS)
def test_nothing_is_lost_or_delivered_by_two(topology: str, seeds: range) -> None:
    for seed in seeds:
        play(seed, topology, Faults())


def test_what_was_acknowledged_before_it_came_stays_so_if_later_ones_came_with_that() -> None:
    """A schedule in which the acknowledgement comes together with later messages."""
    play(20, "no passing through", Faults())


APART = Faults(kill=8, partition=8, cut=1, one_way=1, half_open=1)
"""What makes publishers move before what they have published is replicated."""


@pytest.mark.parametrize("topology", ["pair", "mesh", "hub"])
def test_each_message_has_one_owner_when_all_have_met(topology: str, all_seeds: range) -> None:
    """Also what its publisher has sent to two instances; and after they have been killed again."""
    twice = 0
    for seed in all_seeds:
        world = Workshop(seed, KINDS[topology], APART, workers=0, trouble=24)
        try:
            twice += check_owners(world)
        except Exception as problem:
            problem.add_note(f"seed {seed} of {topology}")
            problem.add_note("\n".join(world.journal))
            raise
    assert twice, "no message was published at two instances"


WAYS: dict[str, dict[str, Any]] = {
    "at most once": {"at_most_once": True},
    "leases end": {"lease_period": 40 * MILLISECOND},
    "priorities": {"prioritized": True},
    "order per key": {"keyed": True},
    "group local": {"initial_owner": "A"},
    "many workers": {"workers": 5, "messages": 30},
}


@pytest.mark.parametrize("way", WAYS)
def test_it_is_so_whatever_the_queue_is_like(way: str, seeds: range) -> None:
    for seed in seeds:
        topology = ("pair", "mesh", "chain")[(seed + list(WAYS).index(way)) % 3]
        play(seed, topology, Faults(), **WAYS[way])


@pytest.fixture(scope="module")
def undetected_mutants() -> list[str]:
    """The mutants that no schedule shows."""
    if Path(message_state.__file__).suffix == ".py":  # classes that are compiled take no defects
        return undetected()
    played = subprocess.run(
        [sys.executable, "-m", "tests.replication.test_queues"],
        cwd=ROOT,
        env=os.environ | ENVIRONMENT,
        stdout=subprocess.PIPE,
        check=True,
    )
    found: list[str] = json.loads(played.stdout)
    return found


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planted_defect_is_found(mutant: str, undetected_mutants: list[str]) -> None:
    assert mutant not in undetected_mutants


def undetected() -> list[str]:
    """Return the mutants that no schedule shows."""
    return [mutant for mutant in MUTANTS if not is_detected(mutant)]


def is_detected(mutant: str) -> bool:
    """Return whether a schedule shows the defect."""
    topology, make = MUTANTS[mutant]
    how: dict[str, Any] = {"at_most_once": True} if mutant == "delivers too early" else {}
    for seed in (KNOWN_SEEDS.get(mutant, 0), *range(400)):
        try:
            play(seed, topology, Faults(), make, workers=4, **how)
        except Violation:
            return True
    return False


def test_a_schedule_follows_from_its_seed() -> None:
    one, other = (play(7, "mesh", Faults()) for _ in range(2))
    assert one.journal == other.journal
    assert one.deliveries == other.deliveries


if __name__ == "__main__":
    print(json.dumps(undetected()))
