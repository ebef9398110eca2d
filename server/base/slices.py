"""Work that is done in slices, as everybody sees it: who shares out the time is passed in."""

from __future__ import annotations

from typing import Protocol


class Sliced(Protocol):
    """Work that is done in slices."""

    @property
    def doing(self) -> tuple[str, str]:
        """For whom, a client's name or nothing, and what: a command, or another word for it."""

    def step(self) -> bool:
        """Do a slice; whether there is more to do."""


class Slices(Protocol):
    """Shares out the time of the engine's thread."""

    def start(self, work: Sliced) -> None:
        """Do the first few slices of some work now, and the others in turns with other work."""

    def queue(self, work: Sliced) -> None:
        """Do some work in turns with other work."""
