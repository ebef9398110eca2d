"""What one peer sends: read in turns, obeyed in its order.

    the transport  --feed-->  Intake  --a few frames at a time-->  Session: obeys
                              Inbox: what has not been obeyed yet

A peer is read only while nothing that it has sent waits; see server/core/turns.py. It has to wait,
too, while too much of what it has asked for is under way (it is *held*). When it has gone, what it
had sent by then is obeyed all the same, and the session ends after that.

A command that may take long is done in steps, in the slices of its connection: what the peer has
sent after it waits until it is done, what others send does not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, Protocol

from amperage.wire.compression import CompressedReader, Compression
from amperage.wire.framing import FrameSource
from server.base.limits import MOST_QUERIES
from server.commands import sender
from server.core.inbox import Inbox
from server.core.turns import Pace
from server.security.later import Pending

if TYPE_CHECKING:
    from amperage.wire.framing import FrameError
    from server.base.clock import SteadySeconds, WallSeconds
    from server.commands.publish_runs import PublishRuns
    from server.commands.steps import Steps
    from server.core.departed import Departed
    from server.core.lobby import Visit
    from server.core.turns import Turns
    from server.queries.run import QueryRun

_HELD_SECONDS: Final = 0.005
"""After how long it is looked again whether a peer that is held may go on."""


class Surroundings(sender.Surroundings, Protocol):
    """What an intake needs of the engine."""

    @property
    def turns(self) -> Turns:
        """Shares the time among connections, queries and replays."""


class Obeying(Protocol):
    """A session, which obeys what its peer sends.

    Attributes:
        last_heard: when what is being obeyed was read, in seconds since 1970.
        heard_at: the same by the clock that measures silence; see `Clock.attentive`.
    """

    last_heard: WallSeconds
    heard_at: SteadySeconds

    @property
    def engine(self) -> Surroundings:
        """What stands around it."""

    @property
    def departed(self) -> Departed:
        """What those have counted that came through the same transport, and are over."""

    @property
    def client_name(self) -> str:
        """The name of its client."""

    @property
    def command(self) -> str:
        """The name of the command obeyed last."""

    @property
    def is_open(self) -> bool:
        """Whether the connection is still served."""

    @property
    def queries(self) -> Collection[QueryRun]:
        """Its queries that have not sent all their results yet."""

    @property
    def runs(self) -> PublishRuns:
        """The publishes that go by in runs."""

    @property
    def visit(self) -> Visit | None:
        """Counts it among those that have not logged on; None after the logon."""

    def obey(self, header_bytes: bytes, body_bytes: bytes) -> None:
        """Carry out one command, or refuse it."""

    def give_up(self, error: FrameError) -> None:
        """Disconnect a peer whose bytes cannot be trusted any more."""

    def close(self, reason: str) -> None:
        """Disconnect the peer."""

    def end_lost(self) -> None:
        """End: the peer has closed the connection, and what it had sent has been obeyed."""


class Intake:
    """What one peer sends, and its turns.

    Args:
        session: obeys it.
        reader: cuts the peer's bytes into frames.
        pause: has nothing more read from the peer, until `resume`.
        resume: has the peer read again.

    Attributes:
        is_waiting: whether something that the peer has sent waits for a turn.
        is_lost: whether the peer has gone, while there was more of what it sent to be obeyed.
        bytes_in: bytes that it has sent.
        messages_in: messages and commands of these that have been obeyed.
    """

    def __init__(
        self,
        session: Obeying,
        reader: FrameSource,
        pause: Callable[[], None],
        resume: Callable[[], None],
    ) -> None:
        self.is_waiting = False
        self.is_lost = False
        self.bytes_in = 0
        self.messages_in = 0
        self._session = session
        self._turns = session.engine.turns
        self._inbox = Inbox(reader)
        self._pace = Pace()
        self._pause = pause
        self._resume = resume
        self._is_held = False  # waits, but not for a turn: `_go_on` puts it into the queue
        self._unfinished: Steps | None = None  # what is left of the command obeyed last
        self._awaits_decision = False  # whether that waits for somebody who decides
        self._closes_for = ""  # why the session is closed when nothing waits any more

    @property
    def doing(self) -> tuple[str, str]:
        """See `Sliced.doing`: the command obeyed last."""
        return self._session.client_name, self._session.command

    @property
    def is_held(self) -> bool:
        """Whether what waits has to go on waiting until less of the client's is under way."""
        return self._is_held

    @property
    def has_partial_frame(self) -> bool:
        """Whether what has come stopped inside a frame."""
        return self._inbox.reader.has_partial_frame

    def read_compressed(self, compression: Compression) -> None:
        """Take what comes from now on for a compressed stream."""
        self._inbox.reader = CompressedReader(compression, self._inbox.reader)

    def feed(self, chunk: bytes) -> None:
        """Take bytes from the peer and do what they ask for, as far as there is time.

        What is left is done in turns, and nothing is read from the peer meanwhile.
        """
        if not self._session.is_open:
            return
        self.bytes_in += len(chunk)
        self._inbox.put(chunk)
        if self.is_waiting:
            return
        if self._turns.serve(self, len(chunk)) or self._is_held:
            self.is_waiting = True
            self._pause()

    def step(self) -> bool:
        """Do what the peer has asked for until the slice is over. See `Sliced.step`."""
        session = self._session
        session.last_heard = session.engine.clock.now()
        session.heard_at = session.engine.clock.attentive()
        try:
            has_more = session.is_open and self._obey_slice()
        except Exception:  # a defect: it must not leave a peer that nobody reads from any more
            session.close("connection closed")
            raise
        if session.visit is not None:
            session.visit.keep(self._inbox.reader.partial_size)
        if self.is_waiting and not has_more and not self._is_held:
            self.is_waiting = False
            if self.is_lost:
                session.end_lost()
            elif self._closes_for:
                session.close(self._closes_for)
            else:
                self._resume()
        return has_more

    def lost(self) -> None:
        """Take note that the peer has closed the connection.

        The session ends when everything has been done that the peer had asked for by then, except
        for what only the peer would have seen. A logon is that, if nothing came after it.
        """
        if self._awaits_decision and not self._inbox.has_something:
            self._session.end_lost()
        elif self.is_waiting:
            self.is_lost = True
            for query in list(self._session.queries):
                query.cancel()
        else:
            self._session.end_lost()

    def close_when_done(self, reason: str) -> None:
        """Disconnect the peer when everything is obeyed that has been read of it.

        Args:
            reason: why; see `Session.close`.
        """
        if self.is_waiting:
            self._closes_for = reason
        else:
            self._session.close(reason)

    def finish(self, steps: Steps) -> None:
        """Obey nothing else before the command at hand is done.

        Args:
            steps: what is left of it; they must not raise. Should the session be closed meanwhile,
                they are not done.
        """
        self._unfinished = steps

    def drop(self) -> None:
        """Let go of what waits: the session has ended."""
        self._inbox.drop()
        self._unfinished = None

    def _obey_slice(self) -> bool:
        """Obey what is in the inbox until the slice is over; whether there is more."""
        session, inbox, turns, pace = self._session, self._inbox, self._turns, self._pace
        runs, elapsed = session.runs, turns.elapsed
        now = elapsed()
        while True:
            if self._unfinished is not None:
                if not self._do_step(self._unfinished):
                    return False
                now = elapsed()
                if turns.left(now) <= 0:
                    return self._has_something
                continue
            if not inbox.has_frames:
                if not self._cut():
                    return False
                if not inbox.has_frames:
                    if turns.left(elapsed()) <= 0:
                        return self._has_something
                    continue
            if self._has_to_hold():
                return False
            runs.begin()
            done = inbox.obey(pace.messages_in(turns.left(now)), runs, self._obey)
            self.messages_in += done
            if not session.is_open:
                session.departed.messages_in += done
                return False
            begun, now = now, elapsed()
            pace.took(done, now - begun)
            if turns.left(now) <= 0:
                return self._has_something

    def _cut(self) -> bool:
        """Cut the next bytes into frames; whether there was anything to be cut."""
        error = self._inbox.reader.error
        if error is None:
            return self._inbox.cut()
        if not self._has_to_hold():
            self._session.give_up(error)
        return False

    @property
    def _has_something(self) -> bool:
        return self._unfinished is not None or self._inbox.has_something

    def _do_step(self, steps: Steps) -> bool:
        """Go on with the command that is not done; whether more may be done now."""
        may_go_on = next(steps, None)
        if not self._session.is_open:
            return False
        if may_go_on is None:
            self._unfinished = None
        elif isinstance(may_go_on, Pending):
            self._is_held = self._awaits_decision = True
            may_go_on.when_there(lambda _: self._go_on())
            return False
        elif not may_go_on:
            self._hold()
            return False
        return True

    def _obey(self, header: bytes, body: bytes) -> bool:
        """Obey a command; whether there is time for more."""
        session, turns = self._session, self._turns
        session.obey(header, body)
        session.runs.begin()
        return (
            session.is_open
            and self._unfinished is None
            and turns.left(turns.elapsed()) > 0
            and len(session.queries) < MOST_QUERIES
        )

    def _has_to_hold(self) -> bool:
        """Whether nothing may be obeyed for now, because too much of what was is not done yet.

        What has to become less is this connection's queries, or what waits to be written to the
        transaction log, if the connection adds to that.
        """
        session = self._session
        has_to = len(session.queries) >= MOST_QUERIES
        if session.runs.are_recorded:
            log = session.engine.transaction_log
            has_to |= log is not None and log.journal.is_crowded and log.journal.refusal is None
        if has_to:
            self._hold()
        return has_to

    def _hold(self) -> None:
        self._is_held = True
        self._session.engine.clock.call_later(_HELD_SECONDS, self._go_on)

    def _go_on(self) -> None:
        """Obey further what waits, in the next turn, if it may be obeyed again."""
        self._is_held = self._awaits_decision = False
        if self.is_waiting:
            self._turns.queue(self)
