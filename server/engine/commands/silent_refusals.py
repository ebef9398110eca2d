"""Refused publishes of one connection that requested no acknowledgement of it.

Their publisher learns of them from the next `flush` with the option `refusals`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.engine.commands.acks import wants

if TYPE_CHECKING:
    from amperage.wire.header import Header

_PUBLISHES: Final = ("publish", "p", "delta_publish")
_FAILURE_ACKS: Final = ("processed", "completed", "stats", "persisted")
"""The acks that report a failure."""


class SilentRefusals:
    """Counts refused publishes that were not answered, since the last report."""

    __slots__ = ("_count", "_detail", "_reason")

    def __init__(self) -> None:
        self._count = 0
        self._reason = ""
        self._detail = ""

    def add(self, header: Header, reason: str, detail: str) -> None:
        """Count a refused command, if it is a publish that gets no answer.

        Args:
            header: the command's header.
            reason: the phrase that clients know.
            detail: the problem, and the expectation.
        """
        if header.command not in _PUBLISHES or any(wants(header, ack) for ack in _FAILURE_ACKS):
            return
        if not self._count:
            self._reason, self._detail = reason, detail
        self._count += 1

    def take_report(self) -> dict[str, str | int | None]:
        """Return the fields of an ack that reports the refusals, and begin to count anew.

        Returns:
            The number as `matches`, reason and detail of the first; nothing if there were none.
        """
        if not self._count:
            return {}
        report: dict[str, str | int | None] = {
            "matches": self._count,
            "reason": self._reason,
            "detail": self._detail,
        }
        self._count, self._reason, self._detail = 0, "", ""
        return report
