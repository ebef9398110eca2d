"""logon: who is there, and which message type do they speak."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol

from amperage.wire.header import Header
from config_schema.version import AMPS_VERSION
from server.commands import sender
from server.commands.acks import NOT_STORED, acknowledge, failure, wants
from server.commands.options import read_logon_options
from server.commands.refusal import CommandRefused
from server.security.authentication import Admission, Credentials, Limited, Origin
from server.security.later import decided, when_decided
from server.security.permissions import Permission

if TYPE_CHECKING:
    from collections.abc import Generator

    from server.commands.steps import Steps
    from server.journal.missing import Pairs
    from server.security.authentication import Authenticator, Challenge, Exchange
    from server.security.entitlement import Entitlement
    from server.security.later import Pending
    from server.security.permissions import Permissions
    from server.topics.audit import Party


_TOLD_AGAIN: Final = (
    "the message was refused when it was published, or has been lost since, and it is not certain"
    " that its publisher was told"
)
_TOLD_AT_ONCE: Final = 100
"""Refusals that are told in a slice."""

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

    @property
    def certificate_user(self) -> str:
        """Whom the certificate of the connection names; empty without one."""

    @property
    def module(self) -> str:
        """The name of the module that decides on logons."""


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
        permissions: what they may do.
        exchange: the logon that is under way; None before it, and when it is over.
        told: which of its numbers it has been told at its logon that they are not stored.
    """

    user: str
    permissions: Permissions
    exchange: Exchange | None
    told: Pairs

    @property
    def engine(self) -> Surroundings:
        """What stands around it."""

    @property
    def entrance(self) -> Entrance:
        """Where it came in."""

    @property
    def party(self) -> Party:
        """Who it is, for the audit trail."""

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

    def wait_for_decision(self, *, begins: bool) -> None:
        """Somebody decides whether the client may log on, or has: that time is not its own.

        Args:
            begins: whether that begins.
        """


def handle(session: Arriving, header: Header, _body: bytes) -> Steps:
    """Log a connection on (AMPS Command Reference, logon command).

    The ack says up to which number the publisher's messages are persisted, wherever they have to
    be: it need not keep these any more. Its bookmark has the number that the next ones follow on.
    Before it come failure acks for those of the numbers whose messages have been refused, if it is
    not certain that the publisher knows (`server.topics.refusals`).

    Raises:
        CommandRefused: the message type cannot be spoken here, or the user may not log on.
    """
    message_type = _message_type(session, header)
    options = read_logon_options(header)
    client_name = header.client_name or session.connection_name
    admission = yield from _admit(session, _credentials(session, header, client_name, message_type))
    if admission.challenge is not None:
        _challenge(session, header, admission.reason, admission.challenge)
        return
    yield from _claim_name(session, client_name)
    log = session.engine.transaction_log
    last_sequence = 0 if log is None else log.last_sequence(client_name)
    settled_sequence = 0 if log is None else log.settled_sequence(client_name)
    session.log_on(client_name, message_type, header.version or "", options)
    session.register()
    if log is not None:
        log.refusals.begin(session.client_hash)
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
    session.engine.audit.logged_on(session.party, admission.reason)
    session.engine.client_status.publish(
        "logon",
        session,
        client_address=session.address,
        correlation_id=header.correlation_id,
    )
    if log is not None and wants(header, "processed"):
        yield from _tell_again(session, log.refusals.untold(session.client_hash, settled_sequence))
    acknowledge(
        session,
        header,
        "processed",
        client_name=client_name,
        sequence=settled_sequence,
        bookmark=f"{session.client_hash}|{last_sequence}|",
        reason=admission.reason,
        password=admission.token or None,
        long_version=AMPS_VERSION,
    )


def _tell_again(session: Arriving, untold: Pairs) -> Steps:
    """Tell a publisher which of its numbers are not stored, before it takes them for stored.

    It waits for the ack of its logon before it goes on. So whatever comes from it next shows that
    it has heard.
    """
    for count, number in enumerate(chain.from_iterable(map(_numbers, untold)), 1):
        if not session.is_open:
            return
        refused = Header("publish", sequence=number)
        session.send(failure(refused, "persisted", NOT_STORED, _TOLD_AGAIN))
        if not count % _TOLD_AT_ONCE:
            yield True
    session.told = untold


