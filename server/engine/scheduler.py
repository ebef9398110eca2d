"""The scheduler: shares the engine's thread between connections, queries and replays.

One thread serves all clients, so work for one client delays all others. Time is therefore given out
in slices, and none is longer than about a millisecond:

    a read of the socket                    round                    round
    | A's first slice | B's request |  ...  | A | query | C |  ...  | query | C | A |  ...
                                       ^ the event loop polls all sockets

The commands of a connection are executed as they are read, for the length of a slice. The rest of
the input then waits in the session's input buffer (`InputBuffer`), and its socket is not read
meanwhile: backpressure makes the peer wait. All waiting work, connections as well as queries and
replays, is in one queue. Between two polls of the sockets there is a scheduling round: each item of
the queue gets at most one slice, items with more work go back to the end of the queue, and the
round ends when its time is used up. If only a few items wait, each gets the whole round.

The length of a round depends on the clients that would have to wait for its end. While there are
clients that send little, rounds are short; a publisher that sends at full speed, and is the only
sender, gets more done in long ones.

A client that sends little does not queue: a short read is executed as it arrives, even during
rounds, for a short slice. So a request beside a busy publisher waits for the end of one round. A
connection is busy for `_BUSY_SECONDS` after a long read, and after any input that had to wait: a
publisher that sends no more than a window of unacknowledged messages never has a long read.

The event loop may deliver many reads of a busy connection in a row before it polls the others. From
the first one on, time counts as part of a round: input that arrives when it is used up has to wait,
and the round that follows gives out no more than the rest of it. While there is a queue, reads of
busy connections go to its end.

Some work costs less the more of it is done at once, such as the deliveries of queues. It may be
deferred (`defer_task`): it waits while other work goes on and adds to it in every round, for a
moment at most.

Output is flushed at the end of rounds, in a slice of its own. A write costs more than most
messages, so outboxes with little in them are held for a moment while there is more work; and when
they fill faster than they are flushed, no work gets a slice until they are flushed.

A slice is over when its time has passed, and only the running work can check the clock: after each
command, and for publishes, which are executed in batches, at intervals of `BatchSizeEstimator`.
Scheduling is cooperative: a command is not preempted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from server.util.clock import MICROSECONDS_PER_SECOND
from server.util.histogram import Histogram

if TYPE_CHECKING:
    from server.topics.subscriptions.delivery.outbox import Outboxes
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog
    from server.util.task import EngineTask

ROUND_SECONDS: Final = 0.001
"""The length of a round: how long the engine works before it polls all sockets again."""

SHORT_ROUND_SECONDS: Final = 0.000_25
"""The same, while other clients might have to wait for the end of the round."""

_SHORT_READ_SECONDS: Final = 0.1
"""How long after a short read its sender is assumed to wait for a round's end."""

_BUSY_SECONDS: Final = 0.1
"""How long a connection counts as busy after a long read, or after input that had to wait."""

_MAX_BUSY_CONNECTIONS: Final = 256
"""Busy connections that are remembered; beyond, expired ones are dropped."""

_HELD_SECONDS: Final = 0.002
"""How long output may wait in outboxes for more output, while there is more work."""

_FLUSH_SHARE: Final = 1 / 3
"""How long outboxes are flushed, as a fraction of a round's length, while there is more work. With
very many connections, a smaller value makes writes larger, and later."""

_TOO_SHORT_SECONDS: Final = 0.000_05
"""The rest of a slice that is too short to begin other work."""

_SHORT_SLICE_SECONDS: Final = 0.000_2
"""How long a peer's commands are executed as they are read while other work waits."""

_MIN_SLICE_SECONDS: Final = 0.000_2
"""The shortest slice when many items share a round."""

_FEW_TASKS: Final = 4
"""Fewer other items than these wait for the next round instead of sharing this one: batches that
fill longer slices cost less, and the wait is a few rounds at most."""

LONG_READ_SIZE: Final = 64 * 1024
"""Bytes of a read that shows that the peer is ahead of the server, and has more waiting."""

_SLICE_BATCH_SIZE: Final = 4


