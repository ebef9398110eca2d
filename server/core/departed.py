"""What clients sent and got that are not connected any more, so that totals stay complete."""

from __future__ import annotations

from typing import Protocol


class _Intake(Protocol):
    bytes_in: int
    messages_in: int


class _Outbox(Protocol):
    bytes_out: int
    messages_out: int

    @property
    def size(self) -> int:
        """Bytes that leave with the next flush."""

    @property
    def pieces(self) -> int:
        """How many messages these are."""


class Departing(Protocol):
    """A session that is over."""

    denied_reads: int
    denied_writes: int

    @property
    def intake(self) -> _Intake:
        """What its peer has sent."""

    @property
    def outbox(self) -> _Outbox:
        """What its peer was sent."""


class Departed:
    """The sums of all sessions that are over.

    Attributes:
        bytes_in: see `Intake`.
        messages_in: see `Intake`.
        bytes_out: see `Outbox`.
        messages_out: see `Outbox`.
        denied_reads: see `Session`.
        denied_writes: see `Session`.
    """

    def __init__(self) -> None:
        self.bytes_in = 0
        self.messages_in = 0
        self.bytes_out = 0
        self.messages_out = 0
        self.denied_reads = 0
        self.denied_writes = 0

    def add(self, session: Departing) -> None:
        """Take over what a session has counted, and what is still going to leave."""
        intake, outbox = session.intake, session.outbox
        self.bytes_in += intake.bytes_in
        self.messages_in += intake.messages_in
        self.bytes_out += outbox.bytes_out + outbox.size
        self.messages_out += outbox.messages_out + outbox.pieces
        self.denied_reads += session.denied_reads
        self.denied_writes += session.denied_writes
