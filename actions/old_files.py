"""Steps that process old files: amps-action-do-compress-files and amps-action-do-remove-files.

They skip files that are not regular, files that a process has open, and journals: a pattern
that matches a journal is assumed to be an error, reported after the other files are processed.
A file is replaced by one with `.gz` after its name, with the same permissions and time of change;
files that have that ending are compressed already, and left alone.

Source: AMPS User Guide, Compress Files; Remove Files.
"""

from __future__ import annotations

import glob
import gzip
import os
import shutil
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from actions.module import Step, StepError
from actions.options import AgeOption, optional, quantity, required
from config_schema.units import parse_count

if TYPE_CHECKING:
    from pathlib import Path

    from actions.context import ActionContext
    from actions.step_options import StepOptions


_JOURNALS: Final = (".journal", ".journal.gz")


@dataclass(frozen=True, slots=True)
class FileCriteria:
    """The criteria that select files.

    Attributes:
        pattern: a shell pattern.
        min_age_s: seconds since their last change, at least.
        keep_count: how many of these to leave as they are, the youngest; None for none.
        max_count: how many to process at most, the oldest first; None for all.
    """

    pattern: str
    min_age_s: float
    keep_count: int | None
    max_count: int | None


class OldFiles(Step):
    """The base of steps that process old files."""

    time_limit: ClassVar[float] = 3600.0

    def __init__(self, options: StepOptions) -> None:
        super().__init__(options)
        self._age = AgeOption(options)
        self._pattern = required(options, "Pattern")
        self._keep = optional(options, "Keep")
        self._count = optional(options, "Count")

    def process_file(self, path: Path) -> None:
        """Process one file, on a helper thread."""
        raise NotImplementedError

    async def run(self, context: ActionContext) -> None:
        """Process all files that the options select.

        Raises:
            StepError: some of them could not be processed; the others have been.
        """
        keep, count = self._keep, self._count
        criteria = FileCriteria(
            pattern=self._pattern.expand_text(context),
            min_age_s=self._age.read_s(context),
            keep_count=None if keep is None else quantity("Keep", keep, context, parse_count),
            max_count=None if count is None else quantity("Count", count, context, parse_count),
        )
        await self.services.helper_threads.call(
            lambda: process_old_files(criteria, self.process_file)
        )


def process_old_files(criteria: FileCriteria, process: Callable[[Path], None]) -> None:
    """Process the files that match criteria.

    Raises:
        StepError: some of them could not be processed; the others have been.
    """
    paths = sorted(map(Path, glob.glob(criteria.pattern)))
    journals = [path for path in paths if path.name.endswith(_JOURNALS)]
    old = _old_files([path for path in paths if path not in journals], criteria.min_age_s)
    limit = len(old) if criteria.keep_count is None else max(len(old) - criteria.keep_count, 0)
    if criteria.max_count is not None:
        limit = min(limit, criteria.max_count)
    problems = [
        f"{path} is a journal, which only the journal actions may touch" for path in journals
    ]
    for path in old[:limit]:
        try:
            process(path)
        except OSError as error:
            problems.append(f"{path}: {error.strerror or error}")
    if problems:
        suffix = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise StepError(f"{problems[0]}{suffix}")


def _old_files(paths: list[Path], age_s: float) -> list[Path]:
    """Return the files not modified for `age_s` seconds that no process has open, oldest first."""
    cutoff_s = time.time() - age_s
    candidates = []
    for path in paths:
        try:
            status = path.lstat()
        except FileNotFoundError:  # another process removed it first
            continue
        if stat.S_ISREG(status.st_mode) and status.st_mtime <= cutoff_s:
            candidates.append((status.st_mtime, path, (status.st_dev, status.st_ino)))
    in_use = _open_files() if candidates else frozenset[tuple[int, int]]()
    return [path for _, path, identity in sorted(candidates) if identity not in in_use]


def _open_files() -> frozenset[tuple[int, int]]:
    """Return device and inode of every file that a process has open, as far as visible to us."""
    open_files = set()
    for descriptor in glob.iglob("/proc/[0-9]*/fd/*"):
        try:
            status = os.stat(descriptor)
        except OSError:  # it is closed by now, or belongs to another user
            continue
        if stat.S_ISREG(status.st_mode):
            open_files.add((status.st_dev, status.st_ino))
    return frozenset(open_files)


_ENDING: Final = ".gz"
_CHUNK: Final = 1024 * 1024


class DoCompressFiles(OldFiles):
    """Compresses files."""

    def process_file(self, path: Path) -> None:
        """Compress one file; if that fails, it stays as it was.

        Raises:
            OSError: it cannot be read, the compressed one cannot be written, or is there already.
        """
        if path.suffix == _ENDING:
            return
        target = path.with_name(path.name + _ENDING)
        unfinished = target.with_name(f".{target.name}.unfinished")
        if target.exists():
            raise FileExistsError(f"there is a {target.name} already")
        try:
            with (
                path.open("rb") as source,
                open(unfinished, "wb", opener=_open_for_owner) as target_file,
                gzip.open(target_file, "wb") as compressed,
            ):
                shutil.copyfileobj(source, compressed, _CHUNK)
            shutil.copystat(path, unfinished)
            with unfinished.open("rb") as finished:
                os.fsync(finished.fileno())
            unfinished.rename(target)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise
        path.unlink()


def _open_for_owner(path: str, flags: int) -> int:
    """Open a file for its owner alone, until it has the permissions of the replaced file."""
    return os.open(path, flags, 0o600)


class DoRemoveFiles(OldFiles):
    """Removes files."""

    def process_file(self, path: Path) -> None:
        """Remove one."""
        path.unlink()
