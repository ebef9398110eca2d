"""Reads server logs by entry; they may be compressed or cut short.

An entry begins with a timestamp, and may have several lines. Lines before the first entry, and
those of a file that is no log, are single entries.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from io import BufferedReader
from typing import BinaryIO, Final

_ENTRY_START: Final = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_PARTS: Final = re.compile(
    rb"(?P<time>\S+) \[(?P<thread>\d+)\] (?P<level>\w+): (?P<id>\w\w-\w{4}) (?P<text>.*)", re.DOTALL
)

_GZIP_MAGIC: Final = b"\x1f\x8b"
_MAX_LINE_LENGTH: Final = 1 << 20
_MAX_ENTRY_LENGTH: Final = 1 << 24
"""Limits in bytes: a longer line or entry is cut, so that no file fills the memory."""


class LogLines:
    """The lines of a file.

    Args:
        file: the file, at its beginning; decompressed if it starts like gzip.

    Attributes:
        damage: where and why compressed lines ended early; None if they did not.
    """

    def __init__(self, file: BufferedReader) -> None:
        self._file = file
        self.damage: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        if not self._file.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC):
            yield from _lines(self._file)
            return
        size = 0
        try:
            with gzip.GzipFile(fileobj=self._file) as inflated:
                for line in _lines(inflated):
                    size += len(line)
                    yield line
        except (EOFError, gzip.BadGzipFile, zlib.error) as problem:
            why = "it ends early" if isinstance(problem, EOFError) else str(problem)
            self.damage = (
                f"the compressed data is damaged ({why}): {size} bytes of text were read,"
                " what follows them is skipped"
            )


def _lines(file: BinaryIO | gzip.GzipFile) -> Iterator[bytes]:
    return iter(lambda: file.readline(_MAX_LINE_LENGTH), b"")


def log_entries(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the entries of a log, each with the number of its first line."""
    entry: list[bytes] = []
    start = size = 0
    for number, line in enumerate(lines, 1):
        begins = _ENTRY_START.match(line) is not None
        if entry and (begins or size > _MAX_ENTRY_LENGTH):
            yield start, b"".join(entry)
            entry = []
        if not begins and not entry:
            yield number, line
            continue
        if begins:
            start, size = number, 0
        entry.append(line)
        size += len(line)
    if entry:
        yield start, b"".join(entry)


def parts_of(entry: bytes) -> dict[str, object]:
    """Return time, thread, level, id and text of an entry, or the text alone."""
    match = _PARTS.match(entry)
    if match is None:
        return {"time": None, "thread": None, "level": None, "id": None, "text": entry.rstrip()}
    fields: dict[str, object] = dict(match.groupdict())
    return fields | {"thread": int(match["thread"]), "text": match["text"].rstrip()}
