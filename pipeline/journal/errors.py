"""What goes wrong when journals are read offline, in words for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class JournalReadError(Exception):
    """Journals cannot be read as asked. The text names the file or the option, and the cause."""


def no_file(path: Path, problem: OSError) -> JournalReadError:
    """A journal file cannot be opened or read."""
    return JournalReadError(f"{path}: {problem.strerror or problem}")
