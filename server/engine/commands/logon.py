"""logon: authenticates a client, and sets its name and message type."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from amperage.wire.header import Header
from config_schema.version import AMPS_VERSION
from server.engine.commands.acks import NOT_STORED, acknowledge, failure, wants
from server.engine.commands.errors import CommandRefusedError
from server.engine.commands.parsing.options import read_logon_options
from server.security.authentication import Admission, ChallengeLimit, LogonCredentials, LogonOrigin
from server.security.deferred import decided, on_answer
from server.security.permissions import Permission

if TYPE_CHECKING:
    from collections.abc import Generator

    from server.engine.commands.continuation import CommandSteps
    from server.engine.session import Session
    from server.security.authentication import Challenge
    from server.security.deferred import AnswerFuture
    from server.security.entitlement import Entitlement
    from server.security.permissions import Permissions
    from server.storage.journal.sequence_gaps import SequenceRanges


_NOT_STORED_DETAIL: Final = (
    "the message was refused when it was published, or has been lost since, and it is not certain"
    " that its publisher was notified"
)
_NOTIFY_BATCH_SIZE: Final = 100
"""Refusals that are reported in a time slice."""

_NAME_CLAIM_TIMEOUT_S: Final = 1.0
"""Seconds that a logon waits at most for another connection with its name to close."""


def handle(session: Session, header: Header, _body: bytes) -> CommandSteps:
    """Log a connection on (AMPS Command Reference, logon command).

    The ack has the number up to which the publisher's messages are persisted, at all instances that
    have to acknowledge them: the publisher need not keep these any more. Its bookmark has the
    number after which the next ones follow. The ack is preceded by failure acks for the numbers of
    refused messages, if it is not certain that the publisher has received them
    (`server.topics.refused_sequences`).

    Raises:
        CommandRefusedError: the transport does not accept the message type, or the user may not log
            on.
    """
    message_type = _message_type(session, header)
    options = read_logon_options(header)
    client_name = header.client_name or session.connection_name
    admission = yield from admit(session, _credentials(session, header, client_name, message_type))
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
        log.refused_sequences.begin_connection(session.client_hash)
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
    session.engine.audit.report_logon(session.audit_actor, admission.reason)
    session.engine.client_status.publish(
        "logon",
        session,
        client_address=session.address,
        correlation_id=header.correlation_id,
    )
    if log is not None and wants(header, "processed"):
        yield from _report_gaps(
            session, log.refused_sequences.unreported_gaps(session.client_hash, settled_sequence)
        )
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


def _report_gaps(session: Session, unreported_gaps: SequenceRanges) -> CommandSteps:
    """Report to a publisher the numbers that are not stored, before it assumes that they are.

    A publisher sends no command before it has the ack of its logon, so its next command proves that
    it has received the report.
    """
    for count, number in enumerate(chain.from_iterable(map(_numbers, unreported_gaps)), 1):
        if not session.is_open:
            return
        refused = Header("publish", sequence=number)
        session.send(failure(refused, "persisted", NOT_STORED, _NOT_STORED_DETAIL))
        if not count % _NOTIFY_BATCH_SIZE:
            yield True
    session.reported_gaps = unreported_gaps


def _numbers(pair: tuple[int, int]) -> range:
    first, last = pair
    return range(first, last + 1)


def _claim_name(session: Session, client_name: str) -> CommandSteps:
    """Claim a client name, which identifies the client in a transaction log, for one connection.

    A connection that has the name is closed as soon as everything read of it is executed: its
    client, which reconnects, sent that before. Source: AMPS User Guide, Client Names and the
    Transaction Log.

    Raises:
        CommandRefusedError: another user has it.
    """
    engine = session.engine
    if engine.transaction_log is None:
        return
    deadline_s = engine.clock.steady() + _NAME_CLAIM_TIMEOUT_S
    notified: Session | None = None
    while (holder := engine.find_client(client_name)) is not None:
        is_overdue = engine.clock.steady() >= deadline_s
        if holder.is_open and holder.user != session.user:
            raise CommandRefusedError(
                "name in use",
                f"another user is logged on as {client_name!r}",
                disconnect_reason="name in use",
            )
        if holder.is_open and holder is not notified:
            notified = holder
            engine.log.emit("02-0025", client=client_name, user=session.user)
            holder.input.close_when_done("name in use")
        elif is_overdue:
            holder.close("name in use")
            return
        if engine.find_client(client_name) is holder:
            yield False


def log_on_implicitly(session: Session) -> CommandSteps:
    """Log on a connection that sent another command first, where the transport allows it.

    Raises:
        CommandRefusedError: the transport does not allow it.
    """
    message_type = session.connection_context.message_type or ""
    origin = _origin(session, session.connection_name, message_type)
    admission = yield from admit(session, LogonCredentials("", "", explicit=False, origin=origin))
    if admission.challenge is not None:
        raise CommandRefusedError("auth failure", "a logon is required", disconnect_reason="auth")
    if session.connection_context.message_type is None:
        raise CommandRefusedError(
            "invalid message type",
            f"transport {session.connection_context.transport} speaks any message type, so"
            " that a logon has"
            " to name one (header mt) before any other command",
        )
    session.log_on(session.connection_name, session.connection_context.message_type)
    session.engine.audit.report_logon(session.audit_actor, admission.reason)


def _message_type(session: Session, header: Header) -> str:
    fixed, requested = session.connection_context.message_type, header.message_type
    if fixed is not None:
        if requested not in (None, "", fixed):
            raise CommandRefusedError(
                "invalid message type",
                f"transport {session.connection_context.transport} speaks {fixed} only, not"
                f" {requested}",
            )
        return fixed
    if not requested:
        raise CommandRefusedError(
            "invalid message type",
            "the logon names no message type (header mt), which this transport requires",
        )
    message_types = session.engine.settings.message_types
    if requested not in message_types:
        raise CommandRefusedError(
            "invalid message type",
            f"there is no message type {requested!r} here, expected one of"
            f" {', '.join(sorted(message_types))}",
        )
    return requested


def _credentials(
    session: Session, header: Header, client_name: str, message_type: str
) -> LogonCredentials:
    origin = _origin(session, client_name, message_type, header.correlation_id or "")
    return LogonCredentials(
        header.user_id or "", header.password or "", explicit=True, origin=origin
    )


def _origin(
    session: Session, client_name: str, message_type: str, correlation_id: str = ""
) -> LogonOrigin:
    connection_context = session.connection_context
    return LogonOrigin(
        connection_context.transport,
        session.address,
        client_name,
        correlation_id,
        connection_context.certificate_user,
        session.connection_name,
        message_type,
    )


def admit(
    session: Session, credentials: LogonCredentials
) -> Generator[AnswerFuture[Any], None, Admission]:
    """Ask the authentication and entitlement modules to decide on a logon.

    Returns:
        The decision of the authentication module: granted, or a challenge.

    Raises:
        CommandRefusedError: the user may not log on.
    """
    connection_context = session.connection_context
    exchange = session.logon_exchange or ChallengeLimit(
        connection_context.authenticator.begin_logon()
    )
    session.suspend_logon_timeout(begins=True)
    admission = yield from decided(exchange.authenticate(credentials))
    if admission.challenge is not None:
        session.logon_exchange = exchange
        session.suspend_logon_timeout(begins=False)
        return admission
    session.logon_exchange = None
    if not admission.granted:
        session.engine.client_status.publish(
            "logon_failure",
            session,
            client_address=session.address,
            reason=admission.reason,
            auth_id=credentials.user or None,
        )
        _audit_refusal(session, credentials, credentials.user, admission.detail or admission.reason)
        raise CommandRefusedError("auth failure", admission.reason, disconnect_reason="auth")
    permissions = yield from _take_permissions(connection_context.entitlement, admission.user)
    permit = permissions.get_permit(Permission.LOGON, "")
    if not permit.is_allowed:
        permissions.release()
        _audit_refusal(session, credentials, admission.user, permit.rule)
        raise CommandRefusedError(
            "not entitled", "the user has no permission to log on", disconnect_reason="entitlement"
        )
    session.user, session.permissions = admission.user, permissions
    return admission


def _audit_refusal(session: Session, credentials: LogonCredentials, user: str, reason: str) -> None:
    name = credentials.origin.client_name
    actor = session.audit_actor._replace(user=user, client_name=name)
    session.engine.audit.report_refused_logon(actor, reason)


def _take_permissions(
    entitlement: Entitlement, user: str
) -> Generator[AnswerFuture[Any], None, Permissions]:
    """Return a user's permissions; release them if the connection ends meanwhile."""
    pending = entitlement.acquire_permissions(user)
    try:
        return (yield from decided(pending))
    except GeneratorExit:
        on_answer(pending, lambda permissions: permissions.release())
        raise


def _challenge(session: Session, header: Header, reason: str, challenge: Challenge) -> None:
    """Request another logon, with credentials that answer the challenge.

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
