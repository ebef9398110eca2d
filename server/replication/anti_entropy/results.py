"""Results of comparisons: kept for callers, and written to the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.util.log_protocol import ServerLog

MAX_SHOWN_KEYS: Final = 10
"""Number of keys that a log entry names."""


@dataclass(frozen=True, slots=True)
class TopicComparison:
    """The latest result for a topic and an instance.

    Attributes:
        started_at: time when the comparison began, in seconds since the Unix epoch: the result
            holds as of then.
        records: number of records of this instance.
        differing: number of keys that are not the same.
        unclear: number of keys that could not be decided.
        keys: some of the keys that differ.
        failure: the reason for the failure of the comparison; empty if it succeeded.
    """

    started_at: float
    records: int = 0
    differing: int = 0
    unclear: int = 0
    keys: Sequence[str] = ()
    failure: str = ""


class ComparisonHistory:
    """The latest results of all comparisons.

    Args:
        log: the event log.

    Attributes:
        latest: the latest result, by name of the instance, message type and topic.
    """

    def __init__(self, log: ServerLog) -> None:
        self.latest: Final[dict[tuple[str, str, str], TopicComparison]] = {}
        self._log: Final = log

    def add(self, other: str, topic: tuple[str, str], comparison: TopicComparison) -> None:
        """Store and log a result.

        Args:
            other: name of the other instance.
            topic: message type and name.
            comparison: the result.
        """
        message_type, name = topic
        self.latest[other, message_type, name] = comparison
        fields: dict[str, object] = {"topic": name, "message_type": message_type, "other": other}
        fields["moment"] = datetime.fromtimestamp(comparison.started_at, UTC).isoformat(
            " ", "seconds"
        )
        if comparison.failure:
            self._log.emit("1E-0016", **fields, reason=comparison.failure)
        elif comparison.differing:
            keys = ", ".join(key.replace("\0", " ") for key in comparison.keys)
            self._log.emit("1E-0014", **fields, count=comparison.differing, keys=keys)
        elif comparison.unclear:
            self._log.emit("1E-0015", **fields, count=comparison.unclear)
        else:
            self._log.emit("1E-0013", **fields, records=comparison.records)

    @property
    def state(self) -> Mapping[str, int]:
        """Numbers of differing keys in the latest results."""
        return {
            f"keys of {topic} that differ from {other}": comparison.differing
            for (other, _, topic), comparison in self.latest.items()
        }
