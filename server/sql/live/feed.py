"""The changes that a SUBSCRIBE has not sent yet, between the engine's thread and worker threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from server.sql.query.errors import SqlError
from server.sql.sqlstate import OUT_OF_MEMORY
from server.storage.sow.records import Record
from server.topics.subscriptions.delivery.sink import ChangeSink

if TYPE_CHECKING:
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.delivery.record_delivery import RecordMessage
    from server.util.clock import Clock

MAX_PENDING_BYTES: Final = 64 * 1024 * 1024
"""Memory of changes that wait for a client, at which its SUBSCRIBE fails."""

_CHANGE_BYTES: Final = 500
"""Approximate memory of a change, apart from the body."""

_CHARGE_STEP_BYTES: Final = 256 * 1024
"""The difference from which on memory is charged to the client, or released."""

_MIN_WAKE_INTERVAL_S: Final = 0.02
"""Time between two batches of changes: a batch costs as much as some hundred changes."""

Change: TypeAlias = tuple[float, int, Record]
"""When a change was made, in seconds since 1970; 1 or -1; the record that is added or removed."""


class LiveFeed(ChangeSink):
    """Collects changes on the engine's thread; a worker thread takes them.

    Args:
        clock: the engine's clock.
        charge_memory: charges bytes to the client, negative to release.
        on_failure: ends the subscription, after more changes than may wait.

    Attributes:
        matches: tests whether the client has a record from before; None if it has all.
        redact: removes the fields that the user may not see from a body; None if there are none.
        progress_s: a moment in seconds since 1970: all changes before it have been taken.
    """

    def __init__(
        self,
        clock: Clock,
        charge_memory: Callable[[int], None],
        on_failure: Callable[[], None],
    ) -> None:
        self.matches: Callable[[Record], bool] | None = None
        self.redact: Callable[[bytes], bytes] | None = None
        self.progress_s = 0.0
        self._last_s = 0.0
        self._clock: Final = clock
        self._charge_memory: Final = charge_memory
        self._on_failure: Final = on_failure
        self._changes: deque[Change] = deque()
        self._error: SqlError | None = None
        self._is_closed = False
        self._added_bytes = 0  # changed by the engine's thread only
        self._taken_bytes = 0  # changed by the worker thread only
        self._charged_bytes = 0
        self._resume: Callable[[], None] | None = None
        self._cancel_timer: Callable[[], None] | None = None
        self._is_wake_scheduled = False
        self._last_wake_s = 0.0

    # ---- on the engine's thread: changes

    def read_time(self) -> float:
        """Return the time for a change; it never decreases, even if the clock is set back."""
        self._last_s = max(self._last_s, self._clock.now())
        return self._last_s

    def advance_time(self, time_s: float) -> None:
        """Make no change earlier than a time, in seconds since 1970."""
        self._last_s = max(self._last_s, time_s)

    def on_message(self, topic: str, body: bytes, envelope: Envelope) -> None:  # noqa: ARG002 - see `MessageSink`
        """See `MessageSink.on_message`."""
        self._add(self.read_time(), 1, Record("", bytes(body), topic))

    def on_record(self, topic: str, body: bytes, message: RecordMessage) -> None:  # noqa: ARG002 - see `MessageSink`
        """See `MessageSink.on_record`."""
        now_s, previous = self.read_time(), message.previous_record
        if previous is not None and (self.matches is None or self.matches(previous)):
            self._add(now_s, -1, previous)
        self._add(now_s, 1, message.record)

    def on_oof(self, topic: str, body: bytes, message: RecordMessage) -> None:  # noqa: ARG002 - see `MessageSink`
        """See `MessageSink.on_oof`."""
        previous = message.previous_record
        if previous is not None:
            self._add(self.read_time(), -1, previous)

    def _add(self, time_s: float, diff: int, record: Record) -> None:
        if self._is_closed:
            return
        if self.redact is not None:
            record = record._replace(body=self.redact(record.body))
        self._changes.append((time_s, diff, record))
        self._added_bytes += len(record.body) + _CHANGE_BYTES
        pending = self._added_bytes - self._taken_bytes
        if abs(pending - self._charged_bytes) >= _CHARGE_STEP_BYTES:
            self._update_charge()
            if pending > MAX_PENDING_BYTES:
                self._fail_for_size()
        if self._resume is not None and not self._is_wake_scheduled:
            self._schedule_wake()

    def _fail_for_size(self) -> None:
        self.fail(
            SqlError(
                OUT_OF_MEMORY,
                f"more than {MAX_PENDING_BYTES >> 20} MB of changes have waited for the client",
                hint="Read faster, fetch more often, or subscribe to fewer columns or records.",
            )
        )
        # later: the caller may be iterating over the topic's subscriptions
        self._clock.call_later(0, self._on_failure)

    def fail(self, error: SqlError) -> None:
        """Drop the changes, and fail when the next ones are taken."""
        if self._error is None and not self._is_closed:
            self._error = error
            self.close()
            self.wake()

    def close(self) -> None:
        """Take no more changes, and drop pending ones."""
        self._is_closed = True
        self._changes.clear()
        self._added_bytes = self._taken_bytes
        self._update_charge()

    def _update_charge(self) -> None:
        pending = 0 if self._is_closed else self._added_bytes - self._taken_bytes
        if pending != self._charged_bytes:
            self._charge_memory(pending - self._charged_bytes)
            self._charged_bytes = pending

    # ---- on the engine's thread: waiting

    def begin_wait(self, resume: Callable[[], None], timeout_s: float | None) -> None:
        """Call `resume` once when there are changes, after a failure, or after a time.

        Changes that follow each other within 20 ms are left to be one batch.
        """
        self._update_charge()
        self._resume = resume
        if not self._changes:
            self.progress_s = self.read_time()
        if self._changes or self._error is not None:
            self._schedule_wake()
        elif timeout_s is not None:
            self._cancel_timer = self._clock.call_later(timeout_s, self.wake)

    def end_wait(self) -> None:
        """Do not call `resume` any more."""
        self._resume = None
        self._is_wake_scheduled = False
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None

    def wake(self) -> None:
        """End the wait now, if there is one."""
        resume = self._resume
        self.end_wait()
        if resume is not None:
            self._last_wake_s = self._clock.steady()
            resume()

    def _schedule_wake(self) -> None:
        self._is_wake_scheduled = True
        if self._cancel_timer is not None:
            self._cancel_timer()
        elapsed = self._clock.steady() - self._last_wake_s
        self._cancel_timer = self._clock.call_later(
            max(0.0, _MIN_WAKE_INTERVAL_S - elapsed), self.wake
        )

    # ---- on a worker thread

    @property
    def change_count(self) -> int:
        """The number of changes that wait."""
        return len(self._changes)

    def take(self, max_count: int, max_bytes: int) -> list[Change]:
        """Return the next changes; none if there are none at the moment.

        Raises:
            SqlError: the subscription has failed.
        """
        if self._error is not None:
            raise self._error
        taken: list[Change] = []
        changes = self._changes
        size = 0
        while len(taken) < max_count and size < max_bytes:
            try:
                change = changes.popleft()
            except IndexError:
                break
            size += len(change[2].body) + _CHANGE_BYTES
            taken.append(change)
        self._taken_bytes += size
        return taken


class LiveWait:
    """The wait of a statement for changes: its thread is free meanwhile.

    Args:
        feed: the changes.
        timeout_s: the longest time, in seconds; None for any.
    """

    __slots__ = ("_feed", "_timeout_s")

    def __init__(self, feed: LiveFeed, timeout_s: float | None) -> None:
        self._feed: Final = feed
        self._timeout_s: Final = timeout_s

    def begin(self, resume: Callable[[], None]) -> None:
        """Call `resume` when the wait is over; on the engine's thread, as the others."""
        self._feed.begin_wait(resume, self._timeout_s)

    def end(self) -> None:
        """Do not call `resume` any more."""
        self._feed.end_wait()

    def wake(self) -> None:
        """End the wait now."""
        self._feed.wake()
