"""Work that is done in slices, as everybody sees it: who shares out the time is passed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

_One = TypeVar("_One")


class Sliced(Protocol):
    """Work that is done in slices."""

    @property
    def doing(self) -> tuple[str, str]:
        """For whom, a client's name or nothing, and what: a command, or another word for it."""

    def step(self) -> bool:
        """Do a slice; whether there is more to do."""


class Slices(Protocol):
    """Shares out the time of the engine's thread."""

    @property
    def elapsed(self) -> Callable[[], float]:
        """Seconds since some moment, never going back."""

    def start(self, work: Sliced) -> None:
        """Do the first few slices of some work now, and the others in turns with other work."""

    def queue(self, work: Sliced) -> None:
        """Do some work in turns with other work."""


def portions(things: Sequence[_One], size: int) -> Iterator[Sequence[_One]]:
    """Some things in portions of a size, the last one smaller; at least one, perhaps of nothing."""
    if len(things) <= size:
        yield things
        return
    for start in range(0, len(things), size):
        yield things[start : start + size]
