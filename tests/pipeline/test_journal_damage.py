"""Damage and half-written files: whatever bytes there are, rows are right or there is an error."""

from __future__ import annotations

import gzip
import random
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import PipelineError
from pipeline.journal.tail import entries_written
from server.storage.journal.format.checksum import damaged
from server.storage.journal.format.layout import RECORD_SIZE, VERSION, crc32c
from server.storage.journal.format.records import records_check
from server.storage.journal.inspection import JournalReader
from server.storage.journal.log_end import find_file_extent
from server.storage.journal.storage import FileSource
from tests.pipeline.journals import journal, message, read
from tests.support.chances import examples


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=40), st.data())
def test_damaged_bodies_are_found(bodies: list[bytes], data: st.DataObject) -> None:
    block = b"-".join(bodies)
    ends = np.cumsum([len(body) + 1 for body in bodies]) - 1
    starts = ends - [len(body) for body in bodies]
    checksums = np.array([crc32c(body) for body in bodies], np.uint32)
    assert damaged(block, starts, ends, checksums) == []
    which = data.draw(st.integers(0, len(bodies) - 1))
    checksums[which] ^= np.uint32(data.draw(st.integers(1, 2**32 - 1)))
    assert damaged(block, starts, ends, checksums) == [which]
    checksums[which] = crc32c(bodies[which])
    if bodies[which]:
        changed = bytearray(block)
        place = data.draw(st.integers(int(starts[which]), int(ends[which]) - 1))
        changed[place] ^= data.draw(st.integers(1, 255))
        assert damaged(bytes(changed), starts, ends, checksums) == [which]
    ends[-1] = len(block) + 1
    assert damaged(block, starts, ends, checksums) == [len(bodies) - 1]


@given(st.lists(st.binary(min_size=92, max_size=92), min_size=1, max_size=20), st.data())
def test_records_are_checked_together_as_they_would_be_one_by_one(
    heads: list[bytes], data: st.DataObject
) -> None:
    block = b"".join(head + crc32c(head).to_bytes(4, "little") for head in heads)
    assert records_check(block)
    changed = bytearray(block)
    changed[data.draw(st.integers(0, len(block) - 1))] ^= data.draw(st.integers(1, 255))
    assert not records_check(bytes(changed))


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one journal file that is not full, written in many commits."""
    directory = tmp_path_factory.mktemp("unfinished")
    with journal(directory) as writer:
        for number in range(600):
            writer.publish("t", message(number))
            if number % 7 == 0:
                writer.journal.commit()
    for extra in sorted(directory.iterdir())[1:]:
        extra.unlink()
    return next(directory.iterdir())


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 40))
def test_the_end_of_a_file_is_where_recovery_would_find_it(
    unfinished: Path, seed: int, harmed: int
) -> None:
    """Entries near the end, and some elsewhere, are damaged or missing, as after a crash."""
    chance = random.Random(seed)
    data = bytearray(unfinished.read_bytes())
    reader = JournalReader(unfinished)
    assert reader.header is not None
    rows = [slot for slot in reader.slots() if slot.row is not None]
    for slot in chance.sample(rows[-60:], harmed):
        assert slot.row is not None
        if chance.random() < 0.5:
            data[slot.offset : slot.offset + RECORD_SIZE] = bytes(RECORD_SIZE)
        else:
            data[slot.row[7]] ^= 1
    if chance.random() < 0.3:
        data[chance.choice(rows).offset] ^= 1
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        copy.write_bytes(data)
        source, first = FileSource(copy), reader.header.first_txid
        assert entries_written(source, first) == find_file_extent(source, first).count


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.booleans())
def test_no_wrong_row_comes_out_of_a_damaged_file(
    unfinished: Path, seed: int, flips: int, skips: bool
) -> None:
    chance = random.Random(seed)
    original = {row["txid"]: row for row in read(unfinished.parent)}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / unfinished.name
        shutil.copy(unfinished, copy)
        data = bytearray(copy.read_bytes())
        for _ in range(flips):
            place = (
                chance.randrange(200_000) if chance.random() < 0.5 else -chance.randrange(60_000)
            )
            data[place] ^= chance.randrange(1, 256)
        copy.write_bytes(data)
        rows, problem = [], ""
        try:
            rows = read(Path(folder), damaged="skip" if skips else "fail")
        except PipelineError as error:
            problem = str(error)
        assert rows or skips or unfinished.name in problem
        for row in rows:
            assert row == original[row["txid"]]


@pytest.mark.parametrize("damaged", ["skip", "fail"])
@pytest.mark.parametrize("harm", ["cut", "wiped", "no compressed file", "compressed and cut"])
def test_a_first_journal_that_has_lost_its_beginning_is_missed(
    tmp_path: Path, harm: str, damaged: str
) -> None:
    """It is not taken for one that has not been used yet, as the last one may be."""
    with journal(tmp_path) as writer:
        for number in range(4000):
            writer.publish("t", message(number))
    first = min(tmp_path.glob("*.journal"))
    said = "it is empty, and later journal files are not: its entries are lost"
    match harm:
        case "cut":
            first.write_bytes(b"")
        case "wiped":
            first.write_bytes(bytes(first.stat().st_size))
        case _:
            data = gzip.compress(first.read_bytes(), 1) if "cut" in harm else b"nothing of the kind"
            first.unlink()
            first = first.with_name(f"{first.name}.gz")
            first.write_bytes(data[:5] if "cut" in harm else data)
            said = "damaged: it does not begin as a compressed journal file"
    with pytest.raises(PipelineError, match=f"{first.name}: {said}"):
        read(tmp_path, damaged=damaged)


@pytest.mark.parametrize("damaged", ["skip", "fail"])
def test_a_journal_of_a_later_version_is_refused(
    unfinished: Path, tmp_path: Path, damaged: str
) -> None:
    """It is whole, so that nothing of it is passed over."""
    copy = tmp_path / unfinished.name
    data = bytearray(unfinished.read_bytes())
    data[8] = VERSION + 1
    data[2044:2048] = crc32c(bytes(data[:2044])).to_bytes(4, "little")
    copy.write_bytes(data)
    said = rf"{copy.name}: its format has version 2; this program reads 1, so a later Amperage"
    with pytest.raises(PipelineError, match=said):
        read(tmp_path, damaged=damaged)
