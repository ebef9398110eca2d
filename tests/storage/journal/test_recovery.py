"""Coming back after power failures, damage, and people who move files."""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from server.storage.journal import Disk, GapRecord, JournalError, JournalEvent, encode_note
from server.storage.journal.format.entry import JournalEntryKind
from server.storage.journal.format.layout import RECORD_SIZE, JournalFileHeader, pack_header
from server.storage.journal.publisher_table import unpack_clients
from server.topics.refused_sequences import RefusedSequences
from tests.storage.journal.support import FILE, START, Bench, ForgetfulDisk, opened, read_all
from tests.support.chances import examples


def write(directory: Path, messages: int, size: int = 1_000, **settings: Any) -> None:
    """A closed journal with messages of client 1."""
    with opened(directory, **settings) as bench:
        topic = bench.journal.topic_handle("json", "orders")
        for sequence in range(1, messages + 1):
            bench.journal.append(topic, 1, sequence, sequence.to_bytes(4, "big") * (size // 4))
        bench.journal.commit()


def sequences(bench: Bench) -> list[int]:
    return [entry.sequence for entry in read_all(bench.journal)]


HELPERS: Final = ("*.ack", "*.index.gz", "*.topic.index")


def forget_helpers(directory: Path, patterns: Sequence[str] = HELPERS) -> None:
    for pattern in patterns:
        for path in directory.glob(pattern):
            path.unlink()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(examples(40, 6)))
def test_power_failures_cost_nothing_that_was_durable(tmp_path: Path, seed: int) -> None:
    """Whatever sectors of an unfinished commit reached the disk, only all before it counts."""
    chance = random.Random(seed)
    directory = tmp_path / "journal"
    sequence = safe = 0
    bodies: dict[int, bytes] = {}
    for round_ in range(3):
        disk = ForgetfulDisk()
        bench = Bench(directory, disk)
        topic = bench.journal.topic_handle("json", f"orders{round_ % 2}")
        found = read_all(bench.journal)
        assert [one.sequence for one in found] == list(range(1, len(found) + 1))
        assert safe <= len(found) <= sequence
        assert all(one.body == bodies[one.sequence] for one in found)
        assert bench.journal.last_sequence(1) == len(found)
        assert "DAMAGED" not in bench.events()
        sequence = len(found)
        for _ in range(chance.randrange(1, 6)):
            for _ in range(chance.randrange(1, 40)):
                sequence += 1
                bodies[sequence] = chance.randbytes(chance.choice((0, 10, 300, 20_000)))
                bench.journal.append(topic, 1, sequence, bodies[sequence])
            bench.journal.commit()
            safe = sequence
        for _ in range(chance.randrange(1, 200)):
            sequence += 1
            bodies[sequence] = chance.randbytes(chance.choice((0, 10, 300, 5_000)))
            bench.journal.append(topic, 1, sequence, bodies[sequence])
        disk.power_is_failing = True
        assert not bench.journal.commit()
        crashed = tmp_path / f"crashed{round_}"
        disk.fail_power(chance)
        shutil.copytree(directory, crashed)
        disk.power_is_failing = False
        bench.journal.close()
        shutil.rmtree(directory)
        crashed.rename(directory)


def test_an_unfinished_commit_is_cut_off_and_reported(tmp_path: Path) -> None:
    write(tmp_path, 10)
    with opened(tmp_path) as bench:
        path = bench.journal.files[0].path
    with path.open("r+b") as file:  # half of a record behind the last
        file.seek(FILE - RECORD_SIZE * 12 - 50)
        file.write(b"torn")
    with opened(tmp_path) as bench:
        assert sequences(bench) == list(range(1, 11))
        (notice,) = [one for one in bench.notices if one.event is JournalEvent.TORN_TAIL]
        assert path.name in notice.text
    with opened(tmp_path) as bench:
        assert JournalEvent.TORN_TAIL not in {one.event for one in bench.notices}


def test_a_damaged_entry_that_was_acknowledged_costs_only_itself(tmp_path: Path) -> None:
    write(tmp_path, 20)
    with opened(tmp_path) as bench:
        path = bench.journal.files[0].path
        entries = read_all(bench.journal)
    data = bytearray(path.read_bytes())
    position = data.find(entries[9].body)
    data[position] ^= 1
    path.write_bytes(data)
    with opened(tmp_path) as bench:
        assert sequences(bench) == [*range(1, 10), *range(11, 21)]
        damaged = [one for one in bench.notices if one.event is JournalEvent.DAMAGED]
        assert damaged[0].txid == entries[9].txid
        bench.journal.append(bench.journal.topic_handle("json", "orders"), 1, 21, b"x")
        bench.journal.commit()
        assert sequences(bench)[-1] == 21


@pytest.mark.parametrize("helpers", [True, False])
def test_the_last_entry_is_not_taken_for_unfinished_when_it_was_safe(
    tmp_path: Path, helpers: bool
) -> None:
    """Nor after a start since then, which a kill has ended."""
    write(tmp_path, 20)
    with opened(tmp_path) as bench:
        path = bench.journal.files[0].path
        last = read_all(bench.journal)[-1]
    if not helpers:
        forget_helpers(tmp_path)
    data = bytearray(path.read_bytes())
    data[data.find(last.body)] ^= 1
    path.write_bytes(data)
    with opened(tmp_path) as bench:
        assert "DAMAGED" in bench.events()
        assert "TORN_TAIL" not in bench.events()
        assert bench.journal.last_txid == last.txid


def killed_in_the_middle(directory: Path, left: Path) -> list[bytes]:
    """What a process leaves that is killed after two commits; gives the bodies in order."""
    bodies = [bytes([65 + number]) * 3_000 for number in range(20)]
    with opened(directory) as bench:
        topic = bench.journal.topic_handle("json", "orders")
        for sequence, body in enumerate(bodies, 1):
            bench.journal.append(topic, 1, sequence, body)
            if sequence in (10, 20):
                bench.journal.commit()
        shutil.copytree(directory, left)
    return bodies


@pytest.mark.parametrize("where", ["body", "record"])
@pytest.mark.parametrize("entry", [1, 5, 10, 11, 15, 20])
def test_a_flipped_bit_costs_the_entry_that_it_is_in(
    tmp_path: Path, entry: int, where: str
) -> None:
    """Also in the last commit before the process was killed, and also if it is the last entry."""
    left = tmp_path / "left"
    body = killed_in_the_middle(tmp_path / "journal", left)[entry - 1]
    path = left / "TEST.0000000000.journal"
    data = bytearray(path.read_bytes())
    # Before the messages there are the runs and a definition.
    data[data.find(body) if where == "body" else FILE - RECORD_SIZE * (entry + 2) + 20] ^= 4
    path.write_bytes(data)
    with opened(left) as bench:
        assert bench.events().count("DAMAGED") == 1
        others = [one for one in range(1, 21) if one != entry]
        assert sequences(bench) == others
        assert "TORN_TAIL" not in bench.events()
        bench.journal.append(bench.journal.topic_handle("json", "orders"), 1, 21, b"x")
        bench.journal.commit()
        assert sequences(bench) == [*others, 21]
    assert not list(left.glob("*.cut-*"))
    if where == "record":  # what may be salvaged by hand is not overwritten
        assert body in path.read_bytes()


def test_what_is_cut_off_is_kept(tmp_path: Path) -> None:
    """In its places, beside the journal, and never in the place of what was kept before."""
    left = tmp_path / "left"
    bodies = killed_in_the_middle(tmp_path / "journal", left)
    path = left / "TEST.0000000000.journal"
    original = path.read_bytes()
    damaged = bytearray(original)
    damaged[FILE - RECORD_SIZE * 23 : FILE - RECORD_SIZE * 22] = bytes(RECORD_SIZE)  # the mark
    start = damaged.find(bodies[14])
    damaged[start] ^= 1
    for number in (1, 2):
        path.write_bytes(damaged)
        with opened(left) as bench:
            assert sequences(bench) == list(range(1, 15))
            (notice,) = [one for one in bench.notices if one.event is JournalEvent.TORN_TAIL]
            kept = left / f"{path.name}.cut-{number}"
            assert f"are kept in {kept}" in notice.text
            assert "may never have been acknowledged" in notice.text
        end = start + 6 * 3_000
        assert kept.read_bytes()[start:end] == damaged[start:end]
        records = slice(FILE - RECORD_SIZE * 22, FILE - RECORD_SIZE * 16)
        assert kept.read_bytes()[records] == damaged[records]
        assert kept.stat().st_size == FILE


def test_a_log_goes_on_although_there_is_no_space_to_keep_what_is_cut_off(tmp_path: Path) -> None:
    class Full(Disk):
        def create(self, path: Path) -> int:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    write(tmp_path, 10)
    path = tmp_path / "TEST.0000000000.journal"
    with path.open("r+b") as file:
        file.seek(FILE - RECORD_SIZE * 13)
        file.write(b"torn")
    with opened(tmp_path, Full()) as bench:
        (notice,) = [one for one in bench.notices if one.event is JournalEvent.TORN_TAIL]
        assert "could not be kept: " in notice.text
        assert "No space left on device" in notice.text
        assert sequences(bench) == list(range(1, 11))


@pytest.mark.parametrize("helpers", [True, False])
def test_publishers_are_known_again(tmp_path: Path, helpers: bool) -> None:
    write(tmp_path, 100, 50_000)
    if not helpers:
        forget_helpers(tmp_path)
    with opened(tmp_path) as bench:
        assert bench.journal.last_sequence(1) == 100
        assert sequences(bench) == list(range(1, 101))


@pytest.mark.parametrize("helpers", [True, False])
@pytest.mark.parametrize("files", [1, 3])
def test_publishers_of_other_instances_are_known_again(
    tmp_path: Path, files: int, helpers: bool
) -> None:
    body = bytes(FILE // 20)
    with opened(tmp_path) as bench:
        journal = bench.journal
        topic = journal.topic_handle("json", "orders")
        for _ in range(files * 15):
            # Two logs that were begun in the same second count alike.
            last = journal.append(topic, 7, journal.last_txid + 1, body, source=5, source_txid=9)
        journal.append(topic, 8, 20, body, source=5)
        journal.append(topic, 8, 3, body, source=5)  # it was missing
        assert journal.last_sequence(8) == 20
    if not helpers:
        forget_helpers(tmp_path)
    with opened(tmp_path) as bench:
        assert len(bench.journal.files) >= files
        assert bench.journal.last_sequence(7) >= last - 1  # one that begins a file has the next
        assert bench.journal.last_sequence(8) == 20


@pytest.mark.parametrize("forgotten", [(), HELPERS[:1], HELPERS])
def test_publishers_and_their_missing_numbers_are_known_again(
    tmp_path: Path, forgotten: Sequence[str]
) -> None:
    """Of a publisher that has sent nothing to the last file; one of its numbers came late."""
    body = bytes(FILE // 20)
    with opened(tmp_path) as bench:
        journal = bench.journal
        topic, none = journal.topic_handle("json", "orders"), journal.topic_handle("", "")
        refused_sequences = RefusedSequences(journal, lambda: None)
        journal.append(topic, 2, 9, b"x")
        refused_sequences.record_lost_sequences(2, [(5, 6)])
        for sequence in range(1, 61):
            if sequence == 25:
                journal.append(topic, 2, 5, b"x", source=5)
                refused_sequences.record_arrivals(2, (5,))
            if sequence == 45:
                note = encode_note(GapRecord(present_here=[(6, 6)]))  # in the log of another one
                journal.append(none, 7, 7, note, JournalEntryKind.MISSING, source_txid=2, source=5)
            journal.append(topic, 1, sequence, body)
    forget_helpers(tmp_path, forgotten)
    with opened(tmp_path) as bench:
        assert len(bench.journal.files) > 2
        assert [bench.journal.last_sequence(client) for client in (1, 2)] == [60, 9]
        assert list(bench.journal.sequence_gaps.rows()) == [(2, 6, 6)]


def test_the_table_of_publishers_is_that_of_the_end_of_a_full_file(tmp_path: Path) -> None:
    """A power failure may take what comes after that, and its publishers send it again."""
    with opened(tmp_path) as bench:
        journal = bench.journal
        topic = journal.topic_handle("json", "orders")
        RefusedSequences(journal, lambda: None).record_lost_sequences(2, [(5, 6)])
        for sequence in range(1, 31):
            journal.append(topic, 1, sequence, bytes(FILE // 20))
        journal.commit()
        (path,) = tmp_path.glob("*.clients.ack")
        table = unpack_clients(path.read_bytes())
        covered = [entry.sequence for entry in read_all(journal) if entry.txid <= table.txid]
        assert 1 < len(covered) < 30
        assert {client: known[0] for client, known in table.sequences.items()} == {1: covered[-1]}
        assert table.missing_ranges == [(2, 5, 6)]


def test_damaged_helpers_are_not_believed(tmp_path: Path) -> None:
    write(tmp_path, 100, 50_000, with_topic_index=True)
    chance = random.Random(1)
    for pattern in HELPERS:
        for path in tmp_path.glob(pattern):
            data = bytearray(path.read_bytes())
            data[chance.randrange(len(data))] ^= 0x10
            path.write_bytes(data)
    with opened(tmp_path, with_topic_index=True) as bench:
        assert bench.journal.last_sequence(1) == 100
        assert sequences(bench) == list(range(1, 101))
        assert bench.journal.find(1, 50) is not None


def test_publishers_that_have_been_silent_too_long_are_forgotten(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        topic = bench.journal.topic_handle("json", "orders")
        bench.journal.append(topic, 1, 10, b"x")
        RefusedSequences(bench.journal, lambda: None).record_lost_sequences(1, [(5, 6)])
        bench.clock.now += 3_600_000_000
        bench.journal.append(topic, 2, 20, b"x")
        bench.journal.commit()
    hour_and_more = 5_400_000_000_000
    bench = Bench(tmp_path, client_expiration=hour_and_more)
    assert (bench.journal.last_sequence(1), bench.journal.last_sequence(2)) == (10, 20)
    bench.journal.close()
    clock = bench.clock
    clock.now = START + 3_600_000_000 + 3_600_000_000
    bench = Bench(tmp_path, clock=clock, client_expiration=hour_and_more)
    assert (bench.journal.last_sequence(1), bench.journal.last_sequence(2)) == (0, 20)
    assert not list(bench.journal.sequence_gaps.rows())
    bench.journal.close()


def test_numbers_of_a_log_that_was_thrown_away_are_not_used_again(tmp_path: Path) -> None:
    write(tmp_path, 5)
    with opened(tmp_path) as bench:
        last = bench.journal.last_txid
    for path in tmp_path.glob("*.journal"):
        path.unlink()
    with opened(tmp_path) as bench:
        assert bench.journal.first_txid == last + 1


GAPS = [
    ([1], "number 1 is missing"),
    ([1, 2], "numbers 1 to 2 are missing"),
    ([-1], "files are missing at the end"),
]


@pytest.mark.parametrize(("missing", "text"), GAPS)
def test_a_log_with_a_gap_is_refused(tmp_path: Path, missing: list[int], text: str) -> None:
    write(tmp_path, 100, 50_000)
    with opened(tmp_path) as bench:
        files = bench.journal.files
    for path in tmp_path.glob("*.journal"):
        if path not in {file.path for file in files}:
            path.unlink()
    for number in missing:
        files[number].path.unlink()
    with pytest.raises(JournalError, match=text):
        Bench(tmp_path)


def test_the_oldest_files_may_be_taken_away_while_the_server_is_down(tmp_path: Path) -> None:
    write(tmp_path, 100, 50_000)
    with opened(tmp_path) as bench:
        bench.journal.files[0].path.unlink()
    with opened(tmp_path) as bench:
        assert sequences(bench) == list(range(21, 101))
        (notice,) = [one for one in bench.notices if one.event is JournalEvent.RECOVERED]
        first = f"it begins with TEST.0000000001.journal, entry {bench.journal.first_txid}: "
        assert first + "what was before that is gone" in notice.text


def test_a_file_that_has_lost_all_its_entries_is_spoken_of(tmp_path: Path) -> None:
    write(tmp_path, 100, 50_000)
    (tmp_path / "TEST.clients.ack").unlink()
    with opened(tmp_path) as bench:
        last = bench.journal.files[-1]
    (tmp_path / "TEST.clients.ack").unlink()
    with last.path.open("r+b") as file:
        file.seek(4096)
        file.write(bytes(FILE - 4096))
    with opened(tmp_path) as bench:
        (notice,) = [one for one in bench.notices if one.event is JournalEvent.TORN_TAIL]
        assert str(last.path) in notice.text
        assert f"begun after entry {last.first_txid - 1}, and has no entries" in notice.text


@pytest.mark.parametrize("operation", ["zeroed", "removed"])
def test_a_last_file_that_looks_unused_is_spoken_of(tmp_path: Path, operation: str) -> None:
    """The file before it is sealed only when the log goes on in this one."""
    write(tmp_path, 100, 50_000)
    with opened(tmp_path) as bench:
        *_, full, last = bench.journal.files
        assert not [one for one in bench.notices if one.event is JournalEvent.TORN_TAIL]
    (tmp_path / "TEST.clients.ack").unlink()
    if operation == "zeroed":
        last.path.write_bytes(bytes(FILE))
    else:  # with what was made in advance
        for path in tmp_path.glob("*.journal"):
            if path.name >= last.path.name:
                path.unlink()
    with opened(tmp_path) as bench:
        (notice,) = [one for one in bench.notices if one.event is JournalEvent.TORN_TAIL]
        assert str(full.path) in notice.text
        assert f"no entry follows its last one, {last.first_txid - 1}" in notice.text


def test_only_what_the_log_itself_has_left_half_made_is_removed(tmp_path: Path) -> None:
    ours = ["TEST.next.journal.tmp", "TEST.0000000001.index.gz.tmp", "TEST.clients.ack.new.tmp"]
    theirs = ["TEST.notes.tmp", "TESTED.clients.ack.tmp", "TEST.0000000001.journal.gz.tmp.old"]
    for name in ours + theirs:
        (tmp_path / name).touch()
    with opened(tmp_path):
        assert not [name for name in ours if (tmp_path / name).exists()]
        assert all((tmp_path / name).exists() for name in theirs)


@pytest.mark.parametrize("instance", ["TEST", "n" * 200])
@pytest.mark.parametrize("missing", [[0], [3], [0, 3]])
def test_a_header_of_which_some_sectors_were_written_is_none(
    tmp_path: Path, instance: str, missing: list[int]
) -> None:
    """The power failed during the first commit of a file: it is as good as blank."""
    with opened(tmp_path, instance=instance) as bench:
        topic = bench.journal.topic_handle("json", "orders")
        bench.journal.append(topic, 1, 1, b"x")
        bench.journal.commit()
        next_txid = bench.journal.last_txid + 1
    page = bytearray(pack_header(JournalFileHeader(1, FILE, next_txid, START, instance)))
    for sector in missing:
        page[512 * sector : 512 * (sector + 1)] = bytes(512)
    path = tmp_path / f"{instance}.0000000001.journal"
    path.write_bytes(page.ljust(FILE, b"\0"))
    with opened(tmp_path, instance=instance) as bench:
        assert sequences(bench) == [1]
        for sequence in range(2, 40):
            bench.journal.append(
                bench.journal.topic_handle("json", "orders"), 1, sequence, bytes(50_000)
            )
        bench.journal.commit()
        assert path in [file.path for file in bench.journal.files]
        assert sequences(bench) == list(range(1, 40))


@pytest.mark.parametrize("place", [0, 10, 30, 60, 2047])
def test_a_damaged_header_without_entries_is_not_taken_for_blank(
    tmp_path: Path, place: int
) -> None:
    with opened(tmp_path) as bench:
        path = bench.journal.files[0].path
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(JournalError, match="of Amperage"):
        Bench(tmp_path)
    assert path.read_bytes() == content


def swap(directory: Path) -> None:
    one, two = (directory / f"TEST.000000000{number}.journal" for number in (0, 1))
    between = directory / "between"
    one.rename(between)
    two.rename(one)
    between.rename(two)


def empty_first(directory: Path) -> None:
    (directory / "TEST.0000000000.journal").write_bytes(bytes(FILE))


@pytest.mark.parametrize(
    ("damage", "text"), [(swap, "keep their names"), (empty_first, "is empty")]
)
def test_files_that_do_not_belong_are_refused(
    tmp_path: Path, damage: Callable[[Path], None], text: str
) -> None:
    write(tmp_path, 100, 50_000)
    damage(tmp_path)
    with pytest.raises(JournalError, match=text):
        Bench(tmp_path)


def test_a_lost_header_is_made_again_from_the_entries(tmp_path: Path) -> None:
    write(tmp_path, 100, 50_000)
    for path in sorted(tmp_path.glob("*.journal"))[:5]:
        data = bytearray(path.read_bytes())
        if any(data):
            data[:4096] = random.Random(3).randbytes(4096)
            path.write_bytes(data)
    forget_helpers(tmp_path)
    with opened(tmp_path) as bench:
        assert sequences(bench) == list(range(1, 101))
        assert "DAMAGED" in bench.events()


def test_files_of_other_instances_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path, 10, instance="A")
    write(tmp_path, 20, instance="A.B")
    with opened(tmp_path, instance="A") as bench:
        assert sequences(bench) == list(range(1, 11))
    with opened(tmp_path, instance="A.B") as bench:
        assert sequences(bench) == list(range(1, 21))


def test_an_empty_file_of_no_size_is_made_anew(tmp_path: Path) -> None:
    write(tmp_path, 30, 50_000)
    numbers = [int(path.name.split(".")[1]) for path in tmp_path.glob("*.journal")]
    (tmp_path / f"TEST.{max(numbers) + 1:010}.journal").touch()
    (tmp_path / f"TEST.{max(numbers) + 2:010}.journal").write_bytes(bytes(FILE))
    with opened(tmp_path) as bench:
        topic = bench.journal.topic_handle("json", "orders")
        for sequence in range(31, 101):
            bench.journal.append(topic, 1, sequence, bytes(50_000))
        bench.journal.commit()
        assert sequences(bench) == list(range(1, 101))
