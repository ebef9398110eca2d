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
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from amperage.wire.header import Header
from server.engine.commands.acks import NOT_STORED, fail_sequences, failure, success
from server.topics.sow_registry import when_all_settled

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.storage.sow.store import RecordStoreError, StoreCallback

DurabilityWait: TypeAlias = "Callable[[StoreCallback], None]"
"""Calls back when the effects of a command are on stable storage, or may not get there."""

_MICROSECONDS: Final = 1e6
_MAX_APART: Final = 512
"""Commands that wait separately; further ones are combined."""


class _PendingAck:
    """Commands without their acks yet.

    Attributes:
        sequences: their sequence numbers, in digits; none if a separate ack is sent.
        own: that ack.
        header: the header of the command that it is for.
        is_settled: whether their outcome is known.
        is_told: whether their outcome has been reported.
        since: when the first of them was read, in seconds since 1970 by the steady clock.
    """

    __slots__ = ("header", "is_settled", "is_told", "own", "sequences", "since")

    def __init__(
        self,
        since: float,
        sequences: Sequence[bytes],
        own: Header | None = None,
        header: Header | None = None,
    ) -> None:
        self.since = since
        self.sequences = sequences
        self.own = own
        self.header = header
        self.is_settled = False
        self.is_told = False


class _PendingAckBatch(_PendingAck):
    """Commands that are combined, and wait as one.

    Attributes:
        waits: functions that call back when some of them are stored.
    """

    __slots__ = ("waits",)

    def __init__(self, since: float, sequences: Sequence[bytes]) -> None:
        super().__init__(since, sequences)
        self.waits: dict[DurabilityWait, None] = {}


class PersistedAcks:
    """The pending `persisted` acks of a connection.

    Args:
        session: the connection.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: deque[_PendingAck] = deque()
        self._crowd: _PendingAckBatch | None = None  # the last entry, if it still accepts commands
        self._reached: int | None = None  # the sequence number to be acknowledged next
        self._is_due = False

    def succeeded(
        self, header: Header, when_stored: DurabilityWait, *, is_certain: bool = False
    ) -> None:
        """Acknowledge a command when it is stored.

        Args:
            header: the command's header.
            when_stored: calls back when it is stored.
            is_certain: whether the callback never reports a problem.
        """
        if header.sequence is None:
            own = success(header, "persisted")
            self._add(_PendingAck(self._session.heard_at, (), own, header), when_stored)
        else:
            self.reached((b"%d" % header.sequence,), when_stored, is_certain=is_certain)

    def reached(
        self, sequences: Sequence[bytes], when_stored: DurabilityWait, *, is_certain: bool = False
    ) -> None:
        """Acknowledge commands, and all before them, when they are stored.

        Args:
            sequences: their sequence numbers, in digits.
            when_stored: calls back when they are stored.
            is_certain: whether the callback never reports a problem; then the last number suffices.
        """
        if is_certain:
            sequences = (sequences[-1],)
            if len(self._waiting) >= _MAX_APART:
                self._crowd_in(sequences, when_stored)
                return
        self._add(_PendingAck(self._session.heard_at, sequences), when_stored)

    def _crowd_in(self, sequences: Sequence[bytes], when_stored: DurabilityWait) -> None:
        """Add commands to the combined entry, as many commands are waiting."""
        crowd = self._crowd
        if crowd is None:
            crowd = self._crowd = _PendingAckBatch(self._session.heard_at, sequences)
            self._waiting.append(crowd)
        crowd.sequences = sequences
        crowd.waits[when_stored] = None

    def _close_crowd(self) -> None:
        """Close the combined entry to further commands, and begin to wait for those in it."""
        crowd, self._crowd = self._crowd, None
        if crowd is not None:
            when_all_settled(list(crowd.waits), partial(self._settled, crowd))

    def refused(self, ack: Header) -> None:
        """Report at once that a command failed.

        Args:
            ack: the failure ack.
        """
        self._send()  # acknowledge the settled commands before it
        if self._session.is_open:
            self._session.send(ack)

    def repeated(self, ack: Header, when_stored: DurabilityWait) -> None:
        """Report that a command repeats an earlier one, once all before it is acknowledged.

        Args:
            ack: the failure ack.
            when_stored: calls back when the first command with its number is stored.
        """
        self._add(_PendingAck(self._session.heard_at, (), ack), when_stored)

    def _add(self, waiting: _PendingAck, when_stored: DurabilityWait) -> None:
        if self._crowd is not None:
            self._close_crowd()
        self._waiting.append(waiting)
        when_stored(partial(self._settled, waiting))

    def _settled(self, settled: _PendingAck, problem: RecordStoreError | None) -> None:
        settled.is_settled = True
        engine = self._session.engine
        if problem is None:
            seconds = max(engine.clock.attentive() - settled.since, 0.0)
            engine.persisting.add(int(seconds * _MICROSECONDS))
        else:
            settled.is_told = True
            self._tell_problem(settled, problem)
        waiting = self._waiting
        while waiting and waiting[0].is_settled:
            first = waiting.popleft()
            if first.is_told:
                continue
            if first.own is None:
                self._reached = int(first.sequences[-1])
            else:
                self._send()
                if self._session.is_open:
                    self._session.send(first.own)
        if self._crowd is not None and len(waiting) <= _MAX_APART // 2:
            self._close_crowd()
        if self._reached is not None and not self._is_due:
            self._is_due = True
            engine.clock.call_later(self._session.options.ack_conflation, self._send_in_time)

    def _tell_problem(self, settled: _PendingAck, problem: RecordStoreError) -> None:
        log = self._session.engine.transaction_log
        if log is not None:
            for digits in settled.sequences:
                log.refusals.failed(self._session.client_hash, int(digits))
        self._send()
        if not self._session.is_open:
            return
        if settled.header is not None:
            self._session.send(failure(settled.header, "persisted", NOT_STORED, str(problem)))
        fail_sequences(self._session, settled.sequences, str(problem))

    def _send_in_time(self) -> None:
        self._is_due = False
        self._send()
        self._session.engine.flush()

    def _send(self) -> None:
        """Acknowledge the sequence number that has been reached, and so all before it."""
        if self._reached is not None and self._session.is_open:
            header = Header("ack", acks="persisted", sequence=self._reached, status="success")
            self._session.send(header)
        self._reached = None
