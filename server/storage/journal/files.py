"""The journal files of an instance, and access to the bytes of each.

A file's name and directory change while it is in use: archiving moves it, compressing replaces it.
A reader opens a source and keeps it; the source stays valid when the name changes.
"""

from __future__ import annotations

import contextlib
import threading
import zlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from server.storage.journal.format.entry import JournalTopic
from server.storage.journal.format.file_names import INDEX, sibling
from server.storage.journal.format.layout import (
    PAGE,
    RECORD,
    RECORD_SIZE,
    TXID,
    FileSeal,
    JournalFileHeader,
    JournalFormatError,
    crc32c,
    unpack_header,
    unpack_seal,
)
from server.storage.journal.format.records import CHUNK, FileDefinitions, read_names
from server.storage.journal.index import JournalIndex, unpack_index
from server.storage.journal.storage import ByteSource, FileSource, MemorySource
from server.util.safe_open import open_regular

_INPUT_SIZE: Final = 1 << 20
_OUTPUT_SIZE: Final = 1 << 20
"""Limit of bytes that one call decompresses; input a thousand times smaller can expand to it."""
_GZIP: Final = 16 + zlib.MAX_WBITS
_GZIP_MAGIC: Final = b"\x1f\x8b"
_MAX_FILE_SIZE: Final = 1 << 40
_COMPRESSED: Final = ".gz"


def inflate(path: Path, limit: int = _MAX_FILE_SIZE) -> bytes:
    """Return the contents of a compressed file, as far as they can be decompressed.

    Args:
        path: path of the file.
        limit: bytes after which to stop.

    Raises:
        OSError: the file cannot be read; damage within it only ends the contents early.
    """
    return bytes(_inflate(path, limit)[0])


def _inflate(path: Path, limit: int) -> tuple[bytearray, bool]:
    """Return the contents, and whether the compressed data are intact up to their end."""
    decompressor = zlib.decompressobj(_GZIP)
    data = bytearray()  # grows in place: joining parts would hold all of them twice
    has_more = False
    with path.open("rb") as file:
        while len(data) < limit and not decompressor.eof:
            chunk = decompressor.unconsumed_tail or (b"" if has_more else file.read(_INPUT_SIZE))
            if not chunk and not has_more:
                break
            checkpoint = decompressor.copy()
            try:
                output = decompressor.decompress(chunk, min(_OUTPUT_SIZE, limit - len(data)))
            except zlib.error:
                data += b"".join(_until_damage(checkpoint.decompress, chunk))
                break
            data += output
            has_more = len(output) == _OUTPUT_SIZE
    del data[limit:]
    return data, decompressor.eof


def _until_damage(decompress: Callable[[bytes], bytes], chunk: bytes) -> Iterator[bytes]:
    """Yield the contents of a chunk before the byte at which decompression fails."""
    with contextlib.suppress(zlib.error):
        for index in range(len(chunk)):
            yield decompress(chunk[index : index + 1])


def open_source(path: Path) -> ByteSource:
    """Open a journal file for reading, compressed or not.

    Raises:
        OSError: it cannot be read.
    """
    if path.suffix != _COMPRESSED:
        return FileSource(path)
    return _decompressed(path).source


class JournalFileHandle(NamedTuple):
    """An opened file that may be a journal file.

    Attributes:
        source: its bytes, with zeros for those that are missing at the end of a compressed one.
        missing_bytes: number of bytes that are missing at its end.
        is_intact: it is not compressed, or its compressed data are intact.
    """

    source: ByteSource
    missing_bytes: int
    is_intact: bool = True


