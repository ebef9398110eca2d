"""Where a file ends is the same whether its slots are looked at together or one by one."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from server.storage.journal import log_end
from server.storage.journal.files import JournalFile, open_source
from server.storage.journal.format.entry import JournalEntryKind
from server.storage.journal.format.layout import PAGE, RECORD_SIZE, EntryRow
from server.storage.journal.log_end import FileExtent, find_file_extent
from server.storage.journal.recovery.log_recovery import LiveFileVisitor
from tests.storage.journal.support import Bench
from tests.support.chances import examples

ONE_BY_ONE = 1 << 20
"""Slots with blank ones among them, whatever the file: each is looked at by itself."""


class Seen(LiveFileVisitor):
    """What a visitor is given."""

    def __init__(self) -> None:
        self.entries: list[tuple[EntryRow, bytes]] = []

    def visit_entry(self, row: EntryRow, data: bytes) -> None:
        self.entries.append((row, data))

    def visit_entries(self, records: npt.NDArray[np.void], data: Callable[[int], bytes]) -> None:
        for place, row in enumerate(records.tolist()):
            self.entries.append((row, data(place)))


@contextmanager
def blocks_of(count: int) -> Iterator[None]:
    before, log_end.SCAN_BATCH_SIZE = log_end.SCAN_BATCH_SIZE, count
    try:
        yield
    finally:
        log_end.SCAN_BATCH_SIZE = before


def write(directory: Path, source: random.Random) -> JournalFile:
    """A file, some of whose commits the last of which may not have been noted as safe."""
    bench = Bench(directory)
    journal = bench.journal
    for _ in range(source.choice((0, 1, 3, 10))):
        for _ in range(source.choice((1, 4, 30))):
            topic = journal.topic_handle("json", source.choice("ab"))
            origin = journal.origin_handle(source.choice(("", "user")))
            kind = source.choice(
                (
                    JournalEntryKind.PUBLISH,
                    JournalEntryKind.PUBLISH,
                    JournalEntryKind.SOW_DELETE,
                    JournalEntryKind.NO_OP,
                )
            )
            body = source.randbytes(source.choice((0, 1, 50, 5000)))
            mark = source.choice((b"", b"mark"))
            bench.clock.now += source.choice((0, 5))
            journal.append(
                topic, 7, source.randrange(9), body, kind, origin=origin, correlation_id=mark
            )
        assert journal.commit()
    (file,) = journal.files
    journal.close()
    return file


def spoil(path: Path, source: random.Random) -> None:
    """Let some of a file be lost, or be something else."""
    content = bytearray(path.read_bytes())
    end = len(content)
    for _ in range(source.choice((0, 0, 1, 3))):
        if source.random() < 0.5:
            place = end - source.randrange(1, 200) * RECORD_SIZE
            count = source.choice((1, 1, 20)) * RECORD_SIZE
        else:
            place, count = PAGE + source.randrange(20_000), source.choice((1, 400))
        for offset in range(place, min(place + count, end)):
            content[offset] = source.choice((0, content[offset] ^ 1))
    path.write_bytes(content)


@settings(deadline=None, max_examples=examples(60, 6))
@given(seed=st.integers(0, 10**9), count=st.sampled_from([1, 2, 3, 7, 20]))
def test_the_end_of_a_file_does_not_depend_on_how_many_slots_are_looked_at_together(
    seed: int, count: int
) -> None:
    source = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        file = write(Path(directory), source)
        spoil(file.path, source)
        safe = file.first_txid + source.choice((-1, 5, 500))
        found: list[tuple[FileExtent, list[tuple[EntryRow, bytes]]]] = []
        for together in (count, ONE_BY_ONE):
            seen = Seen()
            with blocks_of(together):
                found.append(
                    (
                        find_file_extent(open_source(file.path), file.first_txid, safe, seen),
                        seen.entries,
                    )
                )
        assert found[0] == found[1]
        assert found[0][0].count - len(found[0][0].damaged_numbers) == len(found[0][1])
