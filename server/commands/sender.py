"""Whoever has sent a command, as all commands see it, and what stands around.

What only some commands need of it is beside these: persisted_acks.py, subscribing.py, heartbeat.py,
logon.py, unsubscribe.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from server.replays import listener
from server.subscriptions.client import Client
from server.topics.audit import Party

if TYPE_CHECKING:
    from amperage.wire.header import Header
    from server.base.clock import SteadySeconds, WallSeconds
    from server.base.histogram import Histogram
    from server.expressions.prepared import FilterParser
    from server.security.permissions import Permission, Permit
    from server.subscriptions.outbox import Outbox
    from server.topics.audit import Audit
    from server.topics.client_status import ClientStatus
    from server.topics.table import AnyTopic
    from server.topics.transaction_log import TransactionLog


@dataclass(frozen=True, slots=True)
class LogonOptions:
    """What a client asked for at its logon.

    Attributes:
        ack_conflation: seconds over which `persisted` acks of publishes are merged.
        pretty: whether it wants binary bodies in a form that people can read.
        correlation_id: the correlation id that it gave.
    """

    ack_conflation: float = 1.0
    pretty: bool = False
    correlation_id: str = ""


class Surroundings(listener.Surroundings, Protocol):
    """What commands work with."""

    @property
    def filters(self) -> FilterParser:
        """Reads the filters of commands."""

    @property
    def transaction_log(self) -> TransactionLog | None:
        """Records what is published; None if there is none."""

    @property
    def persisting(self) -> Histogram:
        """How long it took from a publish until it was settled, in microseconds."""

    @property
    def audit(self) -> Audit:
        """Says who logs on, is refused, and has what done."""

    @property
    def client_status(self) -> ClientStatus:
        """Publishes what clients do."""


class Answered(Protocol):
    """A connection that gets acks."""

    @property
    def is_open(self) -> bool:
        """Whether it is still served."""

    @property
    def outbox(self) -> Outbox:
        """What is on its way to it."""

    def send(self, header: Header) -> None:
        """Send it a message that is nothing but a header."""


class Sender(Answered, Client, Protocol):
    """A connection that has sent a command.

    Attributes:
        command: the name of the command obeyed last.
    """

    command: str

    @property
    def engine(self) -> Surroundings:
        """What stands around it."""

    @property
    def logged_on(self) -> bool:
        """Whether its client has said who it is."""

    @property
    def party(self) -> Party:
        """Who is at the other end, for the log."""

    @property
    def options(self) -> LogonOptions:
        """What its client asked for at its logon."""

    @property
    def heard_at(self) -> SteadySeconds:
        """When the current command was read, by the clock that measures silence."""

    @property
    def last_heard(self) -> WallSeconds:
        """When it sent what is being obeyed, in seconds since 1970."""

    @property
    def is_internal(self) -> bool:
        """Whether it belongs to the server itself, which tells nobody what it does."""

    def find_topic(self, name: str) -> AnyTopic:
        """Find a topic of its message type."""

    def may(self, permission: Permission, topic: str) -> bool:
        """Whether its user may do something with a topic."""

    def permit(self, permission: Permission, topic: str) -> Permit:
        """What its user is said who wants to do something with a topic."""

    def permit_to_read(self, topic: str) -> Permit:
        """What its user may see of a topic; a refusal is counted."""

    def require(self, permission: Permission, topic: str) -> Permit:
        """Refuse the command at hand unless the user may do this.

        Returns:
            What the user is said; there may be limits.

        Raises:
            CommandRefused: the user may not.
        """

    def refused_write(self, topic: str, messages: int = 1) -> None:
        """Take note of messages or records of a topic that its user may not change."""

    def remark(self, message_id: str, /, **fields: object) -> None:
        """Write to the log what is worth saying once of a connection, however often it occurs.

        Args:
            message_id: the id of the entry in the catalogue; its field `client` is given here.
            fields: the entry's other fields.
        """

    def close(self, reason: str) -> None:
        """Disconnect it, after everything that it has been sent.

        Args:
            reason: one of the reasons of the reference (AMPS User Guide, Locating the Reason for
                Disconnection).
        """
