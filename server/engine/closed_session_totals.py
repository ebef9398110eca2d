"""Traffic totals of closed sessions, so that a transport's totals stay complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.engine.session import Session


class ClosedSessionTotals:
    """Totals of all closed sessions of one transport.

    Attributes:
        bytes_in: see `SessionInput`.
        messages_in: see `SessionInput`.
        bytes_out: see `Outbox`.
        messages_out: see `Outbox`.
        denied_reads: see `Session`.
        denied_writes: see `Session`.
        sessions: the number of these sessions.
    """

    def __init__(self) -> None:
        self.bytes_in = 0
        self.messages_in = 0
        self.bytes_out = 0
        self.messages_out = 0
        self.denied_reads = 0
        self.denied_writes = 0
        self.sessions = 0

    def add(self, session: Session) -> None:
        """Add the counts of a session, and the output that its last flush will send."""
        session_input, outbox = session.input, session.outbox
        self.bytes_in += session_input.bytes_in
        self.messages_in += session_input.messages_in
        self.bytes_out += outbox.bytes_out + outbox.size
        self.messages_out += outbox.messages_out + outbox.pieces
        self.denied_reads += session.denied_reads
        self.denied_writes += session.denied_writes
        self.sessions += 1
