"""Reads the minidumps of `server/process/minidump.py`, also damaged ones.

Some lines about the process come first, then sections: each is an empty line, a title, and lines
that are indented. The last line has a checksum. Of a dump that was cut short, or is damaged, the
result has all that can be read, and a list of the missing parts.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from server.process.minidump import END

MAX_MINIDUMP_SIZE: Final = 64 << 20
"""Maximum number of bytes to read; the server's dumps have about a thousandth of that."""

_FIRST: Final = re.compile(
    r"Amperage (?P<version>\S+) \(AMPS (?P<amps>\S+)\), instance (?P<name>.*)"
)
_HEAD: Final = {
    "when it was taken, by which process": re.compile(
        r"time (?P<time>\S+), process (?P<process>\d+), Python (?P<python>.*)"
    ),
    "processor time": re.compile(
        r"processor seconds (?P<user_seconds>[\d.]+) user, (?P<system_seconds>[\d.]+) system"
    ),
    "memory": re.compile(r"largest resident size (?P<largest_resident_kib>\d+) KiB, .*"),
}
"""The lines after the first, by their contents."""

_END: Final = re.compile(rb"^" + END.encode("ascii") + rb"([0-9a-f]{8})\n\Z", re.MULTILINE)
_THREAD: Final = re.compile(r"thread (?P<ident>\d+) \((?P<name>.*)\), outermost call first")
_CALL: Final = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.*)')
_REPEATED: Final = "  [Previous line repeated"
_COUNT: Final = re.compile(r"  (?P<name>.*?) +(?P<count>[\d,]+)")
_TASKS: Final = re.compile(r"tasks: [\d,]+")
_TASK: Final = re.compile(r" +(?P<count>[\d,]+) (?P<place>.*)")
_STATE: Final = "state"
_FROZEN_OBJECTS: Final = "objects set aside, which are not among the following: "


class NoMinidumpError(Exception):
    """A file is no minidump of this server. The text has its kind, if that is known."""


@dataclass(frozen=True, slots=True)
class StackCall:
    """One call in the stack of a thread."""

    file: str
    line: int
    function: str
    code: str


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """A thread, with its calls, the outermost first."""

    ident: int
    name: str
    calls: tuple[StackCall, ...]


@dataclass(slots=True)
class Minidump:
    """The contents of a minidump.

    Attributes:
        version: of the server that wrote it; `amps_version` is the AMPS version of that server.
        instance: name of the instance.
        facts: values about the process, by names such as `time` and `process`.
        threads: the threads with their stacks.
        tasks: number of waiting tasks, by place.
        tables: numbers by names, by the titles of their tables.
        missing: descriptions of the missing parts; empty for a complete dump.
    """

    version: str
    amps_version: str
    instance: str
    facts: dict[str, str] = field(default_factory=dict)
    threads: list[ThreadStack] = field(default_factory=list)
    tasks: dict[str, int] = field(default_factory=dict)
    tables: dict[str, dict[str, int]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


def read_minidump(octets: bytes) -> Minidump:
    """Parse a minidump of this server.

    Args:
        octets: the file, or its first `MAX_MINIDUMP_SIZE`.

    Raises:
        NoMinidumpError: it is none.
    """
    lines = octets.decode("utf-8", errors="backslashreplace").split("\n")
    first = _FIRST.fullmatch(lines[0])
    if first is None:
        raise NoMinidumpError("is not a minidump of Amperage: its first line does not name it")
    dump = Minidump(first["version"], first["amps"], first["name"])
    head, *sections = _blocks(lines[1:])
    for name, pattern in _HEAD.items():
        match = next(filter(None, map(pattern.fullmatch, head)), None)
        if match is None:
            dump.missing.append(name)
        else:
            dump.facts.update(match.groupdict())
    unread = sum(_add_section(title, rows, dump) for title, *rows in sections)
    if unread:
        dump.missing.append(f"{unread:,} lines, which cannot be read")
    if _STATE not in dump.tables:
        dump.missing.append("the counts of the instance")
    if not dump.threads:
        dump.missing.append("the stacks of threads")
    end = _END.search(octets)
    if end is None:
        last = sections[-1][0] if sections else "its first lines"
        dump.missing.append(f"the end: the file was cut short in or behind {last!r}")
    elif zlib.crc32(octets[: end.start()]) != int(end[1], 16):
        dump.missing.append("what its checksum was made of: some of it has been changed")
    return dump


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield the lines between empty ones; the first block may be empty, others are not."""
    block: list[str] = []
    is_first = True
    for line in lines:
        if line:
            block.append(line)
        elif block or is_first:
            yield block
            block, is_first = [], False
    if block or is_first:
        yield block


def _add_section(title: str, rows: Sequence[str], dump: Minidump) -> int:
    """Add a section to a dump, and return the number of its unreadable lines."""
    if title.startswith(END):
        return 0
    if thread := _THREAD.fullmatch(title):
        calls, unread = _calls(rows)
        dump.threads.append(ThreadStack(int(thread["ident"]), thread["name"], tuple(calls)))
        return unread
    if _TASKS.fullmatch(title):
        matches = [*map(_TASK.fullmatch, rows)]
        dump.tasks = {match["place"]: _number(match["count"]) for match in matches if match}
        return matches.count(None)
    if title.startswith(_FROZEN_OBJECTS):
        title, _, count = title.partition(":")
        rows = [f"  {title} {count.strip()}"]
    matches = [*map(_COUNT.fullmatch, rows)]
    if rows and not any(matches):
        return 1 + len(rows)
    dump.tables[title] = {match["name"]: _number(match["count"]) for match in matches if match}
    return matches.count(None)


def _calls(rows: Sequence[str]) -> tuple[list[StackCall], int]:
    """Return the calls of a stack, and the number of lines that are none.

    A line of code may follow each call.
    """
    calls: list[StackCall] = []
    unread = 0
    for row in rows:
        match = _CALL.fullmatch(row)
        if match is not None:
            calls.append(StackCall(match["file"], int(match["line"]), match["function"], ""))
        elif row.startswith("    ") and calls:
            last = calls[-1]
            calls[-1] = StackCall(last.file, last.line, last.function, last.code or row.strip())
        elif not row.startswith(_REPEATED):
            unread += 1
    return calls, unread


def _number(text: str) -> int:
    return int(text.replace(",", "") or 0)
