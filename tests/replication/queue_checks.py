"""How a schedule with a queue ends, and what has to be true then."""

from __future__ import annotations

from server.replication.core import unpack
from server.storage.journal import JournalEntryKind
from server.storage.journal.format.layout import KIND, SEQUENCE
from tests.replication.basics import ORDERS, SECOND
from tests.replication.checks import check_end, describe, is_quiet, messages
from tests.replication.queue_simulation import CLIENT, TOPIC, Host, Workshop
from tests.replication.violation import Violation

_STEPS = 400_000


def run(world: Workshop) -> None:
    """Let one schedule happen, and check what came of it."""
    world.start_trouble()
    world.run(lambda: False, 3 * SECOND)
    finish(world)


def check_owners(world: Workshop) -> int:
    """Let one schedule happen without consumers; then each message is to be of one instance.

    An instance that has no cursor in another one's log is not sent what it has, and cannot learn
    from that where it was published; so the trouble begins when all remember one another.

    Returns:
        How many messages have been published at two instances.
    """
    if not world.run(lambda: all(map(_remembers_all, world.hosts)), 10 * SECOND):
        raise Violation("instances do not remember one another")
    world.start_trouble()
    world.run(lambda: False, 3 * SECOND)
    for _ in range(2):
        world.heal()
        for host in world.hosts:
            host.boot()
        if not world.run(lambda: is_quiet(world), 120 * SECOND, _STEPS):
            raise Violation(f"it does not come to rest: {describe(world)}")
        _check_one_owner(world)
        for host in world.hosts:
            host.die()
        _check_one_owner(world)
    return sum(len(homes) > 1 for homes in world.homes_of.values())


def _remembers_all(host: Host) -> bool:
    remembered = None if host.remembered is None else unpack(host.remembered)
    return remembered is not None and set(host.sources) <= remembered.cursors.keys()


def _check_one_owner(world: Workshop) -> None:
    there = {mark[:2] for host in world.hosts for mark in messages(host)}
    for mark in world.homes_of.keys() & there:
        owners = world.owners(mark)
        if len(owners) != 1:
            homes = sorted(world.homes_of[mark])
            raise Violation(f"{mark} belongs to {owners}, and was published at {homes}")


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
        entries = host.core.lifecycle.entries
        left = [
            f"{entries.bookmark(place)} of {entries.owner(place) or host.name} "
            f"{entries.state(place)} turn"
            f" {host.core.lifecycle.ownership_claim(place).transfer_count}"
            for place in host.core.lifecycle.entries.offsets()
        ]
        parts.append(f"{host.name}: {left}, neighbours {sorted(host.router.neighbours)}")
    parts += [f"{worker.name} at {worker.host and worker.host.name}" for worker in world.workers]
    return "\n".join(parts)


def check_deliveries(world: Workshop) -> None:
    """See that what has been published has been delivered to somebody."""
    for host in world.hosts:
        names = host.log.names.topics
        for row in host.log.rows:
            if row[KIND] != JournalEntryKind.PUBLISH or names[row[TOPIC]] != ORDERS:
                continue
            mark = row[CLIENT], row[SEQUENCE]
            if not world.deliveries[mark] and not world.may_be_lost(mark):
                raise Violation(f"{mark} at {host.name} was never delivered")