def open_unknown(path: Path) -> JournalFileHandle:
    """Open a file that may be a journal file, whatever its name, and even if it is truncated.

    Raises:
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        is_compressed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    if is_compressed:
        page = inflate(path, PAGE)
        return (
            JournalFileHandle(MemorySource(page), 0) if _is_no_header(page) else _decompressed(path)
        )
    source = FileSource(path)
    return JournalFileHandle(source, _missing_bytes(source.read(0, PAGE), source.size))


def _decompressed(path: Path) -> JournalFileHandle:
    data, is_whole = _inflate(path, _MAX_FILE_SIZE)
    missing = _missing_bytes(bytes(data[:PAGE]), len(data))
    padding = missing if missing < _MAX_FILE_SIZE else 0
    return JournalFileHandle(MemorySource(data, padding), missing, is_whole)


def _is_no_header(page: bytes) -> bool:
    """Return whether a page cannot be a header page: even a damaged one is mostly zeros.

    A compressed journal has to be decompressed as a whole, since entries are searched from its end.
    For any other file that would be in vain, and may take any amount of memory.
    """
    return len(page) == PAGE and page.count(0) < PAGE // 2


def _missing_bytes(page: bytes, size: int) -> int:
    """Return the number of bytes by which a file is shorter than the size in its header page."""
    try:
        header = unpack_header(page)
    except JournalFormatError:
        header = None
    return max(header.size - size, 0) if header is not None else 0


def read_page(path: Path) -> bytes:
    """Return the header page of a journal file, compressed or not."""
    if path.suffix == _COMPRESSED:
        return inflate(path, PAGE)
    with path.open("rb") as file:
        return file.read(PAGE)


def salvage_header(source: ByteSource, number: int, instance: str) -> JournalFileHeader | None:
    """Reconstruct the header of a file from its records; None if none of them is intact."""
    count = max(min(CHUNK, (source.size - PAGE) // RECORD_SIZE), 0)
    block = source.read(source.size - RECORD_SIZE * count, RECORD_SIZE * count)
    if block == bytes(len(block)):
        return None
    for index in range(count):
        record = source.read(source.size - RECORD_SIZE * (index + 1), RECORD_SIZE)
        if len(record) == RECORD_SIZE and record[-4:] == crc32c(record[:-4]).to_bytes(4, "little"):
            row = RECORD.unpack(record)
            if row[TXID] > index and any(record):
                return JournalFileHeader(number, source.size, row[TXID] - index, row[1], instance)
    return None


class SourceCache:
    """Caches open journal files, one descriptor for all readers of one, and decompressed ones up
    to a limit.

    Source: AMPS User Guide, Configuring a Transaction Log, CompressedJournalCacheMemoryLimit.

    Args:
        limit: bytes of decompressed files to keep. The last one used is kept whatever its size.

    Attributes:
        requests: number of requests for a compressed file.
        misses: number of times that one had to be decompressed.
        evictions: number of evicted files.
        size: bytes of the cached files.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._decompressed: OrderedDict[Path, ByteSource] = OrderedDict()
        self._open_files: WeakValueDictionary[Path, FileSource] = WeakValueDictionary()
        self._lock = threading.Lock()
        self.requests = 0
        self.misses = 0
        self.evictions = 0
        self.size = 0

    @property
    def file_count(self) -> int:
        """The number of decompressed files in the cache."""
        return len(self._decompressed)

    def open(self, path: Path) -> ByteSource:
        """Open a file; decompress a compressed one that is not in the cache.

        Raises:
            OSError: it cannot be opened.
        """
        with self._lock:
            if path.suffix != _COMPRESSED:
                plain = self._open_files.get(path)
                if plain is None:
                    plain = self._open_files[path] = FileSource(path)
                return plain
            self.requests += 1
            source = self._decompressed.get(path)
            if source is not None:
                self._decompressed.move_to_end(path)
                return source
        source = open_source(path)  # slow, so without the lock: other threads must not wait
        with self._lock:
            self.misses += 1
            self._decompressed[path] = source
            self.size = sum(one.size for one in self._decompressed.values())
            while len(self._decompressed) > 1 and self.size > self._limit:
                self.size -= self._decompressed.popitem(last=False)[1].size
                self.evictions += 1
        return source

    def is_cached(self, path: Path) -> bool:
        """Return whether a decompressed file is in the cache, so that opening it is fast."""
        return path in self._decompressed


