"""How a schedule with a queue ends, and what has to be true then."""

from __future__ import annotations

from server.journal import Kind
from server.journal.layout import KIND, SEQUENCE
from tests.replication.basics import ORDERS, SECOND
from tests.replication.checks import check_end, describe, is_quiet
from tests.replication.queue_simulation import CLIENT, TOPIC, Workshop
from tests.replication.violation import Violation

_STEPS = 400_000


def run(world: Workshop) -> None:
    """Let one schedule happen, and check what came of it."""
    world.start_trouble()
    world.run(lambda: False, 3 * SECOND)
    finish(world)


def finish(world: Workshop) -> None:
    """Let everything be well until all is worked off."""
    world.heal()
    for instance in world.instances.values():
        instance.boot()
    if not world.run(lambda: is_worked_off(world), 120 * SECOND, _STEPS):
        raise Violation(f"it does not come to rest: {describe(world)}\n{state(world)}")
    check_end(world)
    check_deliveries(world)


def is_worked_off(world: Workshop) -> bool:
    return is_quiet(world) and all(host.core.depth == 0 for host in world.hosts)


def state(world: Workshop) -> str:
    parts = []
    for host in world.hosts:
        entries = host.core.ledger.entries
        left = [
            f"{entries.mark(place)} of {entries.owner(place) or host.name} "
            f"{entries.state(place)} turn {host.core.ledger.title(place).turn}"
            for place in host.core.ledger.entries.places()
        ]
        parts.append(f"{host.name}: {left}, neighbours {sorted(host.courier.neighbours)}")
    parts += [f"{worker.name} at {worker.host and worker.host.name}" for worker in world.workers]
    return "\n".join(parts)


def check_deliveries(world: Workshop) -> None:
    """See that what has been published has been delivered to somebody."""
    for host in world.hosts:
        names = host.log.names.topics
        for row in host.log.rows:
            if row[KIND] != Kind.PUBLISH or names[row[TOPIC]] != ORDERS:
                continue
            mark = row[CLIENT], row[SEQUENCE]
            if not world.deliveries[mark] and not world.may_be_lost(mark):
                raise Violation(f"{mark} at {host.name} was never delivered")
