"""How a schedule ends, and what has to be true then."""

from __future__ import annotations

from collections import defaultdict

from server.storage.journal import JournalTopic
from tests.replication.basics import ORDERS, SECOND
from tests.replication.instance import Instance
from tests.replication.simulation import World
from tests.replication.violation import Violation


def run(world: World) -> None:
    """Let one schedule happen, and check what came of it."""
    world.start_trouble()
    world.run(lambda: False, 3 * SECOND)
    world.heal()
    for instance in world.instances.values():
        instance.boot()
    if not world.run(lambda: is_quiet(world), 60 * SECOND):
        raise Violation(f"it does not come to rest: {describe(world)}")
    check_end(world)
    for subscriber in world.subscribers:
        subscriber.check()


def is_quiet(world: World) -> bool:
    clients = [one.is_done for one in world.publishers]
    clients += [one.is_at_end for one in world.subscribers]
    return all(clients) and all(
        instance.log.durable == instance.log.last_txid
        and all(
            sender.is_resynchronized and sender.settled_txid >= instance.log.last_txid
            for sender in instance.senders.values()
        )
        and not any(sender.skipped_entries.skipped_txids for sender in instance.senders.values())
        and not any(
            receiver.cursor is None or receiver.cursor.owed
            for receiver in instance.receivers.values()
        )
        for instance in world.instances.values()
    )


def describe(world: World) -> str:
    parts = [
        f"{publisher.name}: {publisher.left} left, store {sorted(publisher.store)}"
        for publisher in world.publishers
    ]
    for instance in world.instances.values():
        log = instance.log
        parts.append(f"{instance.name}: log to {log.durable}, {log.last_txid} in memory")
        parts += [
            f"  to {name} {one.state.value} settled {one.settled_txid} stored {one.stored_txid}"
            for name, one in instance.senders.items()
        ]
    return "\n".join(parts)


def messages(instance: Instance, topic: JournalTopic = ORDERS) -> list[tuple[int, int, bytes]]:
    """What an instance has of a topic, in the order of its log."""
    names = instance.log.names.topics
    return [
        (row[2], row[3], data)
        for row, data in zip(instance.log.rows, instance.log.data, strict=True)
        if names[row[10]] == topic
    ]


def check_end(world: World) -> None:
    """See that everything is where it has to be, once, and in order."""
    everywhere: set[tuple[int, int]] = set()
    found: dict[str, list[tuple[int, int, bytes]]] = {}
    for name, instance in world.instances.items():
        found[name] = messages(instance)
        everywhere |= {(client, sequence) for client, sequence, _ in found[name]}
        everywhere.update(instance.log.removed)
    for name, entries in found.items():
        names = [*world.instances[name].log.removed]
        names += [(client, sequence) for client, sequence, _ in entries]
        if len(names) != len(set(names)):
            twice = sorted(one for one in set(names) if names.count(one) > 1)
            raise Violation(f"{name} has twice: {twice}")
        missing = everywhere - set(names)
        if missing:
            raise Violation(f"{name} lacks {sorted(missing)}")
        lost = world.acked.keys() - set(names)
        if lost:
            raise Violation(f"{name} lacks what was acknowledged: {sorted(lost)}")
        for client, sequence, body in entries:
            if world.published.get((client, sequence), body) != body:
                raise Violation(f"{name} has {body!r} as {client}|{sequence}|")
        in_order = not world.was_downgraded and not any(world.disk_losses.values())
        in_order = in_order and not world.faults.refuse  # what one refuses, another one may take
        if world.topology.is_sync and in_order:
            check_order(world, name, names)


def check_order(world: World, name: str, names: list[tuple[int, int]]) -> None:
    highest: dict[int, int] = defaultdict(int)
    publishers = {publisher.client for publisher in world.publishers}
    for client, sequence in names:
        if client in publishers:
            if sequence < highest[client]:
                raise Violation(f"{name} has {client}|{sequence}| behind {highest[client]}")
            highest[client] = sequence
