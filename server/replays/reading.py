"""A reading of the log for one bookmark subscription, or several of a connection together.

    READING --all read--> WAITING --more may be read--> READING        any state --all left--> over
    READING --client is behind, or the rate is used up--> PACED --timer--> READING
    READING --the log cannot be read--> PACED, or over when that lasts too long

It goes at the client's pace. While the client has unread data nothing is read, so that replays fill
nobody's memory; of the log, a slice is read at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from server.journal import JournalUnreadable
from server.replays.logged_topics import LoggedTopics
from server.replays.patience import RETRY_SECONDS, Patience
from server.replays.rate import Rate

if TYPE_CHECKING:
    from server.core.session import Session
    from server.journal import Entry, Span
    from server.replays.replay import Replay

_BEHIND_SECONDS: Final = 0.01
"""Until it is looked again whether a client has read what it was sent."""
_SLICE: Final = 256
_MICROSECONDS: Final = 1e6


class Reading:
    """Goes through the log for some replays that agree in everything but topics and filters.

    Args:
        session: whose they are.
        replays: the replays; they may leave one after the other.
        span: the part of the log.
    """

    def __init__(self, session: Session, replays: Sequence[Replay], span: Span) -> None:
        first = replays[0]
        self._session = session
        self._engine = session.engine
        self._log = first.log
        self._replays = list(replays)
        self._span = span
        self._rate = None if first.rate is None else Rate(first.rate)
        topics = self._topics = first.recipients()
        # None if each message has to be looked at before it is sent.
        plain = topics if isinstance(topics, LoggedTopics) and not first.needs_care else None
        self._plain: LoggedTopics | None = plain
        for replay in replays:
            self._topics.attach(replay.subscription)
        self._horizon = first.tail.horizon
        self._cursor = self._log.journal.replay(
            span, self._topics.wants, self._topics.kinds, self._horizon
        )
        self._patience = Patience(self._engine, self._log)
        self._unsent: deque[Entry] = deque()
        self._is_running = False  # a step is due, or something will make it so
        self._cancel_timer: Callable[[], None] = _nothing

    @property
    def position(self) -> int:
        """The txid up to which everything has been sent."""
        return self._unsent[0].txid - 1 if self._unsent else self._cursor.position

    def leave(self, replay: Replay) -> None:
        """Read for a replay no more."""
        self._replays.remove(replay)
        self._topics.detach(replay.subscription)
        self._cursor.ask_again()
        if not self._replays:
            self._cancel_timer()
            self._unsent.clear()

    def run(self) -> None:
        """Read on, if nothing is going to make that happen already."""
        if not self._is_running:
            self._is_running = True
            self._engine.turns.start(self)

    @property
    def doing(self) -> tuple[str, str]:
        """See `Sliced.doing`."""
        return self._session.client_name, "replay"

    def step(self) -> bool:
        """See `Sliced.step`."""
        try:
            more = self._step()
        except JournalUnreadable as problem:
            more = False
            self._cannot_read(problem)
        if not more:
            self._is_running = False
        return more

    def _cannot_read(self, problem: JournalUnreadable) -> None:
        if not self._patience.is_lost(problem):
            for replay in list(self._replays):  # what it holds back meanwhile has a limit
                replay.reached(self._cursor.position)
            self._run_later(RETRY_SECONDS)
            return
        for replay in list(self._replays):
            replay.failed(problem)

    def _step(self) -> bool:
        if not self._replays:
            return False
        if self._session.is_behind():
            for replay in list(self._replays):
                replay.is_behind()
            self._run_later(_BEHIND_SECONDS)
            return False
        if not self._unsent and self._cursor.must_decompress:
            self._log.do_aside(self._cursor.decompress, self.run)
            return False
        if self._plain is not None:
            self._plain.deliver(self._cursor.read_on(_SLICE))
        elif not self._send():
            return False
        self._patience.regain()
        if self._cursor.is_finished or self._replays[0].has_had_enough:
            self._finish()
            return False
        for replay in list(self._replays):
            replay.reached(self._cursor.position)
        if not self._cursor.is_caught_up:
            return True
        return self._move_on()

    def _send(self) -> bool:
        """Send one message after the other; False if some of what has been read has to wait."""
        if not self._unsent:
            self._unsent.extend(self._cursor.read(_SLICE))
        unsent, rate, now = self._unsent, self._rate, self._engine.clock.now()
        counted = self._replays[0]
        timelines = [one.timeline for one in self._replays if one.timeline is not None]
        while unsent:
            entry = unsent[0]
            for timeline in timelines:
                timeline.advance(entry.timestamp / _MICROSECONDS)
            deliveries, envelope = self._topics.deliveries(entry)
            if deliveries:
                if rate is not None and (delay := rate.delay(entry, now)) > 0:
                    self._run_later(delay)
                    return False
                for delivery in deliveries:
                    delivery.deliver((entry.body,), envelope)
                if counted.left is not None:
                    counted.left -= 1
                    if counted.has_had_enough:
                        return True
            unsent.popleft()
        return True

    def _move_on(self) -> bool:
        """Everything has been read: let go of those who need no reading of their own, or wait."""
        for replay in list(self._replays):
            replay.caught_up(self._cursor.position)
        if not self._replays:
            return False
        if not self._cursor.is_caught_up:
            return True
        for replay in self._replays:
            if replay.timeline is not None:
                replay.timeline.run()
        before = self._span.before
        if before is not None:
            rest = before / _MICROSECONDS - self._engine.clock.now()
            if rest <= 0 and self._horizon() >= self._log.last_txid:
                self._finish()
                return False
            self._run_later(max(rest, _BEHIND_SECONDS))
        self._log.when_longer(self.run)
        return False

    def _finish(self) -> None:
        for replay in list(self._replays):
            replay.finished(self._cursor.position)

    def _run_later(self, delay: float) -> None:
        self._cancel_timer()
        self._cancel_timer = self._engine.clock.call_later(delay, self._run_from_timer)

    def _run_from_timer(self) -> None:
        self.run()
        self._engine.flush()


def read_for(replays: Sequence[Replay], span: Span) -> None:
    """Begin to read a part of the log for some replays of a connection."""
    reading = Reading(replays[0].subscription.session, replays, span)
    for replay in replays:
        replay.reading = reading
    reading.run()


def _nothing() -> None:
    """Cancel no timer."""
