"""What is known of messages is put away: the queue is the same, and memory is given back."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from server.queues.core import AckOutcome, Consumer, MessageDetails, Queue, QueueSettings
from server.queues.core.inspection import available
from server.queues.core.message_table import SIZE, ColumnStorage
from server.queues.topic.scratch_memory import ScratchMemory
from tests.queues.support import PUBLISHER, SECOND, CountingMatching, Drawer, marks

COUNT = 5 * SIZE


def filled(room: ColumnStorage | None) -> Queue:
    """A queue with messages of which all is known that there is."""
    settings = QueueSettings(max_per_subscription_backlog=2 * SIZE, prioritized=True, keyed=True)
    queue = Queue(settings, CountingMatching, "here", storage=room)
    for first in range(1, COUNT, 100):
        txids = range(first, min(first + 100, COUNT))
        details = MessageDetails(
            lifetimes=[3600 * SECOND if txid % 3 else None for txid in txids],
            priorities=[txid % 5 for txid in txids],
            keys=[txid // 2 for txid in txids],
            sow_keys=[txid + 7 for txid in txids],
        )
        queue.lifecycle.enqueue(txids, list(txids), PUBLISHER, txids, details)
    return queue


def known(queue: Queue) -> list[tuple[int, ...]]:
    """All that a queue knows of its messages."""
    entries = queue.lifecycle.entries
    return [
        (
            entries.txid(offset),
            entries.recorded_at(offset),
            *entries.bookmark(offset),
            entries.expires_at(offset),
            entries.priority(offset),
            entries.key(offset),
            entries.sow_key(offset),
        )
        for offset in entries.offsets()
    ]


def raise_it(problem: OSError) -> None:
    """There has to be space."""
    raise problem


def test_everything_is_known_as_before() -> None:
    room = Drawer()
    queue, plain = filled(room), filled(None)
    assert room.taken
    assert known(queue) == known(plain)
    assert available(queue).tolist() == available(plain).tolist()
    assert queue.transfer(marks(3), "there", SECOND) == marks(3)
    for one in (queue, plain):
        one.acknowledge(marks(*range(10, 3 * SIZE)), SECOND)
        one.acknowledge(marks(3 * SIZE, 3 * SIZE + 1), SECOND, outcome=AckOutcome.EXPIRE)
    assert known(queue) == known(plain)
    queue.acknowledge(marks(*range(COUNT)), SECOND)
    assert room.held <= 1, "what another instance owns is all that there is"


def test_what_is_on_its_way_outlives_its_room() -> None:
    """A delivery names its messages though all of its block has left meanwhile."""
    room = Drawer()
    queue = Queue(
        QueueSettings(max_per_subscription_backlog=COUNT), CountingMatching, "here", storage=room
    )
    queue.lifecycle.enqueue(range(COUNT), [SECOND] * COUNT, PUBLISHER, range(COUNT))
    queue.attach(Consumer("a", "a", COUNT))
    deliveries = queue.assign_messages(SECOND)
    while queue.is_behind:
        deliveries += queue.assign_messages(SECOND)
    assert queue.acknowledge(marks(*range(COUNT)), SECOND).affected_count == COUNT
    assert not room.held
    assert [txid for delivery in deliveries for txid in delivery.txids] == [*range(COUNT)]


def test_a_file_has_room_and_gives_it_back(tmp_path: Path) -> None:
    """It has no name, and no bytes when nobody uses it."""
    scratch = ScratchMemory(tmp_path, raise_it)
    rooms = [scratch.allocate(3_000_000) for _ in range(10)]
    for number, room in enumerate(rooms):
        assert room is not None
        room[:] = bytes((number,)) * len(room)
    assert [room[-1] for room in rooms if room is not None] == list(range(10))
    assert not list(tmp_path.iterdir())
    descriptors = len(os.listdir("/proc/self/fd"))
    again = rooms.pop()
    assert again is not None
    scratch.release(again)
    assert scratch.allocate(3_000_000) is again
    for room in (again, *rooms):
        assert room is not None
        scratch.release(room)
    del again, room, rooms
    assert len(os.listdir("/proc/self/fd")) < descriptors


def test_without_space_columns_stay_in_memory(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    said: list[OSError] = []
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    request.addfinalizer(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    queue = filled(ScratchMemory(tmp_path, said.append))
    assert len(said) == 1, "and not for each block"
    assert known(queue) == known(filled(None))
