"""`persisted` acks of one connection, where there is a transaction log.

They are conflated: an ack with a sequence number stands for all earlier ones, so one a second is
enough. Successes must therefore be sent in the order of the commands: no number is acknowledged
before all commands before it are on stable storage, in whichever topics. A failure is sent
separately, for its number alone and as soon as it is known, also ahead of the successes of earlier
commands: a publisher learns why it is refused while nothing can be stored. Later acks do not wait
for a failed number.

    command 1  2  3 (refused)  4  5        ->        failure 3, ... success 5

A duplicate is reported in its place: its publisher takes the report for a success, and the first
message with its number may still have to become one.

Where other instances have to acknowledge, very many commands may wait, for minutes. Beyond some
hundreds per connection they are combined: all further commands wait as one, for the last of them.

Source: AMPS User Guide, Acknowledgment Conflation and Publish Acknowledgments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from amperage.wire.header import Header
from server.engine.commands.acks import NOT_STORED, fail_sequences, failure, success
from server.topics.sow_registry import when_all_settled
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.storage.sow.store import RecordStoreError
    from server.topics.sow_registry import DurabilityWait

_MAX_APART: Final = 512
"""Commands that wait separately; further ones are combined."""


class _PendingAck:
    """Commands without their acks yet.

    Attributes:
        sequences: their sequence numbers, in digits; none if a separate ack is sent.
        separate_ack: that ack.
        command_header: the header of the command that it is for.
        is_resolved: whether their outcome is known.
        is_reported: whether their outcome has been reported.
        received_steady_s: when the first of them was read, in seconds since 1970 by the steady
            clock.
    """

    def __init__(
        self,
        received_steady_s: float,
        sequences: Sequence[bytes],
        separate_ack: Header | None = None,
        command_header: Header | None = None,
    ) -> None:
        self.received_steady_s = received_steady_s
        self.sequences = sequences
        self.separate_ack = separate_ack
        self.command_header = command_header
        self.is_resolved = False
        self.is_reported = False


class _PendingAckBatch(_PendingAck):
    """Commands that are combined, and wait as one.

    Attributes:
        durability_waits: functions that call back when some of them are settled.
    """

    def __init__(self, since: float, sequences: Sequence[bytes]) -> None:
        super().__init__(since, sequences)
        self.durability_waits: dict[DurabilityWait, None] = {}


class PersistedAcks:
    """The pending `persisted` acks of a connection.

    Args:
        session: the connection.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._pending_acks: deque[_PendingAck] = deque()
        self._open_batch: _PendingAckBatch | None = (
            None  # the last entry, if it still accepts commands
        )
        self._sequence_to_ack: int | None = None  # the sequence number to be acknowledged next
        self._is_send_scheduled = False

    @property
    def has_pending(self) -> bool:
        """True if there are commands that have not been acknowledged."""
        return bool(self._pending_acks) or self._sequence_to_ack is not None

    def acknowledge_command(
        self, header: Header, when_settled: DurabilityWait, *, is_certain: bool = False
    ) -> None:
        """Acknowledge a command when it is settled.

        Args:
            header: the command's header.
            when_settled: calls back when it is settled.
            is_certain: whether the callback never reports a problem.
        """
        if header.sequence is None:
            own = success(header, "persisted")
            self._add_pending(
                _PendingAck(self._session.last_input_steady_s, (), own, header), when_settled
            )
        else:
            self.acknowledge_sequences(
                (b"%d" % header.sequence,), when_settled, is_certain=is_certain
            )

    def acknowledge_sequences(
        self, sequences: Sequence[bytes], when_settled: DurabilityWait, *, is_certain: bool = False
    ) -> None:
        """Acknowledge commands, and all before them, when they are settled.

        Args:
            sequences: their sequence numbers, in digits.
            when_settled: calls back when they are settled.
            is_certain: whether the callback never reports a problem; then the last number suffices.
        """
        if is_certain:
            sequences = (sequences[-1],)
            if len(self._pending_acks) >= _MAX_APART:
                self._add_to_batch(sequences, when_settled)
                return
        self._add_pending(_PendingAck(self._session.last_input_steady_s, sequences), when_settled)

    def _add_to_batch(self, sequences: Sequence[bytes], when_settled: DurabilityWait) -> None:
        """Add commands to the combined entry, as many commands are waiting."""
        open_batch = self._open_batch
        if open_batch is None:
            open_batch = self._open_batch = _PendingAckBatch(
                self._session.last_input_steady_s, sequences
            )
            self._pending_acks.append(open_batch)
        open_batch.sequences = sequences
        open_batch.durability_waits[when_settled] = None

    def _close_batch(self) -> None:
        """Close the combined entry to further commands, and begin to wait for those in it."""
        open_batch, self._open_batch = self._open_batch, None
        if open_batch is not None:
            when_all_settled(
                list(open_batch.durability_waits), partial(self._on_resolved, open_batch)
            )

    def report_failure(self, ack: Header) -> None:
        """Report at once that a command failed.

        Args:
            ack: the failure ack.
        """
        self._send_success()  # acknowledge the settled commands before it
        if self._session.is_open:
            self._session.send(ack)

    def report_duplicate(self, ack: Header, when_settled: DurabilityWait) -> None:
        """Report that a command repeats an earlier one, once all before it is acknowledged.

        Args:
            ack: the failure ack.
            when_settled: calls back when the first command with its number is settled.
        """
        self._add_pending(_PendingAck(self._session.last_input_steady_s, (), ack), when_settled)

    def _add_pending(self, waiting: _PendingAck, when_settled: DurabilityWait) -> None:
        if self._open_batch is not None:
            self._close_batch()
        self._pending_acks.append(waiting)
        when_settled(partial(self._on_resolved, waiting))

    def _on_resolved(self, pending_ack: _PendingAck, problem: RecordStoreError | None) -> None:
        pending_ack.is_resolved = True
        engine = self._session.engine
        if problem is None:
            seconds = max(engine.clock.steady_unpaused() - pending_ack.received_steady_s, 0.0)
            engine.persist_latencies.add(int(seconds * MICROSECONDS_PER_SECOND))
        else:
            pending_ack.is_reported = True
            self._report_problem(pending_ack, problem)
        pending_acks = self._pending_acks
        while pending_acks and pending_acks[0].is_resolved:
            first = pending_acks.popleft()
            if first.is_reported:
                continue
            if first.separate_ack is None:
                self._sequence_to_ack = int(first.sequences[-1])
            else:
                self._send_success()
                if self._session.is_open:
                    self._session.send(first.separate_ack)
        if self._open_batch is not None and len(pending_acks) <= _MAX_APART // 2:
            self._close_batch()
        if self._sequence_to_ack is not None and not self._is_send_scheduled:
            self._is_send_scheduled = True
            engine.clock.call_later(
                self._session.options.ack_conflation_s, self._on_conflation_timer
            )

    def _report_problem(self, pending_ack: _PendingAck, problem: RecordStoreError) -> None:
        log = self._session.engine.transaction_log
        if log is not None:
            for digits in pending_ack.sequences:
                log.refused_sequences.record_failure(self._session.client_hash, int(digits))
        self._send_success()
        if not self._session.is_open:
            return
        if pending_ack.command_header is not None:
            self._session.send(
                failure(pending_ack.command_header, "persisted", NOT_STORED, str(problem))
            )
        fail_sequences(self._session, pending_ack.sequences, str(problem))

    def _on_conflation_timer(self) -> None:
        self._is_send_scheduled = False
        self._send_success()
        self._session.engine.flush()

    def _send_success(self) -> None:
        """Acknowledge the sequence number that has been reached, and so all before it."""
        if self._sequence_to_ack is not None and self._session.is_open:
            header = Header(
                "ack", acks="persisted", sequence=self._sequence_to_ack, status="success"
            )
            self._session.send(header)
        self._sequence_to_ack = None
