"""Logs entries of other instances that cannot be recorded: at once, and then once a minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from server.storage.journal import JournalTopic

if TYPE_CHECKING:
    from server.topics.replicated.batch import EntryContents, ReplicatedBatch
    from server.topics.replicated.multi_topic import BatchFailure
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

_LOG_INTERVAL_S: Final = 60.0
"""Interval between two log messages about the same subject."""

_MAX_SUBJECTS: Final = 1000
"""The most subjects rate-limited separately; those beyond share one per message type."""

_REFUSED: Final = "1D-0022"
_UNAPPLIED: Final = "1D-0023"
_STALLED: Final = "1D-0024"
_RESUMED: Final = "1D-0025"


@dataclass(slots=True)
class _Subject:
    """A rate-limited subject.

    Attributes:
        count: entries concerned that have not been reported.
        last_fields: the log fields of the last of them.
    """

    count: int = 0
    last_fields: dict[str, object] = field(default_factory=dict)


class ApplyErrorLog:
    """Writes log messages about entries that cannot be recorded.

    Args:
        clock: the time, and timers.
        log: receives the messages.
    """

    def __init__(self, clock: Clock, log: ServerLog) -> None:
        self._clock: Final = clock
        self._log: Final = log
        self._subjects: dict[tuple[str, str, JournalTopic], _Subject] = {}
        self._stalled_sources: set[str] = set()

    def report_batch(self, arrivals: ReplicatedBatch, source: str) -> None:
        """Report entries that could not be recorded, unless the rate limit applies.

        Args:
            arrivals: the entries received.
            source: the name of the instance that sent them.
        """
        if arrivals.problem is not None:
            self._stalled_sources.add(source)
            failures = [(arrivals.position, arrivals.problem)]
            self._report_failures(_STALLED, arrivals, failures, source)
        else:
            self.report_resumed(source)
        self._report_failures(_REFUSED, arrivals, arrivals.refused_entries, source)
        self.report_unapplied(arrivals, arrivals.unapplied_entries, source)

    def report_unapplied(
        self, entries: EntryContents, failures: Sequence[BatchFailure], source: str
    ) -> None:
        """Report entries of one topic that are in the transaction log but could not be applied."""
        self._report_failures(_UNAPPLIED, entries, failures, source)

    def report_resumed(self, source: str) -> None:
        """Report that entries of an instance are recorded again, if they were waiting."""
        if source in self._stalled_sources:
            self._stalled_sources.discard(source)
            self._log.emit(_RESUMED, source=source)

    def _report_failures(
        self, message_id: str, entries: EntryContents, failures: Sequence[BatchFailure], source: str
    ) -> None:
        if not failures:
            return
        position, problem = failures[-1]
        topic = entries.columns.properties_of(position).topic
        key = message_id, source, topic
        if key not in self._subjects and len(self._subjects) >= _MAX_SUBJECTS:
            key = message_id, source, JournalTopic(topic.message_type, "")
        subject = self._subjects.get(key)
        is_new = subject is None
        if subject is None:
            subject = self._subjects[key] = _Subject()
        subject.count += len(failures)
        subject.last_fields = {
            "source": source,
            "topic": topic.name,
            "message_type": topic.message_type,
            "bookmark": entries.bookmark(position),
            "problem": str(problem) or repr(problem),
        }
        if is_new:
            self._emit(key)

    def _emit(self, key: tuple[str, str, JournalTopic]) -> None:
        """Report the pending count of a subject, or remove the subject if that is 0."""
        subject = self._subjects[key]
        if not subject.count:
            del self._subjects[key]
            return
        self._log.emit(key[0], count=subject.count, **subject.last_fields)
        subject.count = 0
        self._clock.call_later(_LOG_INTERVAL_S, partial(self._emit, key))
