"""Bytes are flipped anywhere: readers leave out what is damaged, and never invent anything."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.storage.journal import JournalEntry, JournalError, LogSpan
from server.storage.journal.files import open_source
from server.storage.journal.format.layout import PAGE, JournalFormatError
from server.storage.journal.index import unpack_index, unpack_topic_index
from server.storage.journal.inspection import JournalReader
from server.storage.journal.publisher_table import unpack_clients
from tests.storage.journal.support import FILE, Bench, opened, read_all, read_next
from tests.support.chances import examples

Body = tuple[int, bytes]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Body]]:
    """A log of three files, its helpers, and what is in it."""
    directory = tmp_path_factory.mktemp("original")
    with opened(directory, with_topic_index=True) as bench:
        for sequence in range(1, 301):
            topic = bench.journal.topic_handle("json", f"topic{sequence % 3}")
            size = 30_000 if sequence % 5 == 0 else sequence
            body = sequence.to_bytes(4, "big") * (size // 4)
            correlation_id = b"cid" if sequence % 7 == 0 else b""
            origin = bench.journal.origin_handle("ann") if sequence % 11 == 0 else None
            bench.journal.append(
                topic, 1, sequence, body, origin=origin, correlation_id=correlation_id
            )
            if sequence % 20 == 0:
                bench.journal.commit()
        bench.journal.commit()
        known = [(one.sequence, one.body) for one in read_all(bench.journal)]
    assert len(known) == 300
    return directory, known


def damage(data: bytearray, chance: random.Random) -> None:
    """Flip bits, or overwrite, cut off or repeat a piece, where it is likely to hurt."""
    places = [
        lambda: chance.randrange(len(data)),
        lambda: chance.randrange(min(len(data), PAGE)),
        lambda: max(len(data) - 1 - chance.randrange(40 * 96), 0),
    ]
    for _ in range(chance.choice((1, 1, 2, 30))):
        if not data:
            return
        place = chance.choice(places)()
        length = chance.choice((1, 1, 4, 96, 5_000))
        match chance.randrange(5):
            case 0 | 1:
                data[place] ^= 1 << chance.randrange(8)
            case 2:
                data[place : place + length] = chance.randbytes(len(data[place : place + length]))
            case 3:
                other = chance.choice(places)()
                piece = data[other : other + length]
                data[place : place + len(piece)] = piece
            case 4:
                if chance.random() < 0.2:
                    del data[place:]
                else:
                    data[place : place + length] = bytes(len(data[place : place + length]))


def is_part_of(found: list[Body], known: list[Body]) -> bool:
    """Whether `found` is `known` with some left out."""
    rest = iter(known)
    return all(any(one == other for other in rest) for one in found)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(examples(60, 8)))
def test_a_damaged_file_is_read_as_far_as_it_goes(
    original: tuple[Path, list[Body]], tmp_path: Path, seed: int
) -> None:
    directory, known = original
    chance = random.Random(seed)
    path = chance.choice(sorted(directory.glob("*.journal")))
    data = bytearray(path.read_bytes())
    damage(data, chance)
    target = tmp_path / path.name
    target.write_bytes(data)
    try:
        reader = JournalReader(target)
        found = [slot.entry for slot in reader.slots()]
    except JournalFormatError:
        return
    bodies = [(one.sequence, one.body) for one in found if one is not None and one.sequence]
    assert is_part_of(bodies, known)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(examples(60, 8)))
def test_a_log_with_damage_is_opened_or_refused(
    original: tuple[Path, list[Body]], tmp_path: Path, seed: int
) -> None:
    directory, known = original
    chance = random.Random(1000 + seed)
    target = tmp_path / "journal"
    shutil.copytree(directory, target)
    path = chance.choice(sorted(target.iterdir()))
    data = bytearray(path.read_bytes())
    damage(data, chance)
    path.write_bytes(data)
    try:
        bench = Bench(target, with_topic_index=True)
    except JournalError:
        return
    entries = read_all(bench.journal)
    found = [(one.sequence, one.body) for one in entries]
    assert is_part_of(found, known)
    cursor, passed_on = bench.journal.replay(LogSpan(0)), list[JournalEntry]()
    while not cursor.is_caught_up:
        passed_on += read_next(cursor, 70, as_passage=True)
    assert passed_on == entries
    topic = bench.journal.topic_handle("json", "topic0")
    txid = bench.journal.append(topic, 9, 1, b"after")
    bench.journal.commit()
    assert bench.journal.find(9, 1) == txid
    bench.journal.close()


@pytest.mark.parametrize("as_passage", [True, False])
@pytest.mark.long
@pytest.mark.parametrize("seed", range(examples(20, 4)))
def test_damage_under_a_running_replay(
    original: tuple[Path, list[Body]], tmp_path: Path, seed: int, as_passage: bool
) -> None:
    directory, known = original
    chance = random.Random(2000 + seed)
    target = tmp_path / "journal"
    shutil.copytree(directory, target)
    bench = Bench(target, with_topic_index=True)
    cursor = bench.journal.replay(LogSpan(0))
    entries = read_next(cursor, 20, as_passage=as_passage)
    for file in bench.journal.files:
        data = bytearray(file.path.read_bytes())
        damage(data, chance)
        file.path.write_bytes(data)
    while not cursor.is_caught_up:
        entries += read_next(cursor, 20, as_passage=as_passage)
    found = [(one.sequence, one.body) for one in entries]
    assert is_part_of(found, known)
    bench.journal.find(1, 150)
    bench.journal.first_since(bench.clock.now)
    bench.journal.close()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(examples(10, 3)))
def test_a_damaged_compressed_file(
    original: tuple[Path, list[Body]], tmp_path: Path, seed: int
) -> None:
    directory, known = original
    chance = random.Random(3000 + seed)
    target = tmp_path / "journal"
    shutil.copytree(directory, target)
    bench = Bench(target)
    bench.journal.compress(0)
    bench.journal.close()
    path = target / "TEST.0000000000.journal.gz"
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 0x20
    path.write_bytes(data)
    try:
        bench = Bench(target)
    except JournalError:
        return
    assert is_part_of([(one.sequence, one.body) for one in read_all(bench.journal)], known)
    bench.journal.close()


@settings(max_examples=examples(200, 20), deadline=None)
@given(st.binary(max_size=300))
def test_helpers_made_of_anything_are_refused(data: bytes) -> None:
    for unpack in (unpack_index, unpack_clients, lambda one: unpack_topic_index(one, 5)):
        with pytest.raises(JournalFormatError):
            unpack(data)


def test_sources_give_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "x.journal.gz"
    path.write_bytes(b"no gzip")
    assert open_source(path).size == 0
    path = tmp_path / "x.journal"
    path.write_bytes(bytes(FILE))
    assert JournalReader(path).header is None
