"""Turns: how connections, queries and replays share the engine's thread.

One thread serves everybody, so that whatever is done for one client is what all others wait for.
Time is therefore given out in slices, and none is longer than about a millisecond:

    a read of the socket                    turn                     turn
    | A's first slice | B's request |  ...  | A | query | C |  ...  | query | C | A |  ...
                                       ^ the event loop looks at all sockets

What a connection sends is obeyed as it is read, for the length of a slice. What is left then waits
in the session's inbox, and its socket is not read meanwhile, so that the peer's own system holds it
back. Whoever has something waiting, connections as well as queries and replays, stands in one
queue. Between two looks at the sockets there is a turn: each of the queue gets at most one slice,
those that have more stand at the end again, and the turn ends when its time is used up. One that
waits alone has the whole turn.

How long a turn is depends on who would have to wait for its end. While clients are heard that send
little, turns are short; a publisher that sends as much as it can, and is the only one who sends
anything, gets more done in long ones.

A client that sends little is not made to queue for that: a short read is obeyed as it comes, even
during turns, for a short slice. So a request beside a busy publisher waits for the end of one turn.

The event loop may hand out many long reads of one socket in a row before it looks at the others. As
soon as there is a long read, time counts as in a turn: what comes when it is used up has to wait,
and the turn that follows gives out no more than what the reads have left of it. Where there is a
queue, a long read goes to its end.

What has been made for clients leaves at the end of turns, in a slice of its own. A write costs more
than most messages, so that outboxes with little in them are held for a moment while there is more
to do; and when they fill faster than they leave, nobody gets a slice until they have left.

A slice is over when the clock says so, and only those who work can look at it: after each command,
and with publishes, which go by in runs, as often as `Pace` says. It is a promise between them and
this module; one command is not cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from server.base.histogram import Histogram

if TYPE_CHECKING:
    from server.base.clock import Clock
    from server.base.log import Log
    from server.base.slices import Sliced
    from server.subscriptions.outbox import Outboxes

TURN_SECONDS: Final = 0.001
"""How long the engine works before it looks at all sockets again."""

SHORT_TURN_SECONDS: Final = 0.000_25
"""The same, while others might have to wait for that."""

_HEARD_SECONDS: Final = 0.1
"""How long after a short read its sender is taken to be one who waits."""

_HELD_SECONDS: Final = 0.002
"""How long what has been made for clients may wait for more, while there is more to do."""

_LEAVING_SHARE: Final = 1 / 3
"""How long outboxes are flushed, as a part of a turn's length, while there is more to do. With very
many connections, the less it is, the more goes with a write, and the later."""

_TOO_SHORT_SECONDS: Final = 0.000_05
"""What is left of a slice when beginning something else is not worth it."""

_SHORT_SLICE_SECONDS: Final = 0.000_2
"""How long what a peer sends is obeyed at once while others wait."""

_LEAST_SLICE_SECONDS: Final = 0.000_2
"""How short slices become when many share a turn."""

LONG_READ: Final = 64 * 1024
"""Bytes that a read gives only if the peer is ahead of us, and has more waiting."""

_SLICES_AT_ONCE: Final = 4

_MICROSECONDS: Final = 1e6


LONG_SECONDS: Final = 0.1
"""From which length on it is logged that a piece of work has held everybody up."""


@dataclass(slots=True)
class Longest:
    """The piece of work that has held up everybody for longest, and how often that happened.

    Attributes:
        seconds: how long it took.
        client: for whom it was, nothing if it was for no client in particular.
        work: the command, or another word for what it was; never more of it.
        count: how many pieces of work have taken longer than LONG_SECONDS.
    """

    seconds: float = 0.0
    client: str = ""
    work: str = ""
    count: int = 0


class Turns:
    """Shares the engine's time among those who have something to do.

    Args:
        clock: has the next turn made.
        elapsed: seconds since some moment, never going back: tells how long work has taken.
        outboxes: what has been made for clients, which leaves between slices.
        log: told what takes long.

    Attributes:
        elapsed: see above.
        longest: what has taken longest.
        lengths: how long pieces of work have taken, in microseconds.
        postponed: reads of connections that had to wait for a turn.
    """

    def __init__(
        self, clock: Clock, elapsed: Callable[[], float], outboxes: Outboxes, log: Log
    ) -> None:
        self.longest: Final = Longest()
        self.lengths: Final = Histogram()
        self.postponed = 0
        self._log = log
        self.elapsed: Final = elapsed
        self._clock = clock
        self._outboxes = outboxes
        self._waiting: deque[Sliced] = deque()
        self._slice_ends = 0.0
        self._turn_ends = 0.0
        self._is_counting = False  # whether a long read has begun to use up the next turn
        self._is_scheduled = False  # whether there is a next turn
        self._ahead = 0  # who has sent the last long read: the id of a connection
        self._heard_at = -_HEARD_SECONDS  # when somebody else has last sent anything
        self._emptied_at = 0.0  # when no outbox was waiting any more

    @property
    def waiting(self) -> int:
        """How many wait for a slice."""
        return len(self._waiting)

    def left(self, now: float) -> float:
        """Seconds that are left of the slice at hand; none if it is not worth beginning anything.

        Args:
            now: what `elapsed` gives.
        """
        left = self._slice_ends - now
        return left if left > _TOO_SHORT_SECONDS else 0.0

    def serve(self, connection: Sliced, size: int, *, is_patient: bool = False) -> bool:
        """Give a connection a slice for what has just been read, or have it wait for a turn.

        Args:
            connection: one that does not wait already.
            size: bytes that have been read.
            is_patient: turns need not be short for it, though it sends little.

        Returns:
            Whether it has to wait; then it is in the queue.
        """
        now = self.elapsed()
        if size < LONG_READ:
            if id(connection) != self._ahead and not is_patient:
                self._heard_at = now
            is_alone = not self._waiting
            self._slice_ends = now + (TURN_SECONDS if is_alone else _SHORT_SLICE_SECONDS)
        else:
            self._ahead = id(connection)
            self._slice_ends = now if self._is_taken else self._count(now)
        has_more = self._slice_ends <= now or self._step(connection, now)
        if has_more:
            self.postponed += 1
            self.queue(connection)
        return has_more

    def start(self, work: Sliced) -> None:
        """Do the first few slices now, which is all of a small query, the others in later turns."""
        end = self.elapsed() + TURN_SECONDS
        for _ in range(_SLICES_AT_ONCE):
            if not work.step():
                return
            if self.elapsed() >= end:
                break
        self.queue(work)

    def queue(self, work: Sliced) -> None:
        """Have something wait for its slices."""
        self._waiting.append(work)
        self._schedule()

    def flush(self, first: int = 0) -> None:
        """Let leave what waits in outboxes, as far as there is time, and the rest in turns.

        Args:
            first: how many outboxes that have waited before others are left to the turns.
        """
        now = self.elapsed()
        self._leave(now, now + self._length(now), first)

    def flush_while_busy(self) -> None:
        """Let leave what is worth a write; there is more to do, and turns to come."""
        now = self.elapsed()
        outboxes = self._outboxes
        if outboxes.waiting and (now >= self._emptied_at + _HELD_SECONDS or outboxes.is_write_full):
            self._leave(now, now + self._length(now) * _LEAVING_SHARE)
        else:
            self._schedule()

    @property
    def _is_taken(self) -> bool:
        """Whether somebody has to be served before whoever comes now with much."""
        return bool(self._waiting) or self._outboxes.is_write_full

    def _length(self, now: float) -> float:
        """How long a turn may be: short if it is expected that somebody waits for its end."""
        is_anybody_heard = now < self._heard_at + _HEARD_SECONDS
        return SHORT_TURN_SECONDS if is_anybody_heard else TURN_SECONDS

    def _count(self, now: float) -> float:
        """Count time from now on, if that has not begun; when it will be used up."""
        if not self._is_counting:
            self._is_counting = True
            self._turn_ends = now + self._length(now)
            self._schedule()
        return self._turn_ends

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._clock.call_later(0, self._turn)

    def _turn(self) -> None:
        """Give everybody who waits a slice, as long as there is time, and let outboxes leave."""
        self._is_scheduled = False
        try:
            self._do_turn()
        finally:
            if self._waiting:  # whatever has happened in this turn
                self._schedule()

    def _do_turn(self) -> None:
        now = self.elapsed()
        is_somebody_ahead, self._is_counting = self._is_counting, False
        if not is_somebody_ahead:
            self._turn_ends = now + self._length(now)
        if now < self._turn_ends and not self._outboxes.is_write_full:
            self._share(now)
        if is_somebody_ahead or self._waiting:
            self.flush_while_busy()
        else:
            self.flush()

    def _share(self, now: float) -> None:
        """Share what is left of a turn among those who wait."""
        for _ in range(len(self._waiting)):
            work = self._waiting.popleft()
            share = (self._turn_ends - now) / (len(self._waiting) + 1)
            self._slice_ends = now + max(share, _LEAST_SLICE_SECONDS)
            if self._step(work, now):
                self._waiting.append(work)
            now = self.elapsed()
            if now >= self._turn_ends:
                break

    def _leave(self, now: float, end: float, first: int = 0) -> None:
        outboxes = self._outboxes
        outboxes.flush(end, first)
        if not outboxes.waiting:
            self._emptied_at = now
        if self._waiting or outboxes.waiting:
            self._schedule()

    def took(self, seconds: float, doing: tuple[str, str]) -> None:
        """Take note of how long a piece of work has held everybody up.

        Args:
            seconds: how long.
            doing: whose it was, and what; see `Sliced.doing`.
        """
        longest = self.longest
        if seconds > longest.seconds:
            longest.seconds = seconds
            longest.client, longest.work = doing
        if seconds > LONG_SECONDS:
            longest.count += 1
            client, work = doing
            milliseconds = round(seconds * 1000)
            self._log.emit("01-0010", milliseconds=milliseconds, work=work, client=client or None)

    def _step(self, work: Sliced, begun: float) -> bool:
        has_more = work.step()
        seconds = self.elapsed() - begun
        microseconds = int(seconds * _MICROSECONDS)
        lengths = self.lengths  # as `add`, whose call would be dear
        lengths.counts[microseconds.bit_length()] += 1
        lengths.total += microseconds
        if seconds > self.longest.seconds or seconds > LONG_SECONDS:
            self.took(seconds, work.doing)
        return has_more


class Pace:
    """How many messages of one connection may go by before the clock is looked at again.

    What a message costs is known from those before it. A cost that has grown is believed at once,
    one that has shrunk by and by, so that cheap messages do not hide expensive ones among them.
    The end of a slice is not met with ever smaller runs: it may be passed by a fraction.
    """

    __slots__ = ("_seconds_each",)

    _FIRST_GUESS: Final = 0.000_1
    _MOST: Final = 1024
    _FORGET: Final = 0.5
    _LEAST_SECONDS: Final = 0.000_2

    def __init__(self) -> None:
        self._seconds_each = self._FIRST_GUESS

    def messages_in(self, seconds: float) -> int:
        """How many messages are expected to fit, or to fill the least that is worth a look."""
        seconds = max(seconds, self._LEAST_SECONDS)
        if seconds >= self._seconds_each * self._MOST:
            return self._MOST
        return max(int(seconds / self._seconds_each), 1)

    def took(self, messages: int, seconds: float) -> None:
        """Take note of what some messages have cost."""
        self._seconds_each = max(seconds / messages, self._seconds_each * self._FORGET)