LONG_TASK_SECONDS: Final = 0.1
"""Work that blocks the engine's thread for longer than this is logged."""


@dataclass(slots=True)
class LongestTask:
    """The work that has blocked the engine's thread for longest, and the number of long blocks.

    Attributes:
        seconds: its duration.
        client_name: the name of the client that it was for; empty if it was for none in particular.
        task_name: the command's name, or another word for the kind of work; never its content.
        long_task_count: how many pieces of work have taken longer than LONG_TASK_SECONDS.
    """

    seconds: float = 0.0
    client_name: str = ""
    task_name: str = ""
    long_task_count: int = 0


class Scheduler:
    """Schedules the work of the engine's thread in slices.

    Args:
        clock: schedules the next round.
        elapsed: returns seconds, monotonic: measures the length of work.
        outboxes: the output buffers, which are flushed between slices.
        log: the log for work that takes long.
        processor_time: returns the seconds for which this thread has run.

    Attributes:
        elapsed: returns seconds, monotonic.
        processor_time: see above.
        longest_task: the work that has taken longest.
        task_durations: the durations of pieces of work, in microseconds.
        postponed_reads: reads of connections that had to wait for a round.
    """

    def __init__(
        self,
        clock: Clock,
        elapsed: Callable[[], float],
        outboxes: Outboxes,
        log: ServerLog,
        processor_time: Callable[[], float],
    ) -> None:
        self.longest_task: Final = LongestTask()
        self.task_durations: Final = Histogram()
        self.postponed_reads = 0
        self._on_work: Callable[[float, tuple[str, str]], None] | None = None
        self._reported_seconds = LONG_TASK_SECONDS  # work of this length is reported
        self._log = log
        self.elapsed: Final = elapsed
        self.processor_time: Final = processor_time
        self._clock = clock
        self._outboxes = outboxes
        self._tasks: deque[EngineTask] = deque()
        self._deferred_tasks: dict[EngineTask, float] = {}  # with the time until which they wait
        self._is_deferral_extended = False  # since the last round
        self._slice_end_s = 0.0
        self._round_end_s = 0.0
        self._is_round_clock_running = False  # a long read has begun to use up the next round
        self._is_round_scheduled = False  # there is a next round
        self._busy_until_s: dict[int, float] = {}  # by id() of a connection
        self._last_short_read_s = (
            -_SHORT_READ_SECONDS
        )  # when another connection last had a short read
        self._outboxes_empty_s = 0.0  # when the last waiting outbox was flushed

    @property
    def queue_length(self) -> int:
        """The number of items that wait for a slice."""
        return len(self._tasks)

    def time_left(self, now: float) -> float:
        """Return the seconds left of the current slice; 0 if too few to begin other work.

        Args:
            now: the time that `elapsed` returns.
        """
        seconds_left = self._slice_end_s - now
        return seconds_left if seconds_left > _TOO_SHORT_SECONDS else 0.0

    def run_or_queue(
        self, connection: EngineTask, size: int, *, tolerates_delay: bool = False
    ) -> bool:
        """Give a connection a slice for the bytes just read, or queue it for a round.

        Args:
            connection: one that is not in the queue already.
            size: bytes that have been read.
            tolerates_delay: True if rounds need not be short for it, though it sends little.

        Returns:
            Whether it has to wait; then it is in the queue.
        """
        now, key = self.elapsed(), id(connection)
        is_long = size >= LONG_READ_SIZE
        if is_long or self._busy_until_s.get(key, now) > now:
            self._slice_end_s = now if self._must_queue_busy else self._start_round_clock(now)
        else:
            if not tolerates_delay:
                self._last_short_read_s = now
            is_alone = not self._tasks
            self._slice_end_s = now + (ROUND_SECONDS if is_alone else _SHORT_SLICE_SECONDS)
        has_more = self._slice_end_s <= now or self._run_slice(connection, now)
        if is_long or has_more:
            self._note_busy(key, now)
        if has_more:
            self.postponed_reads += 1
            self.queue_task(connection)
        return has_more

    def _note_busy(self, key: int, now: float) -> None:
        """Note that a connection is ahead of the server: its short reads wait for rounds."""
        if len(self._busy_until_s) >= _MAX_BUSY_CONNECTIONS:
            recent = {one: end for one, end in self._busy_until_s.items() if end > now}
            self._busy_until_s = recent if len(recent) < _MAX_BUSY_CONNECTIONS else {}
        self._busy_until_s[key] = now + _BUSY_SECONDS

    def start_task(self, task: EngineTask) -> None:
        """Run the first few slices now (all of a small query), and the others in later rounds."""
        end = self.elapsed() + ROUND_SECONDS
        for _ in range(_SLICE_BATCH_SIZE):
            if not task.step():
                return
            if self.elapsed() >= end:
                break
        self.queue_task(task)

    def queue_task(self, task: EngineTask) -> None:
        """Add work to the queue for slices."""
        self._tasks.append(task)
        self._schedule_round()

    def defer_task(self, task: EngineTask, seconds: float) -> None:
        """Add work to the queue for slices once other work does not add to it any more.

        Args:
            task: the work; one that is deferred already has got more.
            seconds: for how long it waits at most.
        """
        if task not in self._deferred_tasks:
            self._deferred_tasks[task] = self.elapsed() + seconds
            self._schedule_round()
        self._is_deferral_extended = True

    def flush(self, skip_count: int = 0) -> None:
        """Flush outboxes, as far as there is time, and the rest in rounds.

        Args:
            skip_count: how many outboxes, those that have waited longest, are left to the rounds.
        """
        now = self.elapsed()
        self._flush_until(now, now + self._round_length(now), skip_count)

    def flush_while_busy(self) -> None:
        """Flush outboxes that are worth a write; there is more work, and rounds to come."""
        now = self.elapsed()
        outboxes = self._outboxes
        if outboxes.pending_outboxes and (
            now >= self._outboxes_empty_s + _HELD_SECONDS or outboxes.is_write_full
        ):
            self._flush_until(now, now + self._round_length(now) * _FLUSH_SHARE)
        else:
            self._schedule_round()

    @property
    def _must_queue_busy(self) -> bool:
        """True if other work or a full outbox goes before input of a busy connection."""
        return bool(self._tasks) or self._outboxes.is_write_full

    def _round_length(self, now: float) -> float:
        """Return the length of a round: short if a client is expected to wait for its end."""
        has_recent_short_read = now < self._last_short_read_s + _SHORT_READ_SECONDS
        return SHORT_ROUND_SECONDS if has_recent_short_read else ROUND_SECONDS

    def _start_round_clock(self, now: float) -> float:
        """Begin to count the next round's time, if that has not begun; return when it ends."""
        if not self._is_round_clock_running:
            self._is_round_clock_running = True
            self._round_end_s = now + self._round_length(now)
            self._schedule_round()
        return self._round_end_s

    def _schedule_round(self) -> None:
        if not self._is_round_scheduled:
            self._is_round_scheduled = True
            self._clock.call_later(0, self._run_round)

    def _run_round(self) -> None:
        """Give each item of the queue a slice, as long as there is time, and flush outboxes."""
        self._is_round_scheduled = False
        try:
            self._do_round()
        finally:
            if self._tasks or self._deferred_tasks:  # even if this round has raised an exception
                self._schedule_round()

    def _do_round(self) -> None:
        now = self.elapsed()
        was_clock_running, self._is_round_clock_running = self._is_round_clock_running, False
        if not was_clock_running:
            self._round_end_s = now + self._round_length(now)
        if self._deferred_tasks:  # also if no time is left: long reads then wait behind it
            self._queue_deferred_tasks(now)
        if now < self._round_end_s and not self._outboxes.is_write_full:
            self._run_queued_tasks(now)
        if was_clock_running or self._tasks or self._deferred_tasks:
            self.flush_while_busy()
        else:
            self.flush()

    def _queue_deferred_tasks(self, now: float) -> None:
        """Queue deferred work in front, unless it is to wait for more."""
        must_wait = bool(self._tasks) and self._is_deferral_extended
        self._is_deferral_extended = False
        for task, until in tuple(self._deferred_tasks.items()):
            if not must_wait or now >= until:
                del self._deferred_tasks[task]
                self._tasks.appendleft(task)

    def _run_queued_tasks(self, now: float) -> None:
        """Share the rest of a round among the items of the queue."""
        for _ in range(len(self._tasks)):
            task = self._tasks.popleft()
            waiting = len(self._tasks)
            share = (self._round_end_s - now) / (1 if waiting < _FEW_TASKS else waiting + 1)
            self._slice_end_s = now + max(share, _MIN_SLICE_SECONDS)
            if self._run_slice(task, now):
                self._tasks.append(task)
            now = self.elapsed()
            if now >= self._round_end_s:
                break

    def _flush_until(self, now: float, end: float, skip_count: int = 0) -> None:
        outboxes = self._outboxes
        outboxes.flush(end, skip_count)
        if not outboxes.pending_outboxes:
            self._outboxes_empty_s = now
        if self._tasks or outboxes.pending_outboxes:
            self._schedule_round()

    def record_duration(self, seconds: float, task_label: tuple[str, str]) -> None:
        """Record how long a piece of work has blocked the engine's thread; log it if that is long.

        Args:
            seconds: its duration.
            task_label: its client and its name; see `EngineTask.task_label`.
        """
        if self._on_work is not None:
            self._on_work(seconds, task_label)
        longest_task = self.longest_task
        if seconds > longest_task.seconds:
            longest_task.seconds = seconds
            longest_task.client_name, longest_task.task_name = task_label
        if seconds > LONG_TASK_SECONDS:
            longest_task.long_task_count += 1
            client, task_name = task_label
            milliseconds = round(seconds * 1000)
            self._log.emit(
                "01-0010", milliseconds=milliseconds, work=task_name, client=client or None
            )

    def observe_work(self, on_work: Callable[[float, tuple[str, str]], None] | None) -> None:
        """Call a function at the end of each piece of work, as `record_duration`; None for none."""
        self._on_work = on_work
        self._reported_seconds = LONG_TASK_SECONDS if on_work is None else 0.0

    def _run_slice(self, task: EngineTask, started_s: float) -> bool:
        has_more = task.step()
        seconds = self.elapsed() - started_s
        microseconds = int(seconds * MICROSECONDS_PER_SECOND)
        task_durations = self.task_durations  # as `add`, whose call costs too much here
        task_durations.counts[microseconds.bit_length()] += 1
        task_durations.total += microseconds
        if seconds > self._reported_seconds or seconds > self.longest_task.seconds:
            self.record_duration(seconds, task.task_label)
        return has_more


