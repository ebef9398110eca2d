"""A damaged body is put back in place: the log is what it was, byte by byte, or stays as it is."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.storage.journal import LogSpan
from tests.storage.journal.support import Bench, FailingDisk, opened, read_all

COUNT = 60


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A log of several files."""
    with opened(tmp_path) as bench:
        topic = bench.journal.topic_handle("json", "orders")
        for sequence in range(1, COUNT + 1):
            data = b"#%06d" % sequence * (10_000 if sequence < COUNT // 2 else 10)
            correlation_id = b"cid" if sequence % 7 == 0 else b""
            bench.journal.append(topic, 1, sequence, data, correlation_id=correlation_id)
            bench.journal.commit()
        assert len(bench.journal.files) > 1
        yield bench


def paths(bench: Bench) -> list[Path]:
    return [file.path for file in bench.journal.files]


def damage(bench: Bench, *sequences: int) -> list[bytes]:
    """Flip a bit in entries; gives the files as they were."""
    before = [path.read_bytes() for path in paths(bench)]
    for sequence in sequences:
        for path in paths(bench):
            content = bytearray(path.read_bytes())
            place = content.find(b"#%06d" % sequence)
            if place >= 0:
                content[place + 1] ^= 4
                path.write_bytes(content)
                break
    return before


def bodies(bench: Bench) -> list[int]:
    return [entry.sequence for entry in read_all(bench.journal)]


@pytest.mark.parametrize("sequences", [(3,), (14,), (3, 4, 5), (COUNT,), (1, COUNT)])
def test_what_is_put_back_makes_the_log_what_it_was(
    bench: Bench, sequences: tuple[int, ...]
) -> None:
    journal = bench.journal
    txids = {sequence: journal.find(1, sequence) for sequence in sequences}
    data = {one.sequence: one for one in read_all(journal)}
    extras = {}
    for sequence in sequences:
        txid = txids[sequence]
        assert txid is not None
        (run,) = journal.replay(LogSpan(txid - 1, last_txid=txid)).read_entry_range(1).batches()
        extras[sequence] = run.data[0]
    before = damage(bench, *sequences)
    assert bodies(bench) == [one for one in range(1, COUNT + 1) if one not in sequences]
    damaged = {}
    for sequence in sequences:
        found = journal.body_repair.find_damaged_bodies(txids[sequence] or 0)
        damaged[sequence] = next(one for one in found if one.sequence == sequence)
        assert (damaged[sequence].txid, damaged[sequence].client) == (txids[sequence], 1)
    for sequence, one in damaged.items():
        assert journal.body_repair.replace_body(one, extras[sequence])
    assert bodies(bench) == list(range(1, COUNT + 1))
    assert {one.sequence: one for one in read_all(journal)} == data
    assert [path.read_bytes() for path in paths(bench)] == before
    assert journal.body_repair.find_damaged_bodies(journal.first_txid) == []


@pytest.mark.parametrize("data", [b"", b"#000003", b"#000003" * 10_000 + b"x", b"#000004" * 10_000])
def test_what_is_not_the_body_is_not_put_there(bench: Bench, data: bytes) -> None:
    damage(bench, 3)
    after = [path.read_bytes() for path in paths(bench)]
    (damaged,) = bench.journal.body_repair.find_damaged_bodies(bench.journal.first_txid)
    assert not bench.journal.body_repair.replace_body(damaged, data)
    assert [path.read_bytes() for path in paths(bench)] == after


def test_the_record_of_an_entry_is_believed_only_if_it_checks(bench: Bench) -> None:
    damage(bench, 3)
    (damaged,) = bench.journal.body_repair.find_damaged_bodies(bench.journal.first_txid)
    path = paths(bench)[0]
    content = bytearray(path.read_bytes())
    content[-96 * 5 + 20] ^= 1  # of the same entry, behind runs, a definition and two others
    path.write_bytes(content)
    assert bench.journal.body_repair.find_damaged_bodies(bench.journal.first_txid) == []
    assert not bench.journal.body_repair.replace_body(damaged, b"#000003" * 10_000)


def test_a_compressed_file_is_left_alone(bench: Bench) -> None:
    damage(bench, 3)
    (damaged,) = bench.journal.body_repair.find_damaged_bodies(bench.journal.first_txid)
    bench.journal.compress(bench.journal.files[0].number)
    (path, *_) = paths(bench)
    assert path.suffix == ".gz"
    before = gzip.decompress(path.read_bytes())
    assert bench.journal.body_repair.find_damaged_bodies(bench.journal.first_txid) == []
    assert not bench.journal.body_repair.replace_body(damaged, b"#000003" * 10_000)
    assert gzip.decompress(path.read_bytes()) == before


def test_a_disk_that_fails_leaves_the_entry_damaged(tmp_path: Path) -> None:
    disk = FailingDisk()
    with opened(tmp_path, disk) as bench:
        topic = bench.journal.topic_handle("json", "orders")
        bench.journal.append(topic, 1, 1, b"#000001" * 100)
        bench.journal.commit()
        damage(bench, 1)
        (damaged,) = bench.journal.body_repair.find_damaged_bodies(bench.journal.first_txid)
        disk.broken = True
        with pytest.raises(OSError, match="Input/output"):
            bench.journal.body_repair.replace_body(damaged, b"#000001" * 100)
        disk.broken = False
        assert bodies(bench) in ([], [1])
        assert bench.journal.body_repair.replace_body(damaged, b"#000001" * 100)
        assert bodies(bench) == [1]


def test_an_entry_is_found_that_has_the_name_of_an_earlier_one(bench: Bench) -> None:
    journal = bench.journal
    first = journal.find(1, 3)
    assert first is not None
    assert journal.find_later(1, 3, first) is None
    topic = journal.topic_handle("json", "orders")
    again = journal.append(topic, 1, 3, b"again")
    journal.commit()
    assert journal.find_later(1, 3, first) == again
    assert journal.find_later(1, 3, again) is None
