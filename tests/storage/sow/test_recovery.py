"""A SOW file after a kill, after a power failure, and after damage."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from server.storage.sow.file_store import FileStore, StoreRecovery
from server.storage.sow.records import Record
from server.storage.sow.slab import slab_format as form
from server.util.file_lock import FileInUseError
from tests.storage.sow.forks import forked_writer
from tests.storage.sow.model import apply_to_store, model_after, state_of, steps
from tests.storage.sow.support import Disk
from tests.support.chances import GIVEN_SEED

SLAB = 4096 * 4


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    opened = Disk(tmp_path)
    yield opened
    opened.close()


def fill(store: FileStore, disk: Disk, seed: int, count: int, commit_every: int = 50) -> None:
    for step in islice(steps(seed), count):
        apply_to_store(store, step)
        if step.sequence % commit_every == 0:
            store.commit()
            disk.settle()


# ---- kill


def child(directory: str, seed: int, output: int) -> None:
    """Make changes until killed; say after each how many have been made."""
    disk = Disk(Path(directory))
    store, _ = disk.open(slab_size=SLAB)
    done = store.last_sequence
    for step in steps(seed):
        if step.sequence <= done:
            continue
        apply_to_store(store, step)
        os.write(output, b"%d\n" % step.sequence)
        if step.sequence % 20 == 0:
            store.commit()
            while disk._calls:
                disk._calls.pop(0)()


@pytest.mark.parametrize("seed", range(3))
def test_whatever_a_killed_process_had_applied_is_there(tmp_path: Path, seed: int) -> None:
    source = random.Random(seed)
    for _ in range(3):  # killed, continued, and killed again
        with forked_writer(child, str(tmp_path), seed) as (process, output):
            first = output.readline()
            assert first
            time.sleep(source.random() * 0.2)
            process.kill()
            reported = int((first + output.read()).split()[-1])
        disk = Disk(tmp_path)
        store, recovery = disk.open()
        assert recovery.damage is None
        reached = store.last_sequence
        # A deletion of what is not there leaves no trace, so the last sequence may be an older one.
        assert state_of(store) in (model_after(seed, reported), model_after(seed, reported + 1))
        assert reached <= reported + 1
        store.close()
        disk.close()


# ---- power failure


class Sectors:
    """What is on stable storage: the file as it was at the last synchronisation."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stable = (b"", 0)
        self._failed = False
        self._lock = threading.Lock()
        self.state = 0

    def synchronise(self, _: int) -> None:
        with self._lock:
            if self._failed:
                raise OSError(5, "no power")
            state = self.state
            self._stable = self._path.read_bytes(), state
        time.sleep(0.0005)  # so that further commits gather

    def after_failure(self, source: random.Random) -> tuple[bytes, int]:
        """The file if some sectors written since got there, and the state then."""
        with self._lock:
            self._failed = True
            stable, state = self._stable
        now = self._path.read_bytes()
        old = stable[: len(now)].ljust(len(now), b"\0")
        kept = source.random()
        content = b"".join(
            now[start : start + 512] if source.random() < kept else old[start : start + 512]
            for start in range(0, len(now), 512)
        )
        return content, state


@pytest.mark.long
@pytest.mark.parametrize("uniform", [False, True])
@pytest.mark.parametrize("seed", range(12 if GIVEN_SEED else 6))
def test_after_a_power_failure_the_state_is_one_that_was_since_the_last_commit(
    tmp_path: Path, seed: int, uniform: bool
) -> None:
    """Uniform records leave remains of lost entries exactly where a reader may look for more."""
    source = random.Random(seed)
    path = tmp_path / "t.sow"
    changes = steps(seed)
    for _ in range(4):
        sectors = Sectors(path)
        disk = Disk(tmp_path, sectors.synchronise)
        store, recovery = disk.open(slab_size=SLAB)
        assert recovery.damage is None, recovery
        sectors.synchronise(0)
        states = [state_of(store)]
        committed = 0
        for step in islice(changes, source.randrange(20, 500)):
            if uniform and step.record is not None:
                step = step._replace(record=Record(step.key, b"%09d" % step.sequence, "t"))
            apply_to_store(store, step)
            states.append(state_of(store))
            sectors.state = len(states) - 1
            for _ in range(source.choice((0,) * 12 + (1, 4))):
                store.commit()
            if source.random() < 0.1:
                store.commit()
                disk.settle()
                committed = sectors.state
        content, stable = sectors.after_failure(source)
        assert stable >= committed
        store.close()
        disk.close()
        path.write_bytes(content)
        disk = Disk(tmp_path)
        store, recovery = disk.open()
        assert recovery.damage is None, recovery
        assert state_of(store) in states[stable:]
        store.close()
        disk.close()


def test_entries_of_a_slab_whose_header_was_lost_never_come_back(tmp_path: Path) -> None:
    """Those of the next slab in that place end where a lost one may begin."""

    def no_power(_: int) -> None:
        raise OSError(5, "no power")

    path = tmp_path / "t.sow"
    for names in (["lost-1", "lost-2", "lost-3"], ["kept-1"], []):
        disk = Disk(tmp_path, no_power)
        store, recovery = disk.open(slab_size=SLAB)
        assert recovery.damage is None
        for name in names:
            store.put(name, Record(name, b"of one size", "t"))
        found = list(state_of(store))
        store.close()
        disk.close()
        if "lost-1" in names:
            content = bytearray(path.read_bytes())
            content[form.PAGE : form.PAGE + form.FIRST_ENTRY] = bytes(form.FIRST_ENTRY)
            path.write_bytes(content)
    assert found == ["kept-1"]


