"""The interface of a session that command handlers use, and that of the engine.

Interfaces for some commands only are in other modules: persisted_acks.py, subscription_context.py,
heartbeat.py, logon.py, unsubscribe.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from server.engine.replays import replay_client
from server.topics.subscriptions.client import ClientIdentity
from server.topics.system.audit import AuditParty

if TYPE_CHECKING:
    from amperage.wire.header import Header
    from server.expressions.filter_cache import FilterParser
    from server.security.permissions import Permission, Permit
    from server.topics.subscriptions.delivery.outbox import Outbox
    from server.topics.system.audit import Audit
    from server.topics.system.client_status import ClientStatus
    from server.topics.topic_table import AnyTopic
    from server.topics.transaction_log import TransactionLog
    from server.util.clock import SteadySeconds, WallSeconds
    from server.util.histogram import Histogram


@dataclass(frozen=True, slots=True)
class SessionLogonOptions:
    """The options of a client's logon.

    Attributes:
        ack_conflation: seconds over which `persisted` acks of publishes are merged.
        pretty: whether binary bodies are sent in a form that people can read.
        correlation_id: the correlation id of the logon.
    """

    ack_conflation: float = 1.0
    pretty: bool = False
    correlation_id: str = ""


class CommandEngine(replay_client.ReplayEngine, Protocol):
    """The interface of the engine that all commands use."""

    @property
    def filters(self) -> FilterParser:
        """Parses the filters of commands."""

    @property
    def transaction_log(self) -> TransactionLog | None:
        """The transaction log, which records published messages; None if there is none."""

    @property
    def persisting(self) -> Histogram:
        """The time from a publish until it was settled, in microseconds."""

    @property
    def audit(self) -> Audit:
        """The audit trail of logons, refusals and administrative commands."""

    @property
    def client_status(self) -> ClientStatus:
        """Publishes client status messages."""


class AckRecipient(Protocol):
    """A connection that receives acks."""

    @property
    def is_open(self) -> bool:
        """True while the connection is served."""

    @property
    def outbox(self) -> Outbox:
        """Its output buffer."""

    def send(self, header: Header) -> None:
        """Send a message without a body."""


class CommandSession(AckRecipient, ClientIdentity, Protocol):
    """A connection that has sent a command.

    Attributes:
        command: the name of the last command executed.
    """

    command: str

    @property
    def engine(self) -> CommandEngine:
        """The engine that it belongs to."""

    @property
    def logged_on(self) -> bool:
        """True once its client is logged on."""

    @property
    def party(self) -> AuditParty:
        """The identity of the peer, for the log."""

    @property
    def options(self) -> SessionLogonOptions:
        """The options of its client's logon."""

    @property
    def heard_at(self) -> SteadySeconds:
        """The time at which the current command was read, by the clock that measures silence."""

    @property
    def last_heard(self) -> WallSeconds:
        """The time at which the current command was received, in seconds since 1970."""

    @property
    def is_internal(self) -> bool:
        """True if it belongs to the server itself, whose commands are not announced."""

    def find_topic(self, name: str) -> AnyTopic:
        """Return a topic of its message type."""

    def may(self, permission: Permission, topic: str) -> bool:
        """Return whether its user has a permission for a topic."""

    def permit(self, permission: Permission, topic: str) -> Permit:
        """Return its user's permit for an operation on a topic."""

    def permit_to_read(self, topic: str) -> Permit:
        """Return its user's permit to read a topic; a refusal is counted."""

    def require(self, permission: Permission, topic: str) -> Permit:
        """Refuse the current command unless the user has a permission for a topic.

        Returns:
            The user's permit; it may be limited.

        Raises:
            CommandRefusedError: the user does not have the permission.
        """

    def refused_write(self, topic: str, messages: int = 1) -> None:
        """Count messages or records of a topic that its user may not change."""

    def remark(self, message_id: str, /, **fields: object) -> None:
        """Log an event once per connection, however often it occurs.

        Args:
            message_id: the id of the entry in the catalogue; its field `client` is given here.
            fields: the entry's other fields.
        """

    def close(self, reason: str) -> None:
        """Disconnect it, after everything that has been sent to it.

        Args:
            reason: one of the reasons of the reference (AMPS User Guide, Locating the Reason for
                Disconnection).
        """
