"""Reports of files that cannot be read completely.

Commands print all that can be read, and count the parts that they skip: operators who inspect a
damaged file need to know about its missing parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from server.app.stdio import say


@dataclass(slots=True)
class SkipCounter:
    """Counts the parts of a file that were skipped.

    Attributes:
        noun: noun for one of them, such as "damaged entry".
        plural_noun: its plural.
        count: number of skipped parts.
        size_bytes: bytes that are known to belong to them.
        first_location: location of the first.
    """

    noun: str
    plural_noun: str
    count: int = 0
    size_bytes: int = 0
    first_location: str = ""

    def add(self, size: int, where: str) -> None:
        """Count one more skipped part."""
        self.first_location = self.first_location or where
        self.count += 1
        self.size_bytes += size

    def report(self, command: str, path: Path | str) -> bool:
        """Report the skipped parts, if there are any.

        Returns:
            True if parts were skipped.
        """
        if self.count:
            noun = self.noun if self.count == 1 else self.plural_noun
            where = (
                self.first_location if self.count == 1 else f"the first at {self.first_location}"
            )
            size = f", {self.size_bytes} bytes" if self.size_bytes else ""
            say(f"{command}: {path}: {self.count} {noun} skipped{size}: {where}")
        return self.count > 0


def reason(path: Path, problem: Exception) -> str:
    """Return why a file cannot be read, and how many bytes are skipped for it.

    Args:
        path: path of the file.
        problem: an `OSError`, or the error of a reader about the bytes of the file.
    """
    if isinstance(problem, OSError):
        return f"{path}: {problem.strerror or problem}"
    try:
        size = path.stat().st_size
    except OSError:
        return f"{path}: {problem}"
    return f"{path}: {problem}; {'it is empty' if not size else f'all {size} bytes are skipped'}"