def _numbers(pair: tuple[int, int]) -> range:
    first, last = pair
    return range(first, last + 1)


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
    until = engine.clock.steady() + _PATIENCE
    told: Holder | None = None
    while (holder := engine.client(client_name)) is not None:
        is_late = engine.clock.steady() >= until
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


def log_on_implicitly(session: Arriving) -> Steps:
    """Log a connection on that sent another command first, where the transport allows it.

    Raises:
        CommandRefused: it does not.
    """
    message_type = session.entrance.message_type or ""
    origin = _origin(session, session.connection_name, message_type)
    admission = yield from _admit(session, Credentials("", "", explicit=False, origin=origin))
    if admission.challenge is not None:
        raise CommandRefused("auth failure", "a logon is required", disconnect="auth")
    if session.entrance.message_type is None:
        raise CommandRefused(
            "invalid message type",
            f"transport {session.entrance.transport} speaks any message type, so that a logon has"
            " to name one (header mt) before any other command",
        )
    session.log_on(session.connection_name, session.entrance.message_type)
    session.engine.audit.logged_on(session.party, admission.reason)


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


def _credentials(
    session: Arriving, header: Header, client_name: str, message_type: str
) -> Credentials:
    origin = _origin(session, client_name, message_type, header.correlation_id or "")
    return Credentials(header.user_id or "", header.password or "", explicit=True, origin=origin)


def _origin(
    session: Arriving, client_name: str, message_type: str, correlation_id: str = ""
) -> Origin:
    entrance = session.entrance
    return Origin(
        entrance.transport,
        session.address,
        client_name,
        correlation_id,
        entrance.certificate_user,
        session.connection_name,
        message_type,
    )


def _admit(session: Arriving, credentials: Credentials) -> Generator[Pending[Any], None, Admission]:
    """Have the modules decide on a logon.

    Returns:
        What the authentication module has said: yes, or a challenge.

    Raises:
        CommandRefused: the user may not log on.
    """
    entrance = session.entrance
    exchange = session.exchange or Limited(entrance.authenticator.begin())
    session.wait_for_decision(begins=True)
    admission = yield from decided(exchange.step(credentials))
    if admission.challenge is not None:
        session.exchange = exchange
        session.wait_for_decision(begins=False)
        return admission
    session.exchange = None
    if not admission.granted:
        session.engine.client_status.publish(
            "logon_failure",
            session,
            client_address=session.address,
            reason=admission.reason,
            auth_id=credentials.user or None,
        )
        _say_refused(session, credentials, credentials.user, admission.detail or admission.reason)
        raise CommandRefused("auth failure", admission.reason, disconnect="auth")
    permissions = yield from _enter(entrance.entitlement, admission.user)
    permit = permissions.permit(Permission.LOGON, "")
    if not permit.allowed:
        permissions.leave()
        _say_refused(session, credentials, admission.user, permit.rule)
        raise CommandRefused(
            "not entitled", "the user has no permission to log on", disconnect="entitlement"
        )
    session.user, session.permissions = admission.user, permissions
    return admission


def _say_refused(session: Arriving, credentials: Credentials, user: str, reason: str) -> None:
    name = credentials.origin.client_name
    party = session.party._replace(user=user, client_name=name)
    session.engine.audit.logon_refused(party, reason)


def _enter(entitlement: Entitlement, user: str) -> Generator[Pending[Any], None, Permissions]:
    """Find out what a user may do; should the connection end meanwhile, they have gone."""
    later = entitlement.enter(user)
    try:
        return (yield from decided(later))
    except GeneratorExit:
        when_decided(later, lambda permissions: permissions.leave())
        raise


def _challenge(session: Arriving, header: Header, reason: str, challenge: Challenge) -> None:
    """Ask the client to log on again, with credentials that answer to what it is told.

    Source: AMPS Command Reference, logon command.
    """
    session.send(
        Header(
            "ack",
            command_id=header.command_id,
            acks="processed",
            status="retry",
            reason=reason or None,
            user_id=challenge.user,
            password=challenge.password,
        )
    )
