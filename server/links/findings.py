"""What comparisons have found out: kept for whoever asks, and written into the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.base.log import Log

MOST_SHOWN: Final = 10
"""Keys that are named."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found out last about a topic and an instance.

    Attributes:
        at: when that began, in seconds since the Unix epoch: as of then it is true.
        records: how many this instance had.
        differing: how many keys are not the same.
        unclear: of how many that could not be said.
        keys: some of those that differ.
        failure: why nothing was found out; empty if something was.
    """

    at: float
    records: int = 0
    differing: int = 0
    unclear: int = 0
    keys: Sequence[str] = ()
    failure: str = ""

    @property
    def is_in_step(self) -> bool:
        """Whether the records are the same."""
        return not (self.differing or self.unclear or self.failure)


class Findings:
    """All of them.

    Args:
        log: where they are written.

    Attributes:
        latest: what was found out last, by name of the instance, message type and topic.
    """

    def __init__(self, log: Log) -> None:
        self.latest: Final[dict[tuple[str, str, str], Finding]] = {}
        self._log: Final = log

    def add(self, other: str, topic: tuple[str, str], finding: Finding) -> None:
        """Something has been found out.

        Args:
            other: name of the other instance.
            topic: message type and name.
            finding: what.
        """
        message_type, name = topic
        self.latest[other, message_type, name] = finding
        fields: dict[str, object] = {"topic": name, "message_type": message_type, "other": other}
        fields["moment"] = datetime.fromtimestamp(finding.at, UTC).isoformat(" ", "seconds")
        if finding.failure:
            self._log.emit("1E-0016", **fields, reason=finding.failure)
        elif finding.differing:
            keys = ", ".join(one.replace("\0", " ") for one in finding.keys)
            self._log.emit("1E-0014", **fields, count=finding.differing, keys=keys)
        elif finding.unclear:
            self._log.emit("1E-0015", **fields, count=finding.unclear)
        else:
            self._log.emit("1E-0013", **fields, records=finding.records)

    @property
    def state(self) -> Mapping[str, int]:
        """Counts of what was found out last."""
        return {
            f"keys of {topic} that differ from {other}": finding.differing
            for (other, _, topic), finding in self.latest.items()
        }
