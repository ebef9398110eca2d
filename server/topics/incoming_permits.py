"""What other instances may have recorded here, as the transports say that they connect to.

An instance that this one has connected to by itself is there because the configuration says so, and
nothing is asked.

Source: AMPS User Guide, Entitlement Resource and Permission Types; Permissions Document Format,
replicated-topics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from server.journal.entry import NO_TOPIC

if TYPE_CHECKING:
    from server.journal import Topic
    from server.replication import Columns

Judge: TypeAlias = "Callable[[Topic], str | None]"
"""Says why nothing may be recorded of a topic; None if it may be."""


class IncomingPermits:
    """Who judges what comes, by the name of the instance that it comes from."""

    def __init__(self) -> None:
        self._judges: dict[str, Judge] = {}

    def begin(self, source: str, judge: Judge | None) -> None:
        """Something comes from an instance from now on.

        Args:
            source: its name.
            judge: says what of it may be recorded; None for everything.
        """
        if judge is None:
            self._judges.pop(source, None)
        else:
            self._judges[source] = judge

    def problem(self, source: str, topic: Topic) -> str | None:
        """Why what comes from an instance for a topic must not be recorded; None if it may be.

        What is said about numbers of publishers has no topic, and is always taken.
        """
        judge = self._judges.get(source)
        return None if judge is None or topic == NO_TOPIC else judge(topic)

    def allow_all(self, source: str, entries: Columns) -> bool:
        """Whether nothing of some entries must be left out."""
        return source not in self._judges or not any(
            self.problem(source, name.topic) for name in entries.used().values()
        )
