"""What commands say of files that cannot be read, or not all of it.

They print what can be had, and count what they skip: somebody who looks at a damaged file has to
know what is missing from what they see.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from server.program.console import say


@dataclass(slots=True)
class Skipped:
    """What has been passed over in a file.

    Attributes:
        thing: what one of them is called, such as "damaged entry".
        things: what several are called.
        count: how many there were.
        size: bytes that are known to belong to them.
        first: where the first was.
    """

    thing: str
    things: str
    count: int = 0
    size: int = 0
    first: str = ""

    def add(self, size: int, where: str) -> None:
        """Pass over one more."""
        self.first = self.first or where
        self.count += 1
        self.size += size

    def tell(self, command: str, path: Path | str) -> bool:
        """Say what has been skipped, if anything has.

        Returns:
            Something has.
        """
        if self.count:
            noun = self.thing if self.count == 1 else self.things
            where = self.first if self.count == 1 else f"the first at {self.first}"
            size = f", {self.size} bytes" if self.size else ""
            say(f"{command}: {path}: {self.count} {noun} skipped{size}: {where}")
        return self.count > 0


def reason(path: Path, problem: Exception) -> str:
    """Why a file cannot be read, and how much of it is skipped therefore.

    Args:
        path: of the file.
        problem: an `OSError`, or what a reader says of the bytes of the file.
    """
    if isinstance(problem, OSError):
        return f"{path}: {problem.strerror or problem}"
    try:
        size = path.stat().st_size
    except OSError:
        return f"{path}: {problem}"
    return f"{path}: {problem}; {'it is empty' if not size else f'all {size} bytes are skipped'}"