# ---- damage


def test_a_damaged_file_is_set_aside_and_reported(disk: Disk, tmp_path: Path) -> None:
    path = tmp_path / "t.sow"
    for number in (1, 2):
        store, _ = disk.open(slab_size=1 << 20)
        fill(store, disk, 1, 200)
        store.close()
        content = bytearray(path.read_bytes())
        content[form.PAGE + form.FIRST_ENTRY + 70] ^= 1
        path.write_bytes(content)
        store, recovery = disk.open(slab_size=1 << 20)
        assert recovery.damage is not None
        assert "fails its checksum at byte 4160" in recovery.damage
        assert recovery.damaged_path == tmp_path / f"t.sow.damaged-{number}"
        assert recovery.damaged_path.read_bytes() == content
        assert len(store) == 0
        store.close()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"something else" * 1000, "not that of a SOW file"),
        (form.pack_file_header(SLAB)[:10].ljust(8192, b"\0"), "not that of a SOW file"),
    ],
)
def test_what_is_no_sow_file_is_set_aside(
    disk: Disk, tmp_path: Path, content: bytes, expected: str
) -> None:
    (tmp_path / "t.sow").write_bytes(content)
    store, recovery = disk.open()
    assert recovery.damage is not None
    assert expected in recovery.damage
    assert (tmp_path / "t.sow.damaged-1").read_bytes() == content
    store.close()


def test_a_file_that_was_cut_short_before_its_first_page_is_begun_again(
    disk: Disk, tmp_path: Path
) -> None:
    (tmp_path / "t.sow").write_bytes(b"AMP")
    store, recovery = disk.open()
    assert recovery == StoreRecovery(0, 0, blank_file_size=3, is_new=True)
    store.close()


def test_a_file_is_open_once(disk: Disk) -> None:
    store, _ = disk.open()
    with pytest.raises(FileInUseError, match="two instances cannot share"):
        disk.open()
    store.close()


def test_any_damage_to_what_was_committed_is_noticed(tmp_path: Path) -> None:
    """Flipped bits either do not matter, because they hit what no longer counts, or reported."""
    disk = Disk(tmp_path)
    store, _ = disk.open(slab_size=SLAB)
    fill(store, disk, 3, 400)
    expected = state_of(store)
    store.close()
    path = tmp_path / "t.sow"
    good = path.read_bytes()
    source = random.Random(5)
    noticed = 0
    for _ in range(150):
        content = bytearray(good)
        for _ in range(source.choice((1, 1, 4))):
            content[source.randrange(len(content))] ^= 1 << source.randrange(8)
        path.write_bytes(content)
        store, recovery = disk.open()
        if recovery.damage is None:
            assert state_of(store) == expected
        else:
            noticed += 1
        store.close()
    assert noticed > 10
    disk.close()


def crash(directory: str, _output: int) -> None:
    """Write entries that are never committed, and end without closing anything."""
    disk = Disk(Path(directory))
    store, _ = disk.open()
    for number in range(1, 21):
        store.put(f"{number}", Record(f"{number}", bytes([number]) * 100, "t", sequence=number))
    os._exit(0)


@pytest.mark.parametrize("damaged", [1, 10, 20])
@pytest.mark.parametrize("where", ["body", "checksum", "length"])
def test_damage_behind_the_last_commit_is_said(tmp_path: Path, damaged: int, where: str) -> None:
    """What could be read no more is counted, to the end of what had been written."""
    with forked_writer(crash, str(tmp_path)) as (process, _):
        process.join()
        assert process.exitcode == 0
    path = tmp_path / "t.sow"
    content = bytearray(path.read_bytes())
    entry = content.index(b"%d" % damaged + bytes([damaged]) * 100) - form.ENTRY.size
    end = content.index(bytes([20]) * 100) + 100
    content[entry + {"body": form.ENTRY.size + 30, "checksum": 0, "length": 4}[where]] ^= 1
    path.write_bytes(content)
    disk = Disk(tmp_path)
    store, recovery = disk.open()
    assert sorted(map(int, state_of(store))) == list(range(1, damaged))
    assert recovery.damage is None
    assert abs(recovery.lost_bytes - (end - entry)) <= (where == "length")
    store.close()
    disk.close()


def test_a_file_cut_short_is_noticed(disk: Disk, tmp_path: Path) -> None:
    store, _ = disk.open(slab_size=SLAB)
    fill(store, disk, 4, 300)
    store.close()
    path = tmp_path / "t.sow"
    good = path.read_bytes()
    for length in (form.PAGE, form.PAGE + SLAB, len(good) // 2):
        path.write_bytes(good[:length])
        store, recovery = disk.open()
        assert recovery.damage is not None
        store.close()


def test_random_content_is_never_more_than_damage(disk: Disk, tmp_path: Path) -> None:
    source = random.Random(6)
    for _ in range(30):
        header = form.pack_file_header(SLAB).ljust(form.PAGE, b"\0")
        slabs = b"".join(
            form.pack_slab_header(
                form.SlabHeader(
                    source.randrange(4), source.randrange(4), source.randrange(SLAB), 0, 0
                )
            )
            + source.randbytes(SLAB - 64)
            for _ in range(3)
        )
        (tmp_path / "t.sow").write_bytes(header + slabs)
        store, _ = disk.open()
        store.close()
