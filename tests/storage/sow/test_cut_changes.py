"""A crash between any two entries of a SOW file: records and past states are of whole changes.

The file is cut behind its commit point, at every entry and within each: what a power failure leaves
of a slab of which some pages were written.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.expressions import BUILTINS
from server.message_types.registry import create
from server.storage.sow.file_store import open_store
from server.storage.sow.history import HistoryPoint
from server.storage.sow.query.query import QuerySpec
from server.storage.sow.topic_records import SowTopicRecords
from tests.storage.sow.support import SECOND, Clerk, Disk, topic_spec
from tests.support.chances import GIVEN_SEED
from tests.support.sow_entries import sow_entries

FOREVER = 10**6 * SECOND
START = 1_000 * SECOND
State = dict[int, int]


def opened(disk: Disk, granularity: int | None) -> SowTopicRecords:
    """The topic of a file."""
    history = None if granularity is None else (FOREVER, granularity)
    store, recovery = open_store(
        disk.directory / "t.sow",
        disk.committer,
        lambda _: None,
        topic="t",
        pattern=False,
        slab_size=1 << 16,
    )
    assert recovery.damage is None
    spec = topic_spec("/id", name="t", history=history)
    return SowTopicRecords(spec, create("json", "json", {}), store, BUILTINS)


def work(clerk: Clerk, seed: int) -> Iterator[State]:
    """Change records, each time a second later; give the state after each change."""
    source, state = random.Random(seed), dict[int, int]()
    for value in range(30):
        number = source.randrange(3)
        clerk.now += SECOND
        found = clerk.topic.find_by_body(json.dumps({"id": number}).encode())
        if found and source.random() < 0.4:
            clerk.delete(*found)
            state.pop(number)
        else:
            clerk.publish({"id": number, "v": value})
            state[number] = value
        yield dict(state)


def seen(clerk: Clerk, moment: int | None) -> State:
    """The records at a moment."""
    point = None if moment is None else HistoryPoint(moment)
    found = clerk.bodies(QuerySpec(as_of=point))
    return {record["id"]: record["v"] for record in found if isinstance(record, dict)}


@pytest.mark.parametrize("granularity", [0, 5 * SECOND])
@pytest.mark.long
@pytest.mark.parametrize("seed", range(3 if GIVEN_SEED else 1))
def test_history_is_that_of_whole_changes(tmp_path: Path, granularity: int, seed: int) -> None:
    """As if the change that was cut had not been made, or had been completed."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    disk = Disk(whole)
    clerk = Clerk(opened(disk, granularity))
    clerk.topic.table.store.commit()
    disk.settle()
    pasts: list[list[State]] = []  # after each change: the states that each moment then has
    states: list[State] = [{}]
    moments = [START]
    for state in work(clerk, seed):
        states.append(state)
        moments.append(clerk.now)
        pasts.append([seen(clerk, moment) for moment in moments])
    pasts.insert(0, [seen(clerk, START)])
    shutil.copy(whole / "t.sow", tmp_path / "end.sow")
    disk.close()

    places, slab_end = sow_entries(tmp_path / "end.sow")
    assert len(places) > len(states)
    content = (tmp_path / "end.sow").read_bytes()
    for place in sorted({*places, *(place + 30 for place in places)}):
        (cut / "t.sow").write_bytes(content[:place] + bytes(slab_end - place) + content[slab_end:])
        other = Disk(cut)
        again = Clerk(opened(other, granularity))
        again.now = clerk.now
        found = seen(again, None)
        steps = [step for step, state in enumerate(states) if state == found]
        answers = [seen(again, moment) for moment in moments]
        expected = [pasts[step] + [states[step]] * (len(moments) - 1 - step) for step in steps]
        assert answers in expected, (place, found)
        assert again.topic.table.store.last_sequence in steps
        # Later changes, and another start, find everything in order.
        again.now += SECOND
        again.publish({"id": 99, "v": 0})
        again.topic.table.store.close()
        other.close()
        later = Disk(cut)
        once_more = Clerk(opened(later, granularity))
        once_more.now = again.now
        assert [seen(once_more, moment) for moment in moments] == answers
        once_more.topic.table.store.close()
        later.close()
