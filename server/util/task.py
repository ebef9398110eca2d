"""The interfaces of work in time slices, and of the scheduler, which is passed in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

_Item = TypeVar("_Item")


class EngineTask(Protocol):
    """Work that is done in slices."""

    @property
    def task_label(self) -> tuple[str, str]:
        """The name of its client, or nothing; its command, or another word for the kind of work."""

    def step(self) -> bool:
        """Run one slice; return whether there is more to do."""


def split_into_chunks(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    """Yield parts of a size, the last one smaller; at least one, which may be empty."""
    if len(items) <= size:
        yield items
        return
    for start in range(0, len(items), size):
        yield items[start : start + size]
