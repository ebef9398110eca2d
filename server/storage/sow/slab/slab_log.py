"""A log in a file of slabs; its oldest slabs are cleaned and reused.

Entries are only ever appended, at the *head*. A superseded entry stays in place until its slab,
being the oldest, is cleaned: its live entries are appended again, and the slab is free. Since the
oldest slab is always the one cleaned, no older entry is left that a deletion would have to hide, so
deletions need not be kept.

A recovery may still need a freed slab: until the commit point that frees it is itself on
stable storage, that is, until one more commit has completed. It is not written to before.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from server.storage.sow.group_commit import CommitJob, SowCommitter
from server.storage.sow.keys.key_source import NO_KEY
from server.storage.sow.record_batch import SowRecordBatch
from server.storage.sow.records import Record
from server.storage.sow.slab import slab_format as form
from server.storage.sow.slab.entry_writer import clean, write_batch
from server.storage.sow.slab.slab_file import SlabFile
from server.storage.sow.slab.slab_format import (
    ENTRY_TAIL,
    FIRST_ENTRY,
    CommitPoint,
    SlabEntryKind,
    SlabHeader,
)
from server.storage.sow.slab.slab_scan import SlabLogEnd
from server.storage.sow.store import RecordStoreError, RecordTooLargeError, StoreCallback
from server.util.encoding import text_to_bytes

_MAX_BOOKMARK_LENGTH: Final = 2 * len(str((1 << 64) - 1)) + 2
"""Bytes; a record gets its bookmark after space for it has been made."""

_MAX_ENTRY_OVERHEAD: Final = form.ENTRY.size + _MAX_BOOKMARK_LENGTH + 8
"""Bytes of an entry besides its texts and body, padding included."""

_MAX_BATCH_ENTRY_OVERHEAD: Final = _MAX_ENTRY_OVERHEAD + len(NO_KEY)
"""The same for a record of a batch, with its key, which is a number."""

_MAX_CHARACTER_SIZE: Final = 4
"""Bytes of one character, at most."""

_MAX_DELETION_RESERVE: Final = 1 << 16
"""Bytes at the end of the newest slab that are reserved for deletions when no slab is free."""


class _Slab(NamedTuple):
    slab_index: int
    epoch: int
    end: int


class SlabLog:
    """Appends entries, cleans slabs, commits.

    Args:
        file: the file, open for writing.
        log_end: the result of `scan_slabs` of the file.
        committer: the thread that synchronises files.
        on_synchronised: called after every synchronisation, with the error, or None.
        topic: the topic that entries need not name.

    Attributes:
        sequence: the highest sequence of any change.
        appended_bytes: bytes appended since the file was opened.
    """

    def __init__(
        self,
        file: SlabFile,
        log_end: SlabLogEnd,
        committer: SowCommitter,
        on_synchronised: Callable[[OSError | None], None],
        topic: str,
    ) -> None:
        self._file: Final = file
        self._guard: Final = file.guard
        self._committer: Final = committer
        self._on_synchronised: Final = on_synchronised
        self._topic: Final = topic
        self.slab_size: Final = file.slab_size
        self.sequence = 0
        self.appended_bytes = 0
        self._sealed_slabs = deque(
            _Slab(link.slab_index, link.header.epoch, link.end or FIRST_ENTRY)
            for link in log_end.extents
        )
        commit_point = file.commit_point
        self._commit_point = commit_point._replace(
            number=commit_point.number + 1, session=commit_point.session + 1
        )
        file.write_commit_point(self._commit_point)
        file.synchronise()
        self._next_epoch = max(log_end.highest_epoch + 1, self._commit_point.first_epoch)
        used = {slab.slab_index for slab in self._sealed_slabs}
        self._free_slabs = [index for index in range(len(file.slabs)) if index not in used]
        self._slabs_awaiting_commit: list[tuple[int, int]] = []  # epoch and index
        self._head_slab: _Slab | None = None
        self._position = 0
        self._head_map = file.slabs[0] if file.slabs else None
        self._reserved_slabs = 0  # free slabs that only new entries may begin
        self._deletion_reserve = min(self.slab_size // 16, _MAX_DELETION_RESERVE)
        self._deletion_reserve_start = self.slab_size - self._deletion_reserve
        self._clean_position = FIRST_ENTRY
        self._synchronisation = 0
        self._stable_tail = self._written_tail = commit_point.tail_epoch
        self._stable_point = self._commit_point
        self._failure: OSError | None = None

    # ---- appending

    @property
    def log_bytes(self) -> int:
        """Bytes of the slabs that hold the log."""
        return (len(self._sealed_slabs) + (self._head_slab is not None)) * self.slab_size

    @property
    def slab_count(self) -> int:
        """Number of slabs of the file."""
        return len(self._file.slabs)

    def _write_limit(self) -> int:
        """Return the end, in the newest slab, of the space for entries other than deletions'."""
        return self.slab_size if self._free_slabs else self.slab_size - self._deletion_reserve

    def ensure_space(self, records: Iterable[Record], *, to_delete: bool = False) -> None:
        """Make sure that entries of these records can be appended next, in sequence.

        Args:
            records: the records that the entries are about.
            to_delete: they serve deletions.

        Raises:
            RecordStoreError: an entry is too large, or there is no space. Nothing has been written.
        """
        if self._guard.lost:
            raise self._file.lost_content_error()
        slabs, position = 0, self.slab_size if self._head_slab is None else self._position
        records = list(records)
        max_text_bytes = _MAX_CHARACTER_SIZE * sum(
            [len(record.topic) + len(record.key) + len(record.correlation_id) for record in records]
        )
        max_bytes = max_text_bytes + sum(
            [len(record.body) + _MAX_ENTRY_OVERHEAD for record in records]
        )
        limit = self.slab_size if to_delete else self._write_limit()
        if max_text_bytes <= form.MAX_TEXT and position + max_bytes <= limit:
            self._reserved_slabs = 0  # the upper bound fits, as nearly always
            return
        for record in records:
            texts = [_octets(text) for text in (record.topic, record.key, record.correlation_id)]
            length = (
                form.ENTRY.size + sum(map(len, texts)) + _MAX_BOOKMARK_LENGTH + len(record.body)
            )
            self._check_size(length, *texts)
            size = (length + 7) & -8
            if position + size > self.slab_size:
                slabs += 1
                position = FIRST_ENTRY
            position += size
        if not to_delete and (slabs or position > limit):
            self._ensure_free_slabs(slabs + self._spare_slabs)
        self._ensure_free_slabs(slabs)
        self._reserved_slabs = slabs

    def ensure_space_for_batch(self, batch: SowRecordBatch) -> None:
        """Make sure that the records of a batch can be appended next. See `ensure_space`."""
        bodies, text_sizes = batch.bodies, [*map(len, batch.correlation_ids)]
        if not isinstance(batch.topic, str):
            text_sizes += map(len, batch.topic)
        text_sizes += [len(key) for key in batch.keys if isinstance(key, str)]
        max_text_bytes = [_MAX_CHARACTER_SIZE * size for size in text_sizes]
        max_bytes = (
            sum(map(len, bodies)) + _MAX_BATCH_ENTRY_OVERHEAD * len(bodies) + sum(max_text_bytes)
        )
        is_near_end = self._head_slab is None or self._position + max_bytes > self._write_limit()
        is_too_long = max(max_text_bytes, default=0) > form.MAX_TEXT
        if is_near_end or is_too_long or self._guard.lost:
            self.ensure_space(map(batch.record_at, range(len(bodies))))
        else:
            self._reserved_slabs = 0

    def append_batch(self, batch: SowRecordBatch, start: int) -> tuple[int, array[int]]:
        """Write entries for records of a batch, as many as fit without a check between them.

        Args:
            batch: the records.
            start: the index of the first of them.

        Returns:
            The location of the first entry, and the size of each entry with padding; they are
            contiguous.

        Raises:
            RecordStoreError: the file has lost its content.
        """
        if self._guard.lost:
            raise self._file.lost_content_error()
        head_slab, head_map, position = self._head_slab, self._head_map, self._position
        if head_slab is None or head_map is None:
            return 0, array("I")
        sizes = write_batch(
            head_map,
            position,
            self._write_limit(),
            head_slab.epoch & 0xFFFFFFFF,
            batch,
            start,
            self._topic,
        )
        if self._guard.lost:  # the write has detected it
            raise self._file.lost_content_error()
        if sizes:
            written = sum(sizes)
            self._position += written
            self.appended_bytes += written
            self.sequence = max(self.sequence, batch.sequences[start + len(sizes) - 1])
        return head_slab.slab_index * self.slab_size + position, sizes

    def append(
        self, kind: SlabEntryKind, record: Record, number: int = 0, *, moved: bool = False
    ) -> tuple[int, int]:
        """Write an entry.

        Args:
            kind: the kind of the entry.
            record: the record that the entry is about.
            number: the number of a past state.
            moved: the entry has been written before; it leaves slabs that `ensure_space` reserved.

        Returns:
            The location of the entry, and its size with padding.

        Raises:
            RecordStoreError: the entry is too large, there is no space, or the file has lost its
                content. Nothing has been written.
        """
        guard = self._guard
        if guard.lost:
            raise self._file.lost_content_error()
        key = text_to_bytes(record.key)
        topic = b"" if record.topic == self._topic else _octets(record.topic)
        correlation_id = _octets(record.correlation_id)
        bookmark = _octets(record.bookmark)
        body = record.body
        length = (
            form.ENTRY.size
            + len(topic) + len(key) + len(correlation_id) + len(bookmark) + len(body)
        )  # fmt: skip
        size = (length + 7) & -8
        position = self._position
        if self._head_slab is None or position + size > self._deletion_reserve_start:
            self._check_size(length, topic, key, correlation_id, bookmark)
            fits = self._head_slab is not None and position + size <= self.slab_size
            if (
                not moved
                and kind is SlabEntryKind.RECORD
                and (not fits or not self._free_slabs)
                and not self._reserved_slabs
            ):
                self._ensure_free_slabs((not fits) + self._spare_slabs)
            if not fits:
                self.begin_slab(spare=self._reserved_slabs if moved else 0)
            position = self._position
        elif length - len(body) > form.MAX_TEXT:
            self._check_size(length, topic, key, correlation_id, bookmark)
        head_slab = self._head_slab
        head_map = self._head_map
        assert head_slab is not None and head_map is not None  # noqa: S101, PT018 - for the type checker
        content = b"".join(
            (
                ENTRY_TAIL.pack(
                    length, head_slab.epoch & 0xFFFFFFFF, kind,
                    len(topic), len(key), len(correlation_id), len(bookmark),
                    record.sequence, record.timestamp, record.expires, number,
                ),
                topic, key, correlation_id, bookmark, body,
            )
        )  # fmt: skip
        # The checksum is written last: without it, the entry does not exist.
        head_map[position + 4 : position + length] = content
        head_map[position : position + 4] = form.crc32c(content).to_bytes(4, "little")
        if guard.lost:  # the write has detected it
            raise self._file.lost_content_error()
        self._position = position + size
        self.appended_bytes += size
        if record.sequence > self.sequence:
            self.sequence = record.sequence
        return head_slab.slab_index * self.slab_size + position, size

    @property
    def _spare_slabs(self) -> int:
        """Free slabs reserved for deletions and cleaning; an empty log needs none."""
        return 1 if self._sealed_slabs or self._head_slab is not None else 0

    def _ensure_free_slabs(self, count: int) -> None:
        while len(self._free_slabs) < count:
            self._free_slabs.append(self._file.grow())

    def _check_size(self, length: int, *texts: bytes) -> None:
        if any(len(text) > form.MAX_TEXT for text in texts):
            raise RecordTooLargeError(
                f"a SOW key, topic, correlation id or bookmark has more than {form.MAX_TEXT} bytes"
            )
        if length > self.slab_size - FIRST_ENTRY:
            raise RecordTooLargeError(
                f"the record has {length} bytes with its header, more than the SlabSize of "
                f"{self.slab_size} bytes allows"
            )

    def begin_slab(self, spare: int = 0) -> None:
        """Continue the log in another slab: the first free one in the file.

        Args:
            spare: the number of free slabs that must remain.

        Raises:
            RecordStoreError: there is no space for one, or the file has lost its content.
        """
        if self._guard.lost:
            raise self._file.lost_content_error()
        if len(self._free_slabs) > spare:
            index = min(self._free_slabs)
            self._free_slabs.remove(index)
            self._reserved_slabs = max(spare, self._reserved_slabs - 1)
        else:
            index = self._file.grow()
        if self._head_slab is not None:
            self._sealed_slabs.append(self._head_slab._replace(end=self._position))
        last = self._sealed_slabs[-1] if self._sealed_slabs else None
        epoch = self._next_epoch
        self._next_epoch += 1
        self._file.write_slab_header(
            index,
            SlabHeader(
                epoch,
                last.epoch if last else 0,
                last.end if last else 0,
                self.tail_epoch or epoch,
                self.sequence,
            ),
        )
        self._head_slab = _Slab(index, epoch, 0)
        self._head_map = self._file.slabs[index]
        self._position = FIRST_ENTRY
        self.commit()

    # ---- cleaning

    def seal_only_slab(self) -> bool:
        """Continue in a free slab if all of the log is in one; return whether that was possible."""
        has_free_slab = len(self._free_slabs) > self._reserved_slabs
        if self._sealed_slabs or self._head_slab is None or not has_free_slab or self._guard.lost:
            return False
        self.begin_slab()
        return True

    @property
    def tail_epoch(self) -> int:
        """The epoch of the oldest slab of the log, 0 if it has none."""
        if self._sealed_slabs:
            return self._sealed_slabs[0].epoch
        return self._head_slab.epoch if self._head_slab else 0

    @property
    def head_epoch(self) -> int:
        """The lowest epoch that the next entry can get."""
        return self._head_slab.epoch if self._head_slab else self._next_epoch

    def next_to_clean(self) -> tuple[int, bytes] | None:
        """Return the next entry to clean, with its location; None if only the newest slab is left.

        The caller appends the entry again if it is live, then calls `advance_clean_position`.
        """
        while len(self._sealed_slabs) > (self._head_slab is None):  # one slab continues the chain
            slab = self._sealed_slabs[0]
            if self._clean_position < slab.end:
                location = slab.slab_index * self.slab_size + self._clean_position
                return location, self._file.read(location)
            self._sealed_slabs.popleft()
            self._slabs_awaiting_commit.append((slab.epoch, slab.slab_index))
            self._clean_position = FIRST_ENTRY
        return None

    def advance_clean_position(self, size: int) -> None:
        """Advance past an entry of the given size, padding included."""
        self._clean_position += size

    def clean_records(
        self, amount: int, rows: dict[str, int], locations: array[int], topic: str | None
    ) -> int:
        """Clean entries that need no decision: records, and deletions of records.

        Args:
            amount: bytes to clean, at least.
            rows: the rows of records, by identity.
            locations: the locations of entries, by rows; updated for entries appended again.
            topic: the topic of entries that name none, if identities contain a topic; else None.

        Returns:
            The number of bytes cleaned: fewer than `amount` at an entry that `next_to_clean` must
            handle.
        """
        head_slab, target = self._head_slab, self._head_map
        if head_slab is None or target is None or not self._sealed_slabs or self._guard.lost:
            return 0
        slab, begin, position_before = self._sealed_slabs[0], self._clean_position, self._position
        self._clean_position, self._position = clean(
            self._guard,
            self._file.slabs[slab.slab_index],
            begin,
            slab.end,
            amount,
            slab.slab_index * self.slab_size,
            rows,
            locations,
            topic,
            target,
            position_before,
            head_slab.slab_index * self.slab_size,
            head_slab.epoch & 0xFFFFFFFF,
        )
        self.appended_bytes += self._position - position_before
        return self._clean_position - begin

    # ---- stable storage

    def commit(self, callback: StoreCallback | None = None) -> None:
        """Request a commit of everything appended so far; call `callback` after the attempt."""
        head = self._head_slab or (self._sealed_slabs[-1] if self._sealed_slabs else None)
        point = self._commit_point = CommitPoint(
            self._commit_point.number + 1,
            head.epoch if head else 0,
            (self._position if self._head_slab else head.end) if head else 0,
            self.tail_epoch,
            self.sequence,
            self._commit_point.session,
        )

        def on_synced() -> None:
            self._file.check_in_place()
            self._file.write_commit_point(point)

        def on_done(synchronisation: int) -> None:
            self._stable_point = point
            self._release_freed_slabs(synchronisation, point)
            self._on_synchronised(None)
            if callback is not None:
                callback(None)

        def on_failed(error: OSError) -> None:
            if error is not self._failure:  # several commits share a synchronisation
                self._failure = error
                self._touch_uncommitted()
                self._on_synchronised(error)
            if callback is not None:
                callback(not_stable(self._file.path, error))

        self._committer.submit(CommitJob(self._file.descriptor, on_synced, on_done, on_failed))

    def _touch_uncommitted(self) -> None:
        """Make all writes since the last good commit part of the next synchronisation.

        After a synchronisation that failed, the kernel regards the pages that it could not write as
        written. It writes only pages that are touched again.
        """
        if self._guard.lost:
            return  # the file has other content now, not this log's
        self._file.touch_first_page()
        slabs = list(self._sealed_slabs)
        if self._head_slab is not None:
            slabs.append(self._head_slab._replace(end=self._position))
        for slab in slabs:
            if slab.epoch >= self._stable_point.epoch:
                begin = self._stable_point.position if slab.epoch == self._stable_point.epoch else 0
                self._file.touch(slab.slab_index, begin, slab.end)

    def _release_freed_slabs(self, synchronisation: int, point: CommitPoint) -> None:
        """Reuse slabs that no recovery reads any more.

        A commit point is written after its synchronisation, so only the next one makes it durable:
        a slab can be reused once two synchronisations have followed.
        """
        if synchronisation != self._synchronisation:
            self._synchronisation = synchronisation
            self._stable_tail = self._written_tail
        self._written_tail = point.tail_epoch
        unreleased: list[tuple[int, int]] = []
        for epoch, index in self._slabs_awaiting_commit:
            if epoch < self._stable_tail:
                self._free_slabs.append(index)
            else:
                unreleased.append((epoch, index))
        self._slabs_awaiting_commit = unreleased

    @property
    def awaiting_commit_count(self) -> int:
        """Slabs that become free once further commits have completed."""
        return len(self._slabs_awaiting_commit)

    def shrink(self) -> int:
        """Return free slabs at the end of the file to the file system.

        Returns:
            The number of slabs left in the file.
        """
        free = set(self._free_slabs)
        count = len(self._file.slabs)
        while count and count - 1 in free:
            count -= 1
        if count < len(self._file.slabs):
            self._file.shrink(count)
            self._free_slabs = [index for index in self._free_slabs if index < count]
        return count

    def close(self) -> None:
        """Commit, wait for the commit, and close the file."""
        self.commit()
        self._committer.wait_for_jobs()
        try:
            self._file.synchronise()
        except OSError as error:
            self._on_synchronised(error)
        self._file.close()


def not_stable(path: Path, error: OSError) -> RecordStoreError:
    """Return the error for writes that may be lost if the machine fails."""
    reason = error.strerror or error
    return RecordStoreError(f"{path} cannot be flushed to stable storage: {reason}")


def _octets(text: str) -> bytes:
    return text_to_bytes(text) if text else b""