class BatchSizeEstimator:
    """Limits how many messages of one connection are executed between two checks of the clock.

    The cost of a message is estimated from the messages before it. The estimate rises at once and
    falls gradually, so that cheap messages do not hide expensive ones among them. It is processor
    time: waits for other threads or programs would make batches small, and small batches cost more.
    Batches do not shrink towards the end of a slice: it may be overrun by a fraction.
    """

    _INITIAL_SECONDS: Final = 0.000_1
    _MAX_BATCH_SIZE: Final = 1024
    _DECAY: Final = 0.5
    _MIN_SECONDS: Final = 0.000_2

    def __init__(self) -> None:
        self._seconds_per_message = self._INITIAL_SECONDS

    def estimate_batch_size(self, seconds: float) -> int:
        """Return how many messages fit, or fill the least time worth a check of the clock."""
        seconds = max(seconds, self._MIN_SECONDS)
        if seconds >= self._seconds_per_message * self._MAX_BATCH_SIZE:
            return self._MAX_BATCH_SIZE
        return max(int(seconds / self._seconds_per_message), 1)

    def record_batch(self, messages: int, seconds: float) -> None:
        """Record the cost of some messages."""
        cost = seconds / messages
        # Of a short batch, most may be the fixed cost of a batch.
        if seconds >= self._MIN_SECONDS or cost < self._seconds_per_message:
            self._seconds_per_message = max(cost, self._seconds_per_message * self._DECAY)
