"""Scheduling of topics that are derived from others, when changes occur there.

A change of a topic is announced to its followers, which announce their own changes to theirs in
turn. A topic with several sources may receive one change from each of them. So a follower does not
act on receipt. It schedules an update here, which runs in the order of the configuration, in which
every topic comes after its sources. Thus each follower has received everything about a change
before its update runs, and one change of a record makes at most one change of any record that
depends on it.

All this completes before the source of the change continues. Failures in it are logged: they are
not the fault of the publishing client, nor do they keep the other topics from following.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.storage.sow.records import RecordChange
    from server.topics.record_source import RecordFollower
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.util.log_protocol import ServerLog


class DerivedTopicScheduler:
    """Schedules the topics that are derived from others.

    Args:
        log: receives failures.
    """

    __slots__ = ("_is_running", "_log", "_scheduled", "_topic_count")

    def __init__(self, log: ServerLog) -> None:
        self._log = log
        self._topic_count = 0
        self._scheduled: list[tuple[int, Callable[[], None]]] = []
        self._is_running = False

    def register_topic(self) -> int:
        """Assign a rank to the next topic of the configuration, and return it."""
        self._topic_count += 1
        return self._topic_count

    def announce_change(
        self,
        followers: Iterable[RecordFollower],
        change: RecordChange,
        envelope: Envelope,
        reason: str,
    ) -> None:
        """Notify followers of a change, and process all its consequences.

        Args:
            followers: the followers to notify.
            change: the change of a record. See `RecordFanout.announce`.
            envelope: its origin.
            reason: the reason why the record is gone, if it is.
        """
        for follower in followers:
            try:
                follower.handle_change(change, envelope, reason)
            except Exception as error:  # of any kind: the source of the change is not affected
                self._log_failure(change.topic, error)
        if self._scheduled and not self._is_running:
            self._is_running = True
            try:
                while self._scheduled:
                    self._run_update(change.topic, heappop(self._scheduled)[1])
            finally:
                self._is_running = False

    def _run_update(self, origin: str, update: Callable[[], None]) -> None:
        try:
            update()
        except Exception as error:  # of any kind: the source of the change is not affected
            self._log_failure(origin, error)

    def _log_failure(self, origin: str, error: Exception) -> None:
        text = f"a topic made from others could not follow a change of topic {origin!r}"
        self._log.emit("01-0004", text=text, error=repr(error))

    def schedule(self, rank: int, update: Callable[[], None]) -> None:
        """Schedule an update of a topic.

        Args:
            rank: the rank of the topic, which schedules no other update before this one has run.
            update: makes the update.
        """
        heappush(self._scheduled, (rank, update))
