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

_MIN_BATCH_SHARE: Final = 0.5
"""The share of the last batch's time that has to be left of a slice for another batch."""


class SessionInput:
    """Buffers the input of one peer, and executes it in the slices of its connection.

    Args:
        session: executes the commands.
        reader: splits the peer's bytes into frames.
        pause_reading: stops reading from the peer, until `resume_reading`.
        resume_reading: reads from the peer again.

    Attributes:
        is_waiting: whether input of the peer waits for a slice.
        is_connection_lost: whether the peer has disconnected while there was more of its input to
            execute.
        bytes_in: bytes received from the peer.
        messages_in: messages and commands that have been executed.
    """

    def __init__(
        self,
        session: Session,
        reader: FrameSource,
        pause_reading: Callable[[], None],
        resume_reading: Callable[[], None],
    ) -> None:
        self.is_waiting = False
        self.is_connection_lost = False
        self.bytes_in = 0
        self.messages_in = 0
        self._session = session
        self._scheduler = session.engine.scheduler
        self._buffer = InputBuffer(reader)
        self._batch_size_estimator = BatchSizeEstimator()
        self._pause_reading = pause_reading
        self._resume_reading = resume_reading
        self._is_suspended = False  # waits, but not for a slice: `_end_suspension` queues it
        self._remaining_steps: CommandSteps | None = None  # the rest of the last command
        self._awaits_decision = False  # that command waits for an `AnswerFuture`, as a logon does
        self._pending_close_reason = ""  # why the session closes when no input waits any more

    @property
    def task_label(self) -> tuple[str, str]:
        """The client, and the command executed last. See `EngineTask.task_label`."""
        return self._session.client_name, self._session.command

    @property
    def is_suspended(self) -> bool:
        """True while input waits until less of the client's earlier work is in progress."""
        return self._is_suspended

    @property
    def has_partial_frame(self) -> bool:
        """True if the input received so far ends inside a frame."""
        return self._buffer.reader.has_partial_frame

    def wrap_reader(self, wrap: Callable[[FrameSource], FrameSource]) -> None:
        """Read the input through a wrapper of its reader from now on."""
        self._buffer.reader = wrap(self._buffer.reader)

    def feed(self, chunk: bytes) -> None:
        """Take bytes from the peer and execute their commands, as far as there is time.

        The rest is executed in scheduling rounds, and the peer's socket is not read meanwhile.
        """
        if not self._session.is_open:
            return
        self.bytes_in += len(chunk)
        self._buffer.append_chunk(chunk)
        if self.is_waiting:
            self._pause_reading()
            return
        # A consumer does not wait for its acknowledgements: with short rounds for them, publishers
        # would get less done.
        is_acknowledging = self._session.ack_header_cache.was_last
        must_wait = self._scheduler.run_or_queue(self, len(chunk), tolerates_delay=is_acknowledging)
        if must_wait or self._is_suspended:
            self.is_waiting = True
            if not self._awaits_decision or self._buffer.has_input:
                self._pause_reading()

    def step(self) -> bool:
        """Execute the peer's commands until the slice is over. See `EngineTask.step`."""
        session = self._session
        session.last_input_s = session.engine.clock.now()
        session.last_input_steady_s = session.engine.clock.steady_unpaused()
        try:
            has_more = session.is_open and self._execute_slice()
        except Exception:  # a defect: it must not leave a peer whose socket is never read again
            session.close("connection closed")
            raise
        if session.pre_logon_connection is not None:
            session.pre_logon_connection.update_unfinished_bytes(self._buffer.reader.partial_size)
        if self.is_waiting and not has_more and not self._is_suspended:
            self.is_waiting = False
            if self.is_connection_lost:
                session.end_after_disconnect()
            elif self._pending_close_reason:
                session.close(self._pending_close_reason)
            else:
                self._resume_reading()
        return has_more

    def on_connection_lost(self) -> None:
        """Note that the peer has closed the connection.

        The session ends when all commands received by then have been executed, except for work
        whose result only the peer would see: its queries, and a logon with no input behind it.
        """
        if self._awaits_decision and not self._buffer.has_input:
            self._session.end_after_disconnect()
        elif self.is_waiting:
            self.is_connection_lost = True
            for query in list(self._session.queries):
                query.cancel()
        else:
            self._session.end_after_disconnect()

    def close_when_done(self, reason: str) -> None:
        """Disconnect the peer when all its input read so far has been executed.

        Args:
            reason: the reason; see `Session.close`.
        """
        if self.is_waiting:
            self._pending_close_reason = reason
        else:
            self._session.close(reason)

    def continue_in_steps(self, steps: CommandSteps) -> None:
        """Execute no other command before the current one is done.

        Args:
            steps: the rest of the command; they must not raise. If the session is closed meanwhile,
                they are not executed.
        """
        self._remaining_steps = steps

    def drop_input(self) -> None:
        """Release the input that waits: the session has ended."""
        self._buffer.clear()
        self._remaining_steps = None

    def _execute_slice(self) -> bool:
        """Execute the buffered input until the slice is over; return whether there is more."""
        session, buffer, scheduler, batch_size_estimator = (
            self._session,
            self._buffer,
            self._scheduler,
            self._batch_size_estimator,
        )
        publish_batcher, elapsed = session.publish_batcher, scheduler.elapsed
        processor_time = scheduler.processor_time
        now = elapsed()
        while True:
            if self._remaining_steps is not None:
                if not self._run_step(self._remaining_steps):
                    return False
                now = elapsed()
                if scheduler.time_left(now) <= 0:
                    return self._has_input
                continue
            if not buffer.has_frames:
                if not self._split_frames():
                    return False
                if not buffer.has_frames:
                    if scheduler.time_left(elapsed()) <= 0:
                        return self._has_input
                    continue
            if self._suspend_if_overloaded():
                return False
            publish_batcher.refresh()
            started_s = processor_time()
            batch_size = batch_size_estimator.estimate_batch_size(scheduler.time_left(now))
            executed = buffer.execute_frames(batch_size, publish_batcher, self._execute)
            self.messages_in += executed
            if not session.is_open:
                session.closed_totals.messages_in += executed
                return False
            batch_size_estimator.record_batch(executed, processor_time() - started_s)
            began, now = now, elapsed()
            time_left = scheduler.time_left(now)
            # A batch that fills the rest of a slice may be so small that most of its cost is that
            # of having a batch at all.
            is_rest = executed >= batch_size and time_left < _MIN_BATCH_SHARE * (now - began)
            if time_left <= 0 or is_rest:
                return self._has_input

    def _split_frames(self) -> bool:
        """Split the next bytes into frames; return whether there were any bytes."""
        error = self._buffer.reader.error
        if error is None:
            return self._buffer.split_next_chunk()
        if not self._suspend_if_overloaded():
            self._session.abort(error)
        return False

    @property
    def _has_input(self) -> bool:
        return self._remaining_steps is not None or self._buffer.has_input

    def _run_step(self, steps: CommandSteps) -> bool:
        """Execute a step of the unfinished command; return whether another may follow now."""
        progress = next(steps, None)
        if not self._session.is_open:
            return False
        if progress is None:
            self._remaining_steps = None
        elif isinstance(progress, AnswerFuture):
            self._is_suspended = self._awaits_decision = True
            if self.is_waiting and not self._buffer.has_input:
                self._resume_reading()
            progress.add_done_callback(lambda _: self._end_suspension())
            return False
        elif not progress:
            self._suspend()
            return False
        return True

    def _execute(self, header: bytes, body: bytes) -> bool:
        """Execute a command; return whether another may follow in this slice."""
        session, scheduler = self._session, self._scheduler
        session.execute(header, body)
        session.publish_batcher.refresh()
        return (
            session.is_open
            and self._remaining_steps is None
            and scheduler.time_left(scheduler.elapsed()) > 0
            and len(session.queries) < MAX_QUERIES
        )

    def _suspend_if_overloaded(self) -> bool:
        """Hold the peer if too much of its earlier work is in progress; return whether it is held.

        The work is the connection's queries or, if the connection adds to them, the writes that
        wait for the transaction log.
        """
        session = self._session
        is_overloaded = len(session.queries) >= MAX_QUERIES
        if session.publish_batcher.has_journaled:
            log = session.engine.transaction_log
            is_overloaded |= (
                log is not None and log.journal.is_backlogged and log.journal.write_error is None
            )
        if is_overloaded:
            self._suspend()
        return is_overloaded

    def _suspend(self) -> None:
        self._is_suspended = True
        self._session.engine.clock.call_later(_HELD_SECONDS, self._end_suspension)

    def _end_suspension(self) -> None:
        """End the hold: queue the input that waits, whose next slice may hold it again."""
        self._is_suspended = self._awaits_decision = False
        if self.is_waiting:
            self._scheduler.queue_task(self)
