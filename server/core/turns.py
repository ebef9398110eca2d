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

A client that sends little is not made to queue for that: a short read is obeyed as it comes, even
during turns, for a short slice. So a request beside a busy publisher waits for the end of one turn.

The event loop may hand out many long reads of one socket in a row before it looks at the others. As
soon as there is a long read, time counts as in a turn: what comes when it is used up has to wait.

A slice is over when the clock says so, and only those who work can look at it: after each command,
and with publishes, which go by in runs, as often as `Pace` says. It is a promise between them and
this module; one command is not cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.base.clock import Clock
    from server.base.log import Log
    from server.base.slices import Sliced

TURN_SECONDS: Final = 0.001
"""How long the engine works before it looks at all sockets again."""

_SHORT_SLICE_SECONDS: Final = 0.000_2
"""How long what a peer sends is obeyed at once while others wait."""

_LEAST_SLICE_SECONDS: Final = 0.000_2
"""How short slices become when many share a turn."""

LONG_READ: Final = 64 * 1024
"""Bytes that a read gives only if the peer is ahead of us, and has more waiting."""

_SLICES_AT_ONCE: Final = 4


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
        flush: called after a turn, before the next one.
        log: told what takes long.

    Attributes:
        elapsed: see above.
        longest: what has taken longest.
    """

    def __init__(
        self, clock: Clock, elapsed: Callable[[], float], flush: Callable[[], None], log: Log
    ) -> None:
        self.longest: Final = Longest()
        self._log = log
        self.elapsed: Final = elapsed
        self._clock = clock
        self._flush = flush
        self._waiting: deque[Sliced] = deque()
        self._slice_ends = 0.0
        self._turn_ends = 0.0
        self._is_turn = False  # whether time counts: from a long read, or a turn, to the next one

    @property
    def is_queue_empty(self) -> bool:
        """Whether nobody waits for a slice."""
        return not self._waiting

    def left(self, now: float) -> float:
        """Seconds that are left of the slice at hand.

        Args:
            now: what `elapsed` gives.
        """
        return self._slice_ends - now

    def serve(self, connection: Sliced, size: int) -> bool:
        """Give a connection a slice for what has just been read, or have it wait for a turn.

        Args:
            connection: one that does not wait already.
            size: bytes that have been read.

        Returns:
            Whether it has to wait; then it is in the queue.
        """
        now = self.elapsed()
        if size < LONG_READ:
            is_alone = not self._waiting
            self._slice_ends = now + (TURN_SECONDS if is_alone else _SHORT_SLICE_SECONDS)
        else:
            self._begin_turn(now)
            self._slice_ends = self._turn_ends
        has_more = self._slice_ends <= now or self._step(connection, now)
        if has_more:
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
        self._begin_turn(self.elapsed())

    def _begin_turn(self, now: float) -> None:
        """Count time from now on, if that has not begun."""
        if not self._is_turn:
            self._is_turn = True
            self._turn_ends = now + TURN_SECONDS
            self._clock.call_later(0, self._turn)

    def _turn(self) -> None:
        """Give everybody who waits a slice, as long as there is time."""
        self._is_turn = False
        if not self._waiting:
            self._flush()
            return
        now = self.elapsed()
        self._begin_turn(now)
        for _ in range(len(self._waiting)):
            work = self._waiting.popleft()
            share = (self._turn_ends - now) / (len(self._waiting) + 1)
            self._slice_ends = now + max(share, _LEAST_SLICE_SECONDS)
            if self._step(work, now):
                self._waiting.append(work)
            now = self.elapsed()
            if now >= self._turn_ends:
                break
        self._flush()

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
    _LEAST_SECONDS: Final = 0.000_3

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
