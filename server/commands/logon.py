"""logon: who is there, and which message type do they speak."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from config_schema.version import AMPS_VERSION
from server.commands import sender
from server.commands.acks import acknowledge
from server.commands.options import read_logon_options
from server.commands.refusal import CommandRefused
from server.security.authentication import Credentials
from server.security.entitlement import Permission
from server.wire.header import Header

if TYPE_CHECKING:
    from server.commands.steps import Steps
    from server.security.authentication import Authenticator
    from server.security.entitlement import Entitlement


_PATIENCE: Final = 1.0
"""Seconds that a logon waits at most for another connection with its name to come to its end."""


class Entrance(Protocol):
    """What the transport that a connection came in through says of logons."""

    @property
    def transport(self) -> str:
        """The transport's name."""

    @property
    def message_type(self) -> str | None:
        """The only message type spoken there; None when the logon chooses."""

    @property
    def authenticator(self) -> Authenticator:
        """Decides on logons."""

    @property
    def entitlement(self) -> Entitlement:
        """Decides on everything else."""


class Coming(Protocol):
    """What a connection has sent and what is not obeyed yet."""

    def close_when_done(self, reason: str) -> None:
        """Disconnect it when what has been read of it is obeyed."""


class Holder(Protocol):
    """A connection whose client has a name that somebody else claims."""

    @property
    def is_open(self) -> bool:
        """Whether it is still served."""

    @property
    def intake(self) -> Coming:
        """What it has sent."""

    @property
    def user(self) -> str:
        """The authenticated user's name."""

    def close(self, reason: str) -> None:
        """Disconnect it."""


class Surroundings(sender.Surroundings, Protocol):
    """What logons need besides."""

    def client(self, name: str) -> Holder | None:
        """The connection that logged on last under a name, if it is still there."""


class Arriving(sender.Sender, Protocol):
    """A connection that logs on.

    Attributes:
        user: the authenticated user's name.
    """

    user: str

    @property
    def engine(self) -> Surroundings:
        """What stands around it."""

    @property
    def entrance(self) -> Entrance:
        """Where it came in."""

    def log_on(
        self,
        client_name: str,
        message_type: str,
        version: str = "",
        options: sender.LogonOptions | None = None,
    ) -> None:
        """Take note of who the client is; from now on it may send commands."""

    def register(self) -> None:
        """Have it found by the name of its client."""


def handle(session: Arriving, header: Header, _body: bytes) -> Steps:
    """Log a connection on (AMPS Command Reference, logon command).

    The ack says up to which number the publisher's messages are persisted, wherever they have to
    be: it need not keep these any more. Its bookmark has the number that the next ones follow on.

    Raises:
        CommandRefused: the message type cannot be spoken here, or the user may not log on.
    """
    message_type = _message_type(session, header)
    options = read_logon_options(header)
    credentials = Credentials(header.user_id or "", header.password or "", explicit=True)
    reason = _admit(session, credentials)
    client_name = header.client_name or session.connection_name
    yield from _claim_name(session, client_name)
    log = session.engine.transaction_log
    last_sequence = 0 if log is None else log.last_sequence(client_name)
    settled_sequence = 0 if log is None else log.settled_sequence(client_name)
    session.log_on(client_name, message_type, header.version or "", options)
    session.register()
    session.engine.log.emit(
        "1F-0004",
        connection=session.connection_name,
        client=client_name,
        user=session.user,
        name_hash=session.client_hash,
        version=header.version or "",
        last_acked=settled_sequence,
        last_logged=last_sequence,
        correlation_id=header.correlation_id or "",
    )
    session.engine.client_status.publish(
        "logon",
        session,
        client_address=session.address,
        correlation_id=header.correlation_id,
    )
    acknowledge(
        session,
        header,
        "processed",
        client_name=client_name,
        sequence=settled_sequence,
        bookmark=f"{session.client_hash}|{last_sequence}|",
        reason=reason,
        long_version=AMPS_VERSION,
    )


def _claim_name(session: Arriving, client_name: str) -> Steps:
    """Make sure that nobody else has the name, where a transaction log tells clients by it.

    A connection that has it ends as soon as what has been read of it is obeyed: its client, which
    comes anew, has sent that before. Source: AMPS User Guide, Client Names and the Transaction Log.

    Raises:
        CommandRefused: another user has it.
    """
    engine = session.engine
    if engine.transaction_log is None:
        return
    until = engine.clock.now() + _PATIENCE
    told: Holder | None = None
    while (holder := engine.client(client_name)) is not None:
        is_late = engine.clock.now() >= until
        if holder.is_open and holder.user != session.user:
            raise CommandRefused(
                "name in use",
                f"another user is logged on as {client_name!r}",
                disconnect="name in use",
            )
        if holder.is_open and holder is not told:
            told = holder
            engine.log.emit("02-0025", client=client_name, user=session.user)
            holder.intake.close_when_done("name in use")
        elif is_late:
            holder.close("name in use")
            return
        if engine.client(client_name) is holder:
            yield False


def log_on_implicitly(session: Arriving) -> None:
    """Log a connection on that sent another command first, where the transport allows it.

    Raises:
        CommandRefused: it does not.
    """
    _admit(session, Credentials("", "", explicit=False))
    if session.entrance.message_type is None:
        raise CommandRefused(
            "invalid message type",
            f"transport {session.entrance.transport} speaks any message type, so that a logon has"
            " to name one (header mt) before any other command",
        )
    session.log_on(session.connection_name, session.entrance.message_type)


def _message_type(session: Arriving, header: Header) -> str:
    fixed, wanted = session.entrance.message_type, header.message_type
    if fixed is not None:
        if wanted not in (None, "", fixed):
            raise CommandRefused(
                "invalid message type",
                f"transport {session.entrance.transport} speaks {fixed} only, not {wanted}",
            )
        return fixed
    if not wanted:
        raise CommandRefused(
            "invalid message type",
            "the logon names no message type (header mt), which this transport requires",
        )
    known = session.engine.settings.message_types
    if wanted not in known:
        raise CommandRefused(
            "invalid message type",
            f"there is no message type {wanted!r} here, expected one of {', '.join(sorted(known))}",
        )
    return wanted


def _admit(session: Arriving, credentials: Credentials) -> str:
    entrance = session.entrance
    admission = entrance.authenticator.authenticate(credentials)
    if not admission.granted:
        session.engine.client_status.publish(
            "logon_failure",
            session,
            client_address=session.address,
            reason=admission.reason,
            auth_id=credentials.user or None,
        )
        raise CommandRefused("auth failure", admission.reason, disconnect="auth")
    if not entrance.entitlement.allows(admission.user, Permission.LOGON, ""):
        raise CommandRefused(
            "not entitled", "the user has no permission to log on", disconnect="entitlement"
        )
    session.user = admission.user
    return admission.reason
