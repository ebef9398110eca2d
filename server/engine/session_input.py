"""The input of one peer: read in time slices, executed in its order.

    the transport  --feed-->  SessionInput  --a few frames at a time-->  Session: executes
                              InputBuffer: the input that is not executed yet

The socket of a peer is read only while none of its input waits; see server/engine/scheduler.py. A
peer that waits for the decision on its logon is read until it sends something, because a disconnect
is not noticed otherwise. Execution also pauses while too much of the peer's earlier work is in
progress (it is *held*). When the peer has disconnected, the input received by then is executed all
the same, and the session ends after that.

A command that may take long is executed in steps, in the slices of its connection: later input of
the peer waits until it is done, the input of others does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from amperage.wire.compression import CompressedReader, Compression
from amperage.wire.framing import FrameSource
from server.engine.input_buffer import InputBuffer
from server.engine.scheduler import BatchSizeEstimator
from server.security.deferred import AnswerFuture
from server.util.limits import MAX_QUERIES

if TYPE_CHECKING:
    from server.engine.commands.continuation import CommandSteps
    from server.engine.session import Session

_HELD_SECONDS: Final = 0.005
"""How long a held peer waits until the engine checks again whether it may go on."""


class SessionInput:
    """Buffers the input of one peer, and executes it in the slices of its connection.

    Args:
        session: executes the commands.
        reader: splits the peer's bytes into frames.
        pause: stops reading from the peer, until `resume`.
        resume: reads from the peer again.

    Attributes:
        is_waiting: whether input of the peer waits for a turn.
        is_lost: whether the peer has disconnected while there was more of its input to execute.
        bytes_in: bytes received from the peer.
        messages_in: messages and commands that have been executed.
    """

    def __init__(
        self,
        session: Session,
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
        self._inbox = InputBuffer(reader)
        self._pace = BatchSizeEstimator()
        self._pause = pause
        self._resume = resume
        self._is_held = False  # waits, but not for a turn: `_go_on` queues it
        self._unfinished: CommandSteps | None = None  # the rest of the last command
        self._awaits_decision = False  # that command waits for an `AnswerFuture`, as a logon does
        self._closes_for = ""  # why the session closes when no input waits any more

    @property
    def doing(self) -> tuple[str, str]:
        """The client, and the command executed last. See `EngineTask.doing`."""
        return self._session.client_name, self._session.command

    @property
    def is_held(self) -> bool:
        """True while input waits until less of the client's earlier work is in progress."""
        return self._is_held

    @property
    def has_partial_frame(self) -> bool:
        """True if the input received so far ends inside a frame."""
        return self._inbox.reader.has_partial_frame

    def read_compressed(self, compression: Compression) -> None:
        """Read the input as a compressed stream from now on."""
        self._inbox.reader = CompressedReader(compression, self._inbox.reader)

    def feed(self, chunk: bytes) -> None:
        """Take bytes from the peer and execute their commands, as far as there is time.

        The rest is executed in turns, and the peer's socket is not read meanwhile.
        """
        if not self._session.is_open:
            return
        self.bytes_in += len(chunk)
        self._inbox.put(chunk)
        if self.is_waiting:
            self._pause()
            return
        if self._turns.serve(self, len(chunk)) or self._is_held:
            self.is_waiting = True
            if not self._awaits_decision or self._inbox.has_something:
                self._pause()

    def step(self) -> bool:
        """Execute the peer's commands until the slice is over. See `EngineTask.step`."""
        session = self._session
        session.last_heard = session.engine.clock.now()
        session.heard_at = session.engine.clock.attentive()
        try:
            has_more = session.is_open and self._obey_slice()
        except Exception:  # a defect: it must not leave a peer whose socket is never read again
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
        """Note that the peer has closed the connection.

        The session ends when all commands received by then have been executed, except for work
        whose result only the peer would see: its queries, and a logon with no input behind it.
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
        """Disconnect the peer when all its input read so far has been executed.

        Args:
            reason: why; see `Session.close`.
        """
        if self.is_waiting:
            self._closes_for = reason
        else:
            self._session.close(reason)

    def finish(self, steps: CommandSteps) -> None:
        """Execute no other command before the current one is done.

        Args:
            steps: the rest of it; they must not raise. If the session is closed meanwhile, they
                are not executed.
        """
        self._unfinished = steps

    def drop(self) -> None:
        """Release the input that waits: the session has ended."""
        self._inbox.drop()
        self._unfinished = None

    def _obey_slice(self) -> bool:
        """Execute the buffered input until the slice is over; return whether there is more."""
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
                session.closed_totals.messages_in += done
                return False
            begun, now = now, elapsed()
            pace.took(done, now - begun)
            if turns.left(now) <= 0:
                return self._has_something

    def _cut(self) -> bool:
        """Split the next bytes into frames; return whether there were any bytes."""
        error = self._inbox.reader.error
        if error is None:
            return self._inbox.cut()
        if not self._has_to_hold():
            self._session.give_up(error)
        return False

    @property
    def _has_something(self) -> bool:
        return self._unfinished is not None or self._inbox.has_something

    def _do_step(self, steps: CommandSteps) -> bool:
        """Do a step of the unfinished command; return whether more may be done now."""
        may_go_on = next(steps, None)
        if not self._session.is_open:
            return False
        if may_go_on is None:
            self._unfinished = None
        elif isinstance(may_go_on, AnswerFuture):
            self._is_held = self._awaits_decision = True
            if self.is_waiting and not self._inbox.has_something:
                self._resume()
            may_go_on.when_there(lambda _: self._go_on())
            return False
        elif not may_go_on:
            self._hold()
            return False
        return True

    def _obey(self, header: bytes, body: bytes) -> bool:
        """Execute a command; return whether another may follow in this slice."""
        session, turns = self._session, self._turns
        session.obey(header, body)
        session.runs.begin()
        return (
            session.is_open
            and self._unfinished is None
            and turns.left(turns.elapsed()) > 0
            and len(session.queries) < MAX_QUERIES
        )

    def _has_to_hold(self) -> bool:
        """Hold the peer if too much of its earlier work is in progress; return whether it is held.

        The work is the connection's queries or, if the connection adds to them, the writes that
        wait for the transaction log.
        """
        session = self._session
        has_to = len(session.queries) >= MAX_QUERIES
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
        """End the hold: queue the input that waits for the next turn, which may hold it again."""
        self._is_held = self._awaits_decision = False
        if self.is_waiting:
            self._turns.queue(self)
