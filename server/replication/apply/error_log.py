"""Logs entries of other instances that cannot be recorded: at once, and then once a minute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from server.util.rate_limited_log import LogWindow, RateLimitedLog

if TYPE_CHECKING:
    from server.topics.replicated.batch import EntryContents, ReplicatedBatch
    from server.topics.replicated.multi_topic import BatchFailure
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

_LOG_INTERVAL_S: Final = 60.0
"""Interval between two log messages about the same topic of a source."""

_REFUSED: Final = "1D-0022"
_UNAPPLIED: Final = "1D-0023"
_STALLED: Final = "1D-0024"
_RESUMED: Final = "1D-0025"


class ApplyErrorLog:
    """Writes log messages about entries that cannot be recorded.

    Args:
        clock: the time, and timers.
        log: receives the messages.
    """

    def __init__(self, clock: Clock, log: ServerLog) -> None:
        self._log: Final = log
        self._rate_limited_log: Final = RateLimitedLog(
            log,
            clock,
            burst=1,
            window_s=_LOG_INTERVAL_S,
            summary=_log_further_entries,
            is_continued=True,
        )
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
        fields = {
            "count": len(failures),
            "source": source,
            "topic": topic.name,
            "message_type": topic.message_type,
            "bookmark": entries.bookmark(position),
            "problem": str(problem) or repr(problem),
        }
        self._rate_limited_log.emit_events(
            message_id,
            (source, topic),
            fields,
            group=(source, topic.message_type),
            events=len(failures),
        )


def _log_further_entries(log: ServerLog, window: LogWindow) -> None:
    """Log the number of further entries, with the last of them."""
    log.emit(window.message_id, **window.fields | {"count": window.suppressed_count})
