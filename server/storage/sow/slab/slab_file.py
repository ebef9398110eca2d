"""A SOW file as memory-mapped slabs: creates, locks, maps, grows and shrinks it.

Every slab is a memory map of its own, so that the file grows without moving existing maps. Space is
allocated on disk before it is mapped: a full disk is an error here, not a signal later. If another
process truncates or overwrites the file all the same, the loss is limited to the file
(`map_guard.pyx`): it is detected when the lost part is touched, and with each commit. From then on
nothing is written any more, and nothing is read that fails its checksum.
"""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path
from typing import Final

from config_schema.spec.common import FILE_MODE
from server.storage.sow.slab import slab_format as form
from server.storage.sow.slab.map_guard import MapGuard
from server.storage.sow.slab.slab_format import ENTRY, PAGE, CommitPoint, SlabHeader
from server.storage.sow.store import ChainFilePosition, RecordStoreError
from server.util.file_lock import FileInUseError, lock, version_mismatch

_LOST: Final = (
    "the file has been truncated or overwritten while it was in use: until the next start its topic"
    " cannot be changed, and what is lost cannot be read"
)
_NOT_FOUND: Final = "the file has been removed, renamed or replaced while it was in use"


class DamagedFileError(Exception):
    """A file's content differs from the bytes written. The text names the error and its place."""


class OtherVersionError(Exception):
    """A file has a version of its format that this program does not know. The text names it."""


