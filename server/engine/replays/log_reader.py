"""The log reader of one bookmark subscription, or of several of a connection together.

    READING --all read--> WAITING --more may be read--> READING        any state --all left--> over
    READING --client is behind, or the rate is used up--> PACED --timer--> READING
    READING --the log cannot be read--> PACED, or over when that lasts too long

It goes at the client's pace. While the client has unread data nothing is read, so that replays do
not fill memory; the log is read a slice at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Final

from server.engine.replays.logged_topics import ReplayTopics
from server.engine.replays.rate_limiter import ReplayRateLimiter
from server.engine.replays.read_retry import RETRY_INTERVAL_S, ReadRetry
from server.storage.journal import JournalUnreadableError
from server.util.clock import MICROSECONDS_PER_SECOND, no_timer

if TYPE_CHECKING:
    from server.engine.replays.replay import Replay
    from server.storage.journal import JournalEntry, LogSpan
    from server.topics.subscriptions.matching.filter_costs import FilterCost
    from server.topics.subscriptions.subscription import Subscription

_NUMBERS: Final = count(1)
_MAX_WAIT_S: Final = 60.0
"""Interval at which the wall clock is checked again: it may have been set."""

_MIN_BEHIND_SECONDS: Final = 0.001
_BEHIND_SECONDS: Final = 0.01
"""Delay before the next check whether a client has read its outbox; a first check comes sooner."""
_SLICE: Final = 256


class ReplayLogReader:
    """Reads the log for some replays that agree in everything but topics and filters.

    Args:
        replays: the replays; they may leave one after the other.
        span: the part of the log.

    Attributes:
        number: a unique number of the log reader.
        last_recorded_s: when the last entry read was recorded, in seconds since 1970; 0 if there is
            none.
    """

    def __init__(self, replays: Sequence[Replay], span: LogSpan) -> None:
        self.number: Final = next(_NUMBERS)
        self.last_recorded_s = 0.0
        first = replays[0]
        self._session = first.session
        self._engine = first.session.engine
        self._log = first.log
        self._replays = list(replays)
        self._span = span
        self._behind_s = _MIN_BEHIND_SECONDS
        self._rate_limiter = None if first.rate is None else ReplayRateLimiter(first.rate)
        topics = self._topics = first.make_recipients()
        # None if each message has to be checked before it is sent.
        packed_topics = (
            topics if isinstance(topics, ReplayTopics) and not first.needs_separate_sends else None
        )
        self._packed_topics: ReplayTopics | None = packed_topics
        for replay in replays:
            self._topics.attach(replay.subscription)
        self._horizon = first.tail.horizon
        self._cursor = self._log.journal.replay(
            span, self._topics.wants_topic, self._topics.entry_kinds, self._horizon
        )
        self._read_retry = ReadRetry(self._engine)
        self._unsent_entries: deque[JournalEntry] = deque()
        self._is_position_reported = True  # all replays know the position
        self._is_running = False  # a step is scheduled, or a timer or callback will schedule one
        self._cancel_timer: Callable[[], None] = no_timer

    @property
    def is_caught_up(self) -> bool:
        """True if everything has been read and sent."""
        return not self._unsent_entries and self._cursor.is_caught_up

    @property
    def position(self) -> int:
        """The txid up to which all messages have been sent."""
        return self._unsent_entries[0].txid - 1 if self._unsent_entries else self._cursor.position

    def filter_costs(self, subscription: Subscription) -> Iterator[FilterCost]:
        """See `ReplayTopics.filter_costs`."""
        return self._topics.filter_costs(subscription)

    def remove_replay(self, replay: Replay) -> None:
        """Stop reading for a replay."""
        self._replays.remove(replay)
        self._topics.detach(replay.subscription)
        self._cursor.reset_topic_filter()
        if not self._replays:
            self._cancel_timer()
            self._unsent_entries.clear()

    def run(self) -> None:
        """Start reading, unless a step is scheduled already."""
        if not self._is_running:
            self._is_running = True
            self._engine.scheduler.start_task(self)

    @property
    def task_label(self) -> tuple[str, str]:
        """See `EngineTask.task_label`."""
        return self._session.client_name, "replay"

    def step(self) -> bool:
        """See `EngineTask.step`."""
        try:
            has_more = self._run_slice()
        except JournalUnreadableError as error:
            has_more = False
            self._handle_read_error(error)
        if not has_more:
            self._is_running = False
        return has_more

    def _handle_read_error(self, error: JournalUnreadableError) -> None:
        if not self._read_retry.record_failure(error):
            for replay in list(self._replays):  # messages that it holds back have a limit
                replay.on_position_reached(self._cursor.position)
            self._run_later(RETRY_INTERVAL_S)
            return
        for replay in list(self._replays):
            replay.on_read_failed(error)

    def _run_slice(self) -> bool:
        if not self._replays:
            return False
        if self._session.is_behind():
            for replay in list(self._replays):
                replay.on_client_behind()
            self._run_later(self._behind_s)
            self._behind_s = min(2 * self._behind_s, _BEHIND_SECONDS)
            return False
        self._behind_s = _MIN_BEHIND_SECONDS
        if self._is_at_end:
            return self._finish()
        if self._is_position_reported and not self._read_slice():
            return False
        if not self._replays:
            return False
        if self._is_at_end:
            return self._finish()
        if self._unsent_entries:
            return True
        position = self._cursor.position
        unreported = [
            replay for replay in list(self._replays) if replay.on_position_reached(position)
        ]
        self._is_position_reported = not unreported
        if not self._is_position_reported or not self._cursor.is_caught_up:
            return True
        return self._handle_caught_up()

    @property
    def _is_at_end(self) -> bool:
        is_finished = self._cursor.is_finished and not self._unsent_entries
        return is_finished or self._replays[0].is_limit_reached

    def _read_slice(self) -> bool:
        """Read and send a slice; return False if that has to wait."""
        if not self._unsent_entries and self._cursor.needs_decompression:
            self._log.run_on_worker(self._cursor.decompress, lambda _: self.run())
            return False
        if self._packed_topics is not None:
            raw_range = self._cursor.read_raw_range(_SLICE)
            if len(raw_range):
                self.last_recorded_s = raw_range.last_timestamp / MICROSECONDS_PER_SECOND
            self._packed_topics.deliver_range(raw_range)
        elif not self._send_entries():
            return False
        self._read_retry.record_success()
        return True

    def _send_entries(self) -> bool:
        """Send messages one by one; return False if some of those read have to wait."""
        if not self._unsent_entries:
            self._unsent_entries.extend(self._cursor.read(_SLICE))
        unsent_entries, rate_limiter, now = (
            self._unsent_entries,
            self._rate_limiter,
            self._engine.clock.steady(),
        )
        correction = self._log.journal.clock_steps.correction
        counted_replay = self._replays[0]
        replay_clocks = [
            replay.replay_clock for replay in self._replays if replay.replay_clock is not None
        ]
        while unsent_entries:
            entry = unsent_entries[0]
            recorded_us = entry.timestamp + correction(entry.txid)
            self.last_recorded_s = recorded_s = recorded_us / MICROSECONDS_PER_SECOND
            late_clocks = [replay for replay in replay_clocks if not replay.advance(recorded_s)]
            if late_clocks:  # the other callbacks due before follow in the next slice
                return True
            deliveries, envelope = self._topics.deliveries(entry)
            if deliveries:
                if (
                    rate_limiter is not None
                    and (delay := rate_limiter.delay(entry, recorded_us, now)) > 0
                ):
                    self._run_later(delay)
                    return False
                for delivery in deliveries:
                    delivery.deliver((entry.body,), envelope)
                if counted_replay.messages_left is not None:
                    counted_replay.messages_left -= 1
                    if counted_replay.is_limit_reached:
                        return True
            unsent_entries.popleft()
        return True

    def _handle_caught_up(self) -> bool:
        """Release the replays that need no reader of their own now, or wait for more entries."""
        for replay in list(self._replays):
            replay.on_caught_up(self._cursor.position)
        if not self._replays:
            return False
        if not self._cursor.is_caught_up:
            return True
        for replay in self._replays:
            if replay.replay_clock is not None:
                replay.replay_clock.run()
        end_timestamp = self._span.end_timestamp
        if end_timestamp is not None:
            remaining_s = end_timestamp / MICROSECONDS_PER_SECOND - self._engine.clock.now()
            if remaining_s <= 0 and self._horizon() >= self._log.last_txid:
                return self._finish()
            self._run_later(min(max(remaining_s, _BEHIND_SECONDS), _MAX_WAIT_S))
        self._log.when_advanced(self.run)
        return False

    def _finish(self) -> bool:
        """Notify the replays of the end; return True if some are to be notified again."""
        position = self._cursor.position
        unfinished = [replay for replay in list(self._replays) if replay.on_finished(position)]
        return bool(unfinished)

    def _run_later(self, delay: float) -> None:
        self._cancel_timer()
        self._cancel_timer = self._engine.clock.call_later(delay, self._run_from_timer)

    def _run_from_timer(self) -> None:
        self.run()
        self._engine.flush()
