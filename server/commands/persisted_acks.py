"""`persisted` acks of one connection, where there is a transaction log.

They are conflated: an ack with a sequence number stands for all earlier ones, so that one a second
is enough. That is why they must come in the order of the commands: no number is acknowledged before
all commands before it are on stable storage, whichever topics they went to. A failure is told by
itself, after the success of what was before it.

    command 1  2  3 (refused)  4  5        ->        success 2, failure 3, ... success 5

Source: AMPS User Guide, Acknowledgment Conflation and Publish Acknowledgments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from server.commands.acks import success
from server.wire.header import Header

if TYPE_CHECKING:
    from server.session import Session

WhenStored = Callable[[Callable[[], None]], None]
"""Calls back when what a command did is on stable storage."""


class _Waiting:
    """A command whose ack has not been sent.

    Attributes:
        sequence: its sequence number; None where an ack of its own is sent.
        own: that ack.
        is_stored: whether what it did is on stable storage.
    """

    __slots__ = ("is_stored", "own", "sequence")

    def __init__(self, sequence: int | None, own: Header | None) -> None:
        self.sequence = sequence
        self.own = own
        self.is_stored = False


class PersistedAcks:
    """The `persisted` acks that a connection is waiting for.

    Args:
        session: the connection.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: deque[_Waiting] = deque()
        self._reached: int | None = None  # the sequence number to be acknowledged next
        self._is_due = False

    def succeeded(self, header: Header, when_stored: WhenStored) -> None:
        """Acknowledge a command when it is stored.

        Args:
            header: the command's header.
            when_stored: tells when that is.
        """
        if header.sequence is None:
            self._add(_Waiting(None, success(header, "persisted")), when_stored)
        else:
            self.reached(header.sequence, when_stored)

    def reached(self, sequence: int, when_stored: WhenStored) -> None:
        """Acknowledge commands up to a sequence number when they are stored.

        Args:
            sequence: of the last one.
            when_stored: tells when that is.
        """
        self._add(_Waiting(sequence, None), when_stored)

    def failed(self, failure: Header, when_stored: WhenStored) -> None:
        """Say that a command failed, after everything before it has been acknowledged.

        Args:
            failure: the ack.
            when_stored: tells when what the failure speaks of is stored: of a duplicate, the
                message that came first.
        """
        self._add(_Waiting(None, failure), when_stored)

    def _add(self, waiting: _Waiting, when_stored: WhenStored) -> None:
        self._waiting.append(waiting)
        when_stored(partial(self._stored, waiting))

    def _stored(self, stored: _Waiting) -> None:
        stored.is_stored = True
        waiting = self._waiting
        while waiting and waiting[0].is_stored:
            first = waiting.popleft()
            if first.own is None:
                self._reached = first.sequence
            else:
                self._send()
                if self._session.is_open:
                    self._session.send(first.own)
        if self._reached is not None and not self._is_due:
            self._is_due = True
            engine = self._session.engine
            engine.clock.call_later(self._session.options.ack_conflation, self._send_in_time)

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
