"""SOW keys made anew after a change of the Key: nothing is lost, also if a crash interrupts it."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from server.expressions import BUILTINS
from server.message_types.registry import create
from server.storage.sow.file_store import open_store
from server.storage.sow.history import HistoryPoint
from server.storage.sow.query.query import QuerySpec
from server.storage.sow.rekey import RekeyResult, rekey_records
from server.storage.sow.topic_records import SowTopicRecords
from tests.storage.sow.support import SECOND, Clerk, Disk, topic_spec
from tests.support.sow_entries import sow_entries

FOREVER = 10**6 * SECOND
START = 1_000 * SECOND


def opened(disk: Disk, *keys: str, pattern: str | None = None) -> Clerk:
    """Open the topic of a file with some Key."""
    store, recovery = open_store(
        disk.directory / "t.sow",
        disk.committer,
        lambda _: None,
        topic="t",
        pattern=pattern is not None,
        slab_size=1 << 17,
    )
    assert recovery.damage is None
    spec = topic_spec(*keys, name="t", pattern=pattern, history=(FOREVER, 0))
    return Clerk(SowTopicRecords(spec, create("json", "json", {}), store, BUILTINS))


def close(disk: Disk, clerk: Clerk) -> None:
    """Close a topic and its disk."""
    clerk.topic.table.store.close()
    disk.close()


def rekey(disk: Disk, clerk: Clerk) -> RekeyResult:
    """Do what a start does."""
    return rekey_records(clerk.topic, disk.settle, lambda: None)


def bodies(clerk: Clerk, moment: int | None = None) -> list[str]:
    """Return the records at a moment, or now."""
    point = None if moment is None else HistoryPoint(moment)
    return sorted(json.dumps(one) for one in clerk.bodies(QuerySpec(as_of=point)))


def keys(clerk: Clerk) -> dict[str, str]:
    """Return the SOW key of each record."""
    table = clerk.topic.table
    rows = [table.store.read_record(row) for _, row in table.store.identities()]
    return {json.dumps(json.loads(one.body)): f"{one.topic}/{one.key}" for one in rows}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("pattern", [None, "^t"])
def test_all_records_and_their_past_stay(tmp_path: Path, seed: int, pattern: str | None) -> None:
    """Whatever keys meet; the newest has the key, and the former Key gives back all keys."""
    source = random.Random(seed)
    disk = Disk(tmp_path)
    clerk = opened(disk, "/a", pattern=pattern)
    topics = ["t"] if pattern is None else ["t1", "t2"]
    for value in range(40):
        clerk.now += SECOND
        message: dict[str, Any] = {"a": source.randrange(8), "b": source.randrange(6), "v": value}
        if source.random() < 0.2:
            del message["b"]
        clerk.publish(message, topic=source.choice(topics))
    moments = [START + second * SECOND for second in range(42)]
    before, past = keys(clerk), [bodies(clerk, moment) for moment in moments]
    now = clerk.now
    close(disk, clerk)
    newest: dict[tuple[str, int], int] = {}
    same = {one["v"] for one in map(json.loads, before) if one["a"] == one.get("b")}
    for text, key in before.items():
        one = json.loads(text)
        if "b" in one:
            place = (key.partition("/")[0], one["b"])
            newest[place] = max(newest.get(place, -1), one["v"])
    for again in range(2):
        disk = Disk(tmp_path)
        clerk = opened(disk, "/b", pattern=pattern)
        clerk.now = now
        done = rekey(disk, clerk)
        assert done.set_aside_count == len(before) - len(newest)
        assert done.moved_count == (0 if again else len(set(newest.values()) - same))
        assert [bodies(clerk, moment) for moment in moments] == past
        for (topic, value), v in newest.items():
            (found,) = clerk.topic.find_by_body(b'{"b":%d}' % value, topic)
            assert json.loads(found.body)["v"] == v
        close(disk, clerk)
    disk = Disk(tmp_path)
    clerk = opened(disk, "/a", pattern=pattern)
    clerk.now = now
    assert rekey(disk, clerk).set_aside_count == 0
    assert keys(clerk) == before
    assert [bodies(clerk, moment) for moment in moments] == past
    close(disk, clerk)


def test_a_crash_comes_between_the_steps_of_a_move(tmp_path: Path) -> None:
    """The next start makes the same of the records, wherever the file ends."""
    disk = Disk(tmp_path)
    clerk = opened(disk, "/a")
    for value, (a, b) in enumerate([(0, 1), (1, 2), (2, 0), (3, 1), (4, 9), (0, 5), (5, 5)]):
        clerk.now += SECOND
        clerk.publish({"a": a, "b": b, "v": value})
    moments = [START + second * SECOND for second in range(9)]
    past, now = [bodies(clerk, moment) for moment in moments], clerk.now
    close(disk, clerk)
    first, _ = sow_entries(tmp_path / "t.sow")
    disk = Disk(tmp_path)
    clerk = opened(disk, "/b")
    pages: list[bytes] = []  # the first one, with the commit point, before and after the moves

    def settle() -> None:
        disk.settle()
        pages.append((tmp_path / "t.sow").read_bytes()[:4096])

    assert rekey_records(clerk.topic, settle, lambda: None) == RekeyResult(4, 1)
    clerk.now = now
    wanted = keys(clerk)
    content = pages[0] + (tmp_path / "t.sow").read_bytes()[4096:]
    places, end = sow_entries(tmp_path / "t.sow")
    close(disk, clerk)
    assert len(places) > len(first) + 10
    for place in places[len(first) :]:
        cut = tmp_path / "cut"
        shutil.rmtree(cut, ignore_errors=True)
        cut.mkdir()
        end = (place - 4096) // (1 << 17) * (1 << 17) + 4096 + (1 << 17)
        (cut / "t.sow").write_bytes(content[:place] + bytes(end - place) + content[end:])
        other = Disk(cut)
        again = opened(other, "/b")
        again.now = now
        assert rekey(other, again).set_aside_count == 1
        assert keys(again) == wanted, place
        assert [bodies(again, moment) for moment in moments] == past, place
        close(other, again)