@dataclass(frozen=True, slots=True)
class JournalFile:
    """One journal file of the log.

    Attributes:
        number: its place among the files of the instance.
        path: path of the file.
        size: size of the file, decompressed, in bytes.
        first_txid: txid of its first entry.
        created: when it was taken into use, in microseconds since the Unix epoch.
        seal: the seal of a full file; None while entries are added.
        definitions: its topics and origins, if they are loaded: always for the file written to.
    """

    number: int
    path: Path
    size: int
    first_txid: int
    created: int
    seal: FileSeal | None = None
    definitions: FileDefinitions | None = None

    @property
    def name(self) -> str:
        """Its file name in the journal directory, without the suffix of a compressed file."""
        return self.path.name.removesuffix(_COMPRESSED)

    @property
    def is_compressed(self) -> bool:
        """True if it is compressed, so that its bytes cannot be replaced."""
        return self.path.suffix == _COMPRESSED

    @property
    def end_txid(self) -> int | None:
        """The txid after its last entry; None while entries are added."""
        return None if self.seal is None else self.first_txid + self.seal.count

    def read_index(self) -> JournalIndex | None:
        """Read the index of this file; None if it is missing, damaged, or of another file."""
        try:
            index = unpack_index(sibling(self.path, INDEX).read_bytes())
        except (OSError, JournalFormatError):
            return None
        count = None if self.seal is None else self.seal.count
        fits = (index.number, index.first_txid, index.count) == (
            self.number,
            self.first_txid,
            count,
        )
        return index if fits else None

    def read_definitions(self, source: ByteSource) -> FileDefinitions:
        """Return the topics and origins of this file by their numbers."""
        definitions = self._indexed_definitions()
        if definitions is None:
            count = self.seal.count if self.seal else 0
            definitions = read_names(source, self.first_txid, count)
        return definitions

    def topics(self, cache: SourceCache) -> frozenset[JournalTopic] | None:
        """Return the topics of this file's entries; None if it cannot be read now."""
        definitions = self._indexed_definitions()
        if definitions is None:
            try:
                definitions = self.read_definitions(cache.open(self.path))
            except OSError:
                return None
        return frozenset(list(definitions.topics.values()))

    def _indexed_definitions(self) -> FileDefinitions | None:
        """Return the topics and origins if they are loaded or in the index."""
        if self.definitions is not None:
            return self.definitions
        index = self.read_index()
        return None if index is None else index.definitions


class FileTable:
    """The files of the log in order, as an immutable tuple that each change replaces.

    Readers on other threads take `files` once and work with that snapshot.

    Args:
        files: the files, in order of their numbers.
    """

    def __init__(self, files: tuple[JournalFile, ...]) -> None:
        self.files = files
        self._lock = threading.Lock()

    def add(self, file: JournalFile) -> None:
        """Add the file that will be written to from now on."""
        with self._lock:
            self.files = (*self.files, file)

    def update(
        self, number: int, *, path: Path | None = None, seal: FileSeal | None = None
    ) -> None:
        """Note that a file has moved, or that it is full."""
        with self._lock:
            self.files = tuple(
                replace(file, path=path or file.path, seal=seal or file.seal)
                if file.number == number
                else file
                for file in self.files
            )

    def remove(self, number: int) -> None:
        """Forget a file that is removed."""
        with self._lock:
            self.files = tuple(file for file in self.files if file.number != number)

    def restore_first(self, file: JournalFile) -> None:
        """Add a file again that could not be removed; it was the first."""
        with self._lock:
            self.files = (file, *self.files)

    def find(self, number: int) -> JournalFile | None:
        """Return the file with a number; None if there is none."""
        return next((file for file in self.files if file.number == number), None)

    def find_by_txid(self, txid: int) -> JournalFile | None:
        """Return the file with an entry, or the first one after it; None if none exists yet."""
        files = self.files
        file_index = bisect_right(files, txid, key=lambda one: one.first_txid) - 1
        if file_index < 0:
            return files[0] if files else None
        file = files[file_index]
        if file.end_txid is not None and txid >= file.end_txid:
            return files[file_index + 1] if file_index + 1 < len(files) else None
        return file

    def estimate_bytes_after(self, after: int, last_txid: int, bodies_end: int) -> int:
        """Estimate the bytes after an entry, as if all entries of a file were equally long.

        Args:
            after: the txid of the entry.
            last_txid: the txid of the last entry of the log.
            bodies_end: the end of the bodies in the file that entries are added to.
        """
        total, end = 0, last_txid + 1
        for file in reversed(self.files):
            if end <= after + 1:
                break
            count = end - file.first_txid
            if count > 0:
                written = bodies_end if file.seal is None else file.seal.bodies_end
                size = written - PAGE + RECORD_SIZE * count
                total += size * min(end - after - 1, count) // count
            end = file.first_txid
        return total

    def find_repairable(self, txid: int) -> JournalFile | None:
        """Return the file with an entry, if bytes of it can be replaced."""
        file = self.find_by_txid(txid)
        return None if file is None or file.is_compressed else file


def unpack_page(page: bytes) -> tuple[JournalFileHeader | None, FileSeal | None]:
    """Return the header and the seal of a header page.

    Raises:
        JournalFormatError: the header is damaged.
    """
    return unpack_header(page), unpack_seal(page)
