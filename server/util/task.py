"""The interfaces of work in time slices, and of the scheduler, which is passed in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

_One = TypeVar("_One")


class EngineTask(Protocol):
    """Work that is done in slices."""

    @property
    def task_label(self) -> tuple[str, str]:
        """The name of its client, or nothing; its command, or another word for the kind of work."""

    def step(self) -> bool:
        """Run one slice; return whether there is more to do."""


def split_into_chunks(things: Sequence[_One], size: int) -> Iterator[Sequence[_One]]:
    """Yield parts of a size, the last one smaller; at least one, which may be empty."""
    if len(things) <= size:
        yield things
        return
    for start in range(0, len(things), size):
        yield things[start : start + size]