class SlabFile:
    """An open SOW file.

    Args:
        path: the file; its directory must exist.
        slab_size: bytes of a slab, used if the file is created.
        initial_slabs: number of slabs of a new file.
        writable: open for writing, and lock against other writers; else the file must exist.

    Attributes:
        slab_size: bytes of a slab.
        slabs: the slabs' maps, in file order; None for one beyond the end.
        guard: detects lost content of the maps.
        blank_file_size: size in bytes of an existing file without content, being shorter than the
            first page; None for any other.
        is_new: whether this opening has created the file, or begun it anew.

    Raises:
        DamagedFileError: the file's header is not one of a SOW file.
        OtherVersionError: the header is of another version.
        FileInUseError: another process has the file open for writing.
        OSError: the file cannot be opened or created.
    """

    def __init__(
        self,
        path: Path,
        slab_size: int = 0,
        initial_slabs: int = 1,
        *,
        writable: bool = True,
    ) -> None:
        self.path: Final = path
        self._writable = writable
        is_new = not path.exists()
        self.descriptor: Final = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC if writable else os.O_RDONLY, FILE_MODE
        )
        self.slabs: list[mmap.mmap] = []
        self.guard: Final = MapGuard()
        self.blank_file_size: int | None = None
        self.is_new = False
        try:
            if writable:
                self._lock()
            self._open(slab_size, initial_slabs, is_new=is_new)
        except BaseException:
            os.close(self.descriptor)
            raise

    def _lock(self) -> None:
        try:
            lock(self.descriptor)
        except FileInUseError as holder:
            raise FileInUseError(
                f"{self.path} is in use by {holder}: two instances cannot share a SOW file"
            ) from None

    def _open(self, slab_size: int, initial_slabs: int, *, is_new: bool) -> None:
        size = os.fstat(self.descriptor).st_size
        is_blank = size < PAGE  # a file cut short before its first page was complete holds nothing
        if is_blank and not self._writable:
            raise DamagedFileError(f"{self.path} is not a SOW file: it has {size} bytes")
        if is_blank:
            self.blank_file_size = None if is_new else size
            self.is_new = True
            self._create(slab_size)
            size = PAGE
        self._header = mmap.mmap(self.descriptor, PAGE, access=self._access)
        self.guard.cover(self._header)
        file_header = form.unpack_file_header(self._header[:64])
        if file_header is None:
            raise DamagedFileError(f"the first page of {self.path} is not that of a SOW file")
        version, self.slab_size = file_header
        self._written_commit_point = self.commit_point
        if version != form.VERSION:
            raise OtherVersionError(f"{self.path}: {version_mismatch(version, form.VERSION)}")
        for index in range((size - PAGE) // self.slab_size):
            self.slabs.append(self._map(index))
        if is_blank:
            for _ in range(initial_slabs):
                self.grow()

    def _create(self, slab_size: int) -> None:
        """Write the first page in one go, after nothing or less than a page."""
        header = form.pack_file_header((max(slab_size, PAGE) + PAGE - 1) // PAGE * PAGE)
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, header.ljust(PAGE, b"\0"), 0)
        os.fsync(self.descriptor)
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    @property
    def _access(self) -> int:
        return mmap.ACCESS_WRITE if self._writable else mmap.ACCESS_READ

    def _map(self, index: int) -> mmap.mmap:
        try:
            slab = mmap.mmap(
                self.descriptor,
                self.slab_size,
                access=self._access,
                offset=PAGE + index * self.slab_size,
            )
        except ValueError:  # the file has become shorter since its size was read
            self.guard.lost = 1
            raise OSError(errno.ESTALE, _LOST) from None
        self.guard.cover(slab)
        return slab

    def grow(self) -> int:
        """Add a slab at the end.

        Returns:
            The index of the slab.

        Raises:
            RecordStoreError: the file system has no space, or the file has lost its content.
        """
        index = len(self.slabs)
        try:
            self._check_size()
            os.posix_fallocate(self.descriptor, PAGE + index * self.slab_size, self.slab_size)
            self.slabs.append(self._map(index))
        except OSError as error:
            raise RecordStoreError(f"{self.path} cannot grow: {error.strerror}") from error
        return index

    def shrink(self, count: int) -> None:
        """Truncate the file to its first `count` slabs."""
        for slab in self.slabs[count:]:
            self.guard.give_up(slab)
            slab.close()
        del self.slabs[count:]
        os.ftruncate(self.descriptor, PAGE + count * self.slab_size)

    @property
    def commit_point(self) -> CommitPoint:
        """The latest commit point."""
        return max(
            form.unpack_commit_slot(self._header[slot : slot + 512]) for slot in form.COMMIT_SLOTS
        )

    @property
    def has_lost_commit_points(self) -> bool:
        """True if the commit slots have content, but no valid commit point."""
        slots = [self._header[slot : slot + 512] for slot in form.COMMIT_SLOTS]
        return any(any(place) for place in slots) and not self.commit_point.number

    def write_commit_point(self, point: CommitPoint) -> None:
        """Write a commit point over the older of the file's two."""
        older, _ = sorted(
            form.COMMIT_SLOTS,
            key=lambda slot: form.unpack_commit_slot(self._header[slot : slot + 512]),
        )
        content = form.pack_commit(point)
        self._header[older : older + len(content)] = content
        self._written_commit_point = point

    @property
    def key_scheme_digest(self) -> int:
        """See `StoreHeader.key_scheme_digest`."""
        return self._read_header_slot(form.KEYS_SLOT)

    @key_scheme_digest.setter
    def key_scheme_digest(self, digest: int) -> None:
        self._write_header_slot(form.KEYS_SLOT, digest)

    @property
    def rekey_sequence(self) -> int:
        """See `StoreHeader.rekey_sequence`."""
        return self._read_header_slot(form.REKEYED_SLOT)

    @rekey_sequence.setter
    def rekey_sequence(self, sequence: int) -> None:
        self._write_header_slot(form.REKEYED_SLOT, sequence)

    @property
    def unlogged_until(self) -> int:
        """See `StoreHeader.unlogged_until`."""
        return self._read_header_slot(form.LOG_SLOT)

    @unlogged_until.setter
    def unlogged_until(self, sequence: int) -> None:
        self._write_header_slot(form.LOG_SLOT, sequence)

    @property
    def chain_file_position(self) -> ChainFilePosition:
        """See `StoreHeader.chain_file_position`."""
        return ChainFilePosition(
            self._read_header_slot(form.CHAINS_SLOT), self._read_header_slot(form.CHAINS_SIZE_SLOT)
        )

    @chain_file_position.setter
    def chain_file_position(self, stored: ChainFilePosition) -> None:
        self._write_header_slot(form.CHAINS_SLOT, stored.until_sequence)
        self._write_header_slot(form.CHAINS_SIZE_SLOT, stored.size)

    def _read_header_slot(self, slot: int) -> int:
        return form.unpack_note(self._header[slot : slot + 64])

    def _write_header_slot(self, slot: int, number: int) -> None:
        content = form.pack_note(number)
        self._header[slot : slot + len(content)] = content

    def read_slab_header(self, index: int) -> SlabHeader | None:
        """Read a slab's header; None if it is blank or damaged."""
        return form.unpack_slab_header(self.slabs[index][: form.FIRST_ENTRY])

    def write_slab_header(self, index: int, header: SlabHeader) -> None:
        """Write a slab's header."""
        content = form.pack_slab_header(header)
        self.slabs[index][: len(content)] = content

    def read(self, location: int) -> bytes:
        """Return the bytes of an entry, without padding.

        Args:
            location: the slab's index times the slab size, plus the position within the slab.

        Raises:
            RecordStoreError: the file has lost content, this entry included.
        """
        index, position = divmod(location, self.slab_size)
        slab = self.slabs[index]
        length = int.from_bytes(slab[position + 4 : position + 8], "little")
        data = slab[position : position + length]
        if self.guard.lost or length < ENTRY.size:
            self._check_entry(data)
        return data

    def _check_entry(self, data: bytes) -> None:
        """Check that an entry is the one written, where that is in doubt."""
        if len(data) < ENTRY.size or int.from_bytes(data[:4], "little") != form.crc32c(data[4:]):
            self.guard.lost = 1
            raise self.lost_content_error()

    def lost_content_error(self) -> RecordStoreError:
        """Return the error to raise once `guard.lost` is set."""
        return RecordStoreError(f"{self.path}: {_LOST}")

    def touch(self, index: int, begin: int, end: int) -> None:
        """Mark pages of a part of a slab, and of its header, for the next synchronisation to write.

        Args:
            index: the slab.
            begin: the part's first position in the slab.
            end: the part's end in the slab.
        """
        slab = self.slabs[index]
        slab[0] = slab[0]
        for position in range(begin // PAGE * PAGE, end, PAGE):
            slab[position] = slab[position]

    def touch_first_page(self) -> None:
        """Mark the file's first page for the next synchronisation to write.

        The byte touched is one that never changes: commit points are written on another thread.
        """
        self._header[0] = self._header[0]

    def synchronise(self) -> None:
        """Wait until everything is on stable storage.

        Raises:
            OSError: it could not be put there, or would not be found there again.
        """
        os.fdatasync(self.descriptor)
        self.check_in_place()

    def check_in_place(self) -> None:
        """Check that the content put on stable storage will be found again.

        Raises:
            OSError: the file has lost its name or its content.
        """
        try:
            is_found = os.path.samestat(os.fstat(self.descriptor), os.stat(self.path))
        except FileNotFoundError:
            is_found = False
        if not is_found:
            raise OSError(errno.ESTALE, _NOT_FOUND)
        self._check_size()
        if not self.guard.lost and self.commit_point != self._written_commit_point:
            self.guard.lost = 1
        if self.guard.lost:
            raise OSError(errno.ESTALE, _LOST)

    def _check_size(self) -> None:
        # Another thread may change the file meanwhile: `grow` allocates space before it adds the
        # slab, and `shrink` removes slabs before it truncates the file. So the smaller count holds.
        slab_count = len(self.slabs)
        size = os.fstat(self.descriptor).st_size
        if size < PAGE + min(slab_count, len(self.slabs)) * self.slab_size:
            self.guard.lost = 1
            raise OSError(errno.ESTALE, _LOST)

    def close(self) -> None:
        """Unmap and close the file."""
        for mapped in (*self.slabs, self._header):
            self.guard.give_up(mapped)
            mapped.close()
        os.close(self.descriptor)
