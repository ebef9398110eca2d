"""Files as logging targets, plain and compressed, and their rotation.

A file is appended to, also after a restart. Missing directories are made. With a
RotationThreshold, a file is closed before it would exceed the threshold and the next is opened; its
name is made anew from the mask, and an existing file of this name is truncated. An explicit
rotation truncates as well. Until the instance has started there is no rotation: the start may fail
because the instance is already running.

Source: AMPS User Guide, Logging to Files.
"""

import errno
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from config_schema.problems import Problems
from config_schema.spec import LogTargetSpec
from config_schema.spec.common import DIRECTORY_MODE, FILE_MODE
from server.log.targets.base import LogLine, LogTarget
from server.log.targets.streams import GzipStream, LogStream, PlainStream, complete_gzip, plain_size

DEFAULT_MASK: Final = "%Y-%m-%dT%H%M%S"
"""Used in the working directory, if a target has no FileName."""


_HINTS: Final[Mapping[int, str]] = {
    errno.EACCES: "let this user write the file and its directory",
    errno.EPERM: "let this user write the file and its directory",
    errno.ENXIO: "it is a pipe or a device without a reader; start its reader first",
    errno.ENOSPC: "make room on the device, or name a file on another",
}
"""Hints for the operator about a log file that cannot be opened."""


@dataclass(frozen=True, slots=True)
class FileFormat:
    """The format of a protocol that writes files.

    Attributes:
        suffix: the suffix of file names.
        stream: writes to a file descriptor in this format.
        prepare: prepares an existing file for appending, and returns the size of its content.
    """

    suffix: str
    stream: Callable[[int], LogStream]
    prepare: Callable[[str], int]


FORMATS: Final[Mapping[str, FileFormat]] = {
    "file": FileFormat(".log", PlainStream, plain_size),
    "gzip": FileFormat(".gz", GzipStream, complete_gzip),
}


def file_name(mask: str, suffix: str, rotation: int, nanoseconds: int) -> str:
    """Return the name of a log file.

    Args:
        mask: strftime tokens, and `%n` for the rotation.
        suffix: added unless the mask ends with it.
        rotation: the number of rotations so far.
        nanoseconds: the time since the epoch for the date in the name; shown as local time.
    """
    if not mask.endswith(suffix):
        mask += suffix
    counted = re.sub(
        r"%(.)", lambda token: f"{rotation:05d}" if token[1] == "n" else token[0], mask
    )
    return time.strftime(counted, time.localtime(nanoseconds // 1_000_000_000))


class FileTarget(LogTarget):
    """Writes to a file, or to a sequence of files.

    Attributes:
        path: the file being written; "" before the first one is opened.
    """

    def __init__(self, spec: LogTargetSpec, problems: Problems, nanoseconds: int) -> None:
        """Open the first file, named after the time `nanoseconds`.

        A file that cannot be opened is added to `problems`, like any mistake in the configuration.
        """
        super().__init__(spec, problems)
        self._format = FORMATS[spec.protocol]
        self._name_mask = spec.file_name or DEFAULT_MASK
        self._rotation_number = 0
        self._size = 0
        self._stream: LogStream | None = None
        self.path = ""
        try:
            self._open(nanoseconds, append=True)
        except OSError as problem:
            problems.error(spec, "Target/FileName", *_explain(self.path, problem))

    @property
    def name(self) -> str:
        """The file as configured, so that a target keeps its name across rotations."""
        return self._name_mask

    def write(self, lines: Sequence[LogLine]) -> None:
        """See `LogTarget.write`."""
        threshold = self.spec.rotation_threshold
        if threshold is None or not self.may_rotate:
            self._write_bytes(lines)
            return
        chunk: list[LogLine] = []
        size = self._size
        for line in lines:
            if size and size + len(line.text) > threshold:
                self._write_bytes(chunk)
                self.rotate(line.nanoseconds)
                chunk, size = [], 0
            chunk.append(line)
            size += len(line.text)
        self._write_bytes(chunk)

    def rotate(self, nanoseconds: int) -> None:
        """See `LogTarget.rotate`."""
        self._rotation_number += 1
        self._size = 0
        try:
            self.close()
        finally:  # the next file is opened even if the old one cannot be completed
            self._open(nanoseconds, append=False)

    def close(self) -> None:
        """See `LogTarget.close`."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _write_bytes(self, lines: Sequence[LogLine]) -> None:
        if not lines:
            return
        # There is no stream if the file could not be opened at a rotation.
        stream = self._stream or self._open(lines[0].nanoseconds, append=False)
        stream.retry()
        self._count_written(lines)
        data = b"".join(line.text for line in lines)
        self._size += len(data)
        stream.write(data)

    def _open(self, nanoseconds: int, *, append: bool) -> LogStream:
        self.path = file_name(
            self._name_mask, self._format.suffix, self._rotation_number, nanoseconds
        )
        os.makedirs(os.path.dirname(self.path) or ".", DIRECTORY_MODE, exist_ok=True)
        if append:
            self._size = self._format.prepare(self.path)
        # Always in append mode: an external tool may truncate the file while it is being written.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if append else os.O_TRUNC)
        flags |= os.O_NONBLOCK  # open must not block on a pipe without a reader
        descriptor = os.open(self.path, flags, FILE_MODE)
        os.set_blocking(descriptor, True)
        try:
            self._stream = self._format.stream(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        return self._stream


def _explain(path: str, problem: OSError) -> tuple[str, str | None]:
    """Return the problem of a log file, and a hint how to solve it."""
    directory = os.path.dirname(path) or "."
    if not os.path.isdir(directory):
        message = f"the directory {directory} of a log file cannot be made: {problem.strerror}"
        return message, "name another, or let this user make it"
    message = f"the log file {path} cannot be opened: {problem.strerror}"
    return message, _HINTS.get(problem.errno or 0, "name another file")
