"""Recovery at a start: finds the files, checks that they form a log, and finds its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from server.storage.journal.errors import JournalError, JournalEvent, JournalNotice, reason
from server.storage.journal.files import (
    JournalFile,
    open_source,
    read_page,
    salvage_header,
    unpack_page,
)
from server.storage.journal.format.entry import EVENTS, JournalEntryKind
from server.storage.journal.format.file_names import clients_name, journal_files, unfinished_files
from server.storage.journal.format.layout import (
    CLIENT,
    KIND,
    MARK_SIZE,
    ORIGIN,
    RECORD_SIZE,
    SEQUENCE,
    SOURCE,
    SOURCE_TXID,
    TIMESTAMP,
    TOPIC,
    TXID,
    EntryRow,
    FileSeal,
    JournalFileHeader,
    JournalFormatError,
    pack_header,
)
from server.storage.journal.format.records import (
    CHUNK,
    FileDefinitions,
    make_file_definitions,
    read_bodies,
    read_body,
    read_rows,
    scan_columns,
)
from server.storage.journal.format.sequence_summary import numbered
from server.storage.journal.log_end import MAX_COMMIT_ENTRIES, FileExtent, find_file_extent
from server.storage.journal.publisher_table import (
    PublisherSequences,
    PublisherTable,
    unpack_clients,
)
from server.storage.journal.recovery.foreign_files import (
    MIN_JOURNAL_FILE_SIZE,
    find_foreign_journals,
)
from server.storage.journal.recovery.truncation import cut_off
from server.storage.journal.runs import decode_runs
from server.storage.journal.sequence_gaps import SequenceGaps, decode_note
from server.storage.journal.storage import Disk, FileSource
from server.storage.journal.write.commit_queue import MAX_UNCOMMITTED_BYTES, CommitStream, LiveFile
from server.storage.journal.write.committer import make_file_watermark


@dataclass(slots=True)
class LogRecoveryResult:
    """The result of recovery.

    Attributes:
        files: the files with entries; the last may still have free space.
        live_file: the last file, opened for writing, if it has free space.
        live_extent: the written part of that file.
        blank_files: empty files for later.
        next_number: number of the next file to be made.
        sequences: the table of publishers.
        sequence_gaps: missing sequence numbers of publishers.
        last_txid: txid of the last entry ever recorded, 0 if there is no trace of any.
        publishers_txid: the txid up to which the stored table of publishers is valid.
        runs: the first txid and the number of each earlier run.
    """

    files: list[JournalFile]
    live_file: LiveFile | None
    live_extent: FileExtent
    blank_files: list[LiveFile]
    next_number: int
    sequences: PublisherSequences
    sequence_gaps: SequenceGaps
    last_txid: int
    publishers_txid: int
    runs: list[tuple[int, int]]


class LogRecovery:
    """Recovers the log from the files of an instance.

    Args:
        instance: name of the instance.
        directory: directory of its journal files.
        archive: directory of archived files, if there is one.
        disk: gives access to them.
        notice: called for each problem that was found and repaired.
    """

    def __init__(
        self,
        instance: str,
        directory: Path,
        archive: Path | None,
        disk: Disk,
        notice: Callable[[JournalNotice], None],
    ) -> None:
        self._instance = instance
        self._directory = directory
        self._archive = archive
        self._disk = disk
        self._notice = notice
        self._sequences: PublisherSequences = {}
        self._sequence_gaps = SequenceGaps()
        self._publishers_txid = 0  # the txid up to which the stored table of publishers is valid
        self._runs: list[tuple[int, int]] = []  # as recorded in the last file

    def run(self) -> LogRecoveryResult:
        """Check all files, cut off an unfinished commit, and rebuild the table of publishers.

        Raises:
            JournalError: the files do not make up a log.
            OSError: they cannot be read or written.
        """
        for foreign_file in find_foreign_journals(self._instance, self._directory, self._archive):
            raise JournalError(f"{foreign_file.path}: {foreign_file.problem}")
        self._read_publishers()
        paths = self._find_journal_files()
        used, blank = self._split_used_and_blank(paths)
        files: list[JournalFile] = []
        live, extent = None, FileExtent()
        for index, (header, seal, path) in enumerate(used):
            self._check_chain(files, header, path)
            is_last = index == len(used) - 1
            if seal is None and is_last and self._is_writable(path):
                live, extent = self._recover_live(header, path)
                file = JournalFile(
                    header.number, path, header.size, header.first_txid, header.created
                )
                file = _with_names(file, live.definitions)
            else:
                # The next file was begun when all of this one was on stable storage.
                durable_txid = (
                    self._publishers_txid if is_last else used[index + 1][0].first_txid - 1
                )
                file = self._recover_full(header, seal, path, durable_txid)
            files.append(file)
        last_txid = self._check_end(files, extent)
        if used and used[-1][1] is not None:
            self._report_missing_file(used[-1][2], last_txid)
        return LogRecoveryResult(
            files,
            live,
            extent,
            blank,
            max([file.number for file in files] + [file.number for file in blank], default=-1) + 1,
            self._sequences,
            self._sequence_gaps,
            last_txid,
            self._publishers_txid,
            self._runs or _runs_in(files),
        )

    def _find_journal_files(self) -> dict[int, Path]:
        """Return all journal files by number, without gaps; remove unfinished files."""
        for directory in (self._directory, self._archive):
            for path in unfinished_files(directory, self._instance) if directory else ():
                self._disk.remove(path)
        archived = journal_files(self._archive, self._instance) if self._archive else {}
        paths = {**archived, **journal_files(self._directory, self._instance)}
        numbers = sorted(paths)
        for before, after in pairwise(numbers):
            if after != before + 1:
                name, next_name = paths[before].name, paths[after].name
                raise JournalError(
                    f"{self._directory}: the transaction log has a gap: "
                    f"{_describe_numbers(before + 1, after - 1)} missing between {name} and "
                    f"{next_name}; restore the missing files, or move {name} and all files before"
                    " it away as well"
                )
        return {number: paths[number] for number in numbers}

    def _split_used_and_blank(
        self, paths: Mapping[int, Path]
    ) -> tuple[list[tuple[JournalFileHeader, FileSeal | None, Path]], list[LiveFile]]:
        """Return the files with entries, and the empty files."""
        used: list[tuple[JournalFileHeader, FileSeal | None, Path]] = []
        blank: list[tuple[int, Path]] = []
        for number, path in paths.items():
            header, seal = self._read_header(number, path)
            if header is None:
                blank.append((number, path))
                continue
            if blank:
                raise JournalError(
                    f"{blank[0][1]}: is empty, but later files of the transaction log are not; "
                    "restore the original, or move it and all files before it away"
                )
            used.append((header, seal, path))
        return used, self._open_blank_files(blank)

    def _read_header(
        self, number: int, path: Path
    ) -> tuple[JournalFileHeader | None, FileSeal | None]:
        header, seal, problem = None, None, ""
        try:
            header, seal = unpack_page(read_page(path))
        except JournalFormatError as error:
            problem = str(error)
        if header is None:  # blank or damaged; a file with entries has lost its header page
            header = salvage_header(open_source(path), number, self._instance)
            if header is not None and problem:
                self._notice(JournalNotice(JournalEvent.DAMAGED, f"{path}: {problem}", str(path)))
        if header is not None and path.suffix != ".gz" and path.stat().st_size != header.size:
            raise JournalError(
                f"{path}: has {path.stat().st_size} bytes, expected {header.size}; "
                "restore the original"
            )
        if header is not None and header.number != number:
            raise JournalError(
                f"{path}: has the number {header.number}; "
                "files of the transaction log must keep their names"
            )
        if header is not None and header.instance != self._instance:
            raise JournalError(
                f"{path}: was written by the instance '{header.instance}', not by "
                f"'{self._instance}'; instances must not share their journals"
            )
        return header, seal

    def _check_chain(self, files: list[JournalFile], header: JournalFileHeader, path: Path) -> None:
        expected = files[-1].end_txid if files else None
        if expected is not None and header.first_txid != expected:
            raise JournalError(
                f"{path}: the transaction log has a gap: {files[-1].path.name} ends before entry "
                f"{expected}, and this file begins with {header.first_txid}; restore the "
                "original files, or move all files before this one away"
            )

    def _check_end(self, files: list[JournalFile], extent: FileExtent) -> int:
        """Return the txid of the last entry ever recorded, which the files must reach."""
        if not files:
            return self._publishers_txid
        end_txid = files[-1].end_txid
        last_txid = (files[-1].first_txid + extent.count if end_txid is None else end_txid) - 1
        if last_txid < self._publishers_txid:
            clients = self._directory / clients_name(self._instance)
            raise JournalError(
                f"{files[-1].path}: the transaction log ends with entry {last_txid}, but entry "
                f"{self._publishers_txid} was recorded: files are missing at the end; restore "
                f"them, or remove {clients} to continue without their entries"
            )
        return last_txid

    def _report_missing_file(self, path: Path, last_txid: int) -> None:
        """Report that the last file is sealed, but the file after it has no entries.

        Either that file had no commit yet, or it has lost its content; the two look alike.
        """
        text = (
            f"{path}: is full, and no entry follows its last one, {last_txid}, although the log"
            " was about to continue in another file; any entries of that file are lost"
        )
        self._notice(JournalNotice(JournalEvent.TORN_TAIL, text, str(path)))

    def _is_writable(self, path: Path) -> bool:
        return path.parent == self._directory and path.suffix != ".gz"

    def _open_blank_files(self, blank: Sequence[tuple[int, Path]]) -> list[LiveFile]:
        """Open empty files for later; remove the first one that is too small, and all after it."""
        files: list[LiveFile] = []
        for number, path in blank:
            if len(files) < number - blank[0][0] or path.stat().st_size < MIN_JOURNAL_FILE_SIZE:
                self._disk.remove(path)
            else:
                files.append(self._open_blank(number, path))
        return files

    def _open_blank(self, number: int, path: Path) -> LiveFile:
        descriptor = self._disk.open(path, writable=True)
        size = path.stat().st_size
        # A crash may have left part of a first commit, without its header.
        bottom = max(size - 2 * MAX_COMMIT_ENTRIES * RECORD_SIZE, 0)
        parts = (0, min(MAX_UNCOMMITTED_BYTES, bottom)), (bottom, size)
        truncation = cut_off(self._disk, path, descriptor, parts)
        if truncation is not None:
            text = (
                f"{path}: the first commit of this file was unfinished; its {truncation.size} "
                f"bytes were cut off and {truncation.copy_status}"
            )
            self._notice(JournalNotice(JournalEvent.TORN_TAIL, text, str(path)))
        return LiveFile(number, path, descriptor, size)

    def _recover_full(
        self, header: JournalFileHeader, seal: FileSeal | None, path: Path, durable_txid: int
    ) -> JournalFile:
        file = JournalFile(
            header.number, path, header.size, header.first_txid, header.created, seal
        )
        if seal is None:
            extent = find_file_extent(open_source(path), header.first_txid, durable_txid)
            self._report_damage(path, header, extent)
            seal = FileSeal(
                extent.count,
                extent.bodies_end,
                extent.extras_count,
                extent.first_timestamp,
                extent.last_timestamp,
            )
            file = JournalFile(
                header.number, path, header.size, header.first_txid, header.created, seal
            )
        if header.first_txid + seal.count - 1 > self._publishers_txid:
            self._add_file_sequences(file, seal)
        return file

    def _add_file_sequences(self, file: JournalFile, seal: FileSeal) -> None:
        index = file.read_index()
        if (
            index is not None
            and not index.gap_record_count
            and not self._sequence_gaps.missing_ranges
        ):
            for client, sequence_range in index.clients.items():
                self._add_sequence(client, sequence_range.last, sequence_range.time)
            return
        source = open_source(file.path)
        for start in range(0, seal.count, CHUNK):
            stop = min(start + CHUNK, seal.count)
            for row in read_rows(source, file.first_txid, start, stop):
                if row is not None:
                    is_gap_record = row[KIND] == JournalEntryKind.MISSING
                    self._add_entry(row, read_bodies(source, [row])[0] if is_gap_record else None)

    def _add_entry(self, row: EntryRow, data: bytes | None) -> None:
        """Update the table of publishers with an entry; a damaged record of gaps is skipped."""
        if row[KIND] in EVENTS and (row[SEQUENCE] != row[TXID] or row[SOURCE]):
            self._add_sequence(row[CLIENT], row[SEQUENCE], row[TIMESTAMP])
            if self._sequence_gaps.missing_ranges:
                self._sequence_gaps.remove_recorded(row[CLIENT], row[SEQUENCE], row[SEQUENCE])
        if row[KIND] == JournalEntryKind.MISSING and data is not None:
            with suppress(msgspec.MsgspecError):
                self._sequence_gaps.apply_record(
                    row[SOURCE_TXID], decode_note(data), is_own=not row[SOURCE]
                )

    def _add_entries(
        self, records: npt.NDArray[np.void], data: Callable[[int], bytes | None]
    ) -> None:
        """Update the table of publishers with consecutive entries."""
        kinds = records["kind"]
        if self._sequence_gaps.missing_ranges or (kinds == JournalEntryKind.MISSING).any():
            for index, row in enumerate(records.tolist()):
                self._add_entry(row, data(index) if row[KIND] == JournalEntryKind.MISSING else None)
            return
        for sequence_range in numbered(records):
            self._add_sequence(sequence_range.client, sequence_range.last, sequence_range.time)

    def _set_runs(self, data: bytes) -> None:
        with suppress(msgspec.MsgspecError):
            self._runs = decode_runs(data)

    def _add_sequence(self, client: int, sequence: int, time: int) -> None:
        known = self._sequences.get(client, (0, 0))
        self._sequences[client] = (max(known[0], sequence), max(known[1], time))

    def _recover_live(self, header: JournalFileHeader, path: Path) -> tuple[LiveFile, FileExtent]:
        source = FileSource(path)
        definitions: FileDefinitions = make_file_definitions()

        visitor = LiveFileVisitor(definitions, self._add_entry, self._add_entries, self._set_runs)
        extent = find_file_extent(source, header.first_txid, self._publishers_txid, visitor)
        self._report_damage(path, header, extent)
        if header.number and not extent.count:
            text = (
                f"{path}: was begun after entry {header.first_txid - 1}, and has no entries; any "
                "that it had are lost"
            )
            self._notice(JournalNotice(JournalEvent.TORN_TAIL, text, str(path)))
        descriptor = self._disk.open(path, writable=True)
        live = LiveFile(header.number, path, descriptor, source.size, definitions)
        self._truncate_live(live, header, extent)
        self._disk.write(descriptor, pack_header(header), 0)
        self._disk.sync(descriptor)
        next_txid = header.first_txid + extent.count
        offset, watermark = make_file_watermark(
            CommitStream(live, next_txid, extent.count, extent.bodies_end)
        )
        self._disk.write(descriptor, watermark, offset)
        return live, extent

    def _truncate_live(self, live: LiveFile, header: JournalFileHeader, extent: FileExtent) -> None:
        """Cut off everything after the end, so that it is never taken for entries."""
        path, descriptor = live.path, live.descriptor
        top = live.size - RECORD_SIZE * extent.count
        if extent.has_watermark:
            self._disk.write(descriptor, bytes(MARK_SIZE), top - RECORD_SIZE)
        bottom = max(extent.bodies_end, top - 2 * MAX_COMMIT_ENTRIES * RECORD_SIZE)
        end = min(extent.bodies_end + MAX_UNCOMMITTED_BYTES, bottom)
        truncation = cut_off(
            self._disk, path, descriptor, ((extent.bodies_end, end), (bottom, top))
        )
        if truncation is not None:
            text = (
                f"{path}: the bytes after entry {header.first_txid + extent.count - 1} were "
                f"cut off ({extent.torn_slots} entries, {truncation.size} bytes) and "
                f"{truncation.copy_status}; nothing proves that these entries were durable, so "
                "they may never have been acknowledged"
            )
            self._notice(JournalNotice(JournalEvent.TORN_TAIL, text, str(path)))

    def _report_damage(self, path: Path, header: JournalFileHeader, extent: FileExtent) -> None:
        if extent.damaged_numbers:
            txid, count = header.first_txid + extent.damaged_numbers[0], len(extent.damaged_numbers)
            damage = f"entry {txid} is" if count == 1 else f"{count} entries, from {txid} on, are"
            text = f"{path}: {damage} damaged, although durable before; the others are kept"
            self._notice(JournalNotice(JournalEvent.DAMAGED, text, str(path), txid))

    def _read_publishers(self) -> None:
        path = self._directory / clients_name(self._instance)
        try:
            table = unpack_clients(path.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, JournalFormatError) as problem:
            cause = reason(problem) if isinstance(problem, OSError) else str(problem)
            text = f"{path}: {cause}; it is rebuilt from the journals"
            self._notice(JournalNotice(JournalEvent.DAMAGED, text, str(path)))
            return
        self._set_publishers(table)

    def _set_publishers(self, table: PublisherTable) -> None:
        self._publishers_txid = table.txid
        self._sequences = dict(table.sequences)
        self._sequence_gaps = SequenceGaps(table.missing_ranges)


class LiveFileVisitor:
    """Processes each intact entry of the live file, in order.

    Args:
        definitions: filled with the topics and origins that entries define.
        on_entry: updates the table of publishers with an entry.
        on_entries: updates it with consecutive entries.
        on_runs: called with the body of an entry about runs.
    """

    def __init__(
        self,
        definitions: FileDefinitions,
        on_entry: Callable[[EntryRow, bytes], None],
        on_entries: Callable[[npt.NDArray[np.void], Callable[[int], bytes]], None],
        on_runs: Callable[[bytes], None],
    ) -> None:
        self._definitions = definitions
        self._on_entry = on_entry
        self._on_entries = on_entries
        self._on_runs = on_runs

    def visit_entry(self, row: EntryRow, data: bytes) -> None:
        """Process an entry: its record, and body with extras."""
        self._add_definition(row, data)
        self._on_entry(row, data)

    def visit_entries(self, records: npt.NDArray[np.void], data: Callable[[int], bytes]) -> None:
        """Process consecutive entries.

        Args:
            records: their records, of `RECORD_TYPE`.
            data: reads the body with extras of an entry, by its place in `records`.
        """
        for index in np.flatnonzero(records["kind"] >= JournalEntryKind.DEFINE_TOPIC).tolist():
            self._add_definition(records[index].item(), data(index))
        self._on_entries(records, data)

    def _add_definition(self, row: EntryRow, data: bytes) -> None:
        self._definitions.add_definition(row[KIND], row[TOPIC], row[ORIGIN], data)
        if row[KIND] == JournalEntryKind.RUNS:
            self._on_runs(data)


def _runs_in(files: Sequence[JournalFile]) -> list[tuple[int, int]]:
    """Return the runs in the last readable entry about runs, in full files."""
    for file in reversed(files):
        if file.seal is None:
            continue
        source = open_source(file.path)
        for start, records in scan_columns(source, file.seal.count):
            for index in reversed(
                np.flatnonzero(records["kind"] == JournalEntryKind.RUNS).tolist()
            ):
                number = start + index
                rows = read_rows(source, file.first_txid, number, number + 1)
                data = None if rows[0] is None else read_body(source, rows[0])
                with suppress(msgspec.MsgspecError):
                    if data is not None:
                        return decode_runs(data)
    return []


def _with_names(file: JournalFile, definitions: FileDefinitions) -> JournalFile:
    return JournalFile(
        file.number, file.path, file.size, file.first_txid, file.created, file.seal, definitions
    )


def _describe_numbers(first: int, last: int) -> str:
    return f"number {first} is" if first == last else f"numbers {first} to {last} are"
