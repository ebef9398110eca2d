"""Refuses commands: sends the reason to the client, and writes it to the log."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from amperage.wire.header import Header, command_name
from server.engine.commands.acks import fail, failure, wants
from server.engine.commands.errors import CommandRefusedError
from server.storage.journal import JournalUnavailableError
from server.topics.refused_sequences import RefusedSequenceError
from server.topics.sow_topic import REASONS
from server.topics.transaction_log import DUPLICATE, DuplicateError

if TYPE_CHECKING:
    from server.engine.session import Session


def refuse(session: Session, header: Header, reason: str, detail: str) -> None:
    """Report the refusal of a command, and its reason, to its client and in the log.

    A failure is reported in the `processed` ack, and in the `persisted` one, which publishers
    request (AMPS Command Reference, publish command: Errors). A client that requests only acks of
    the end gets it as one of these, because it would get no answer otherwise.
    """
    if wants(header, "processed"):
        fail(session, header, "processed", reason, detail)
    else:
        for ack in ("completed", "stats"):
            fail(session, header, ack, reason, detail)
    log = session.engine.transaction_log
    if log is not None and header.sequence and session.client_hash and reason != DUPLICATE:
        log.refused_sequences.record_refusal(session.client_hash, header.sequence)
    if wants(header, "persisted"):
        failure_ack = failure(header, "persisted", reason, detail)
        if log is None:
            session.send(failure_ack)
        elif reason == DUPLICATE:
            session.persisted_acks.report_duplicate(
                failure_ack, lambda callback: log.when_settled(partial(callback, None))
            )
        else:
            session.persisted_acks.report_failure(failure_ack)
    if reason == DUPLICATE:  # publishers send messages again after a lost connection
        session.log_once("02-0026", sequence=header.sequence)
        return
    session.silent_refusals.add(header, reason, detail)
    entry = {
        "client": session.client_name,
        "command": command_name(header.command),
        "reason": reason,
        "detail": detail,
    }
    if session.is_logged_on:
        session.engine.log.emit("02-0001", **entry)
    else:  # any host may cause this at any rate, so it is rate-limited
        session.engine.audit.log_rate_limited("02-0001", session.audit_actor, **entry)


def refuse_duplicate_command(session: Session, header: Header) -> None:
    """Refuse a recorded command, if its publisher has sent it before.

    Raises:
        CommandRefusedError: its sequence number is too low, or none.
    """
    log = session.engine.transaction_log
    if log is not None and header.sequence:
        try:
            log.refuse_duplicate(session.client_hash, header.sequence)
        except (DuplicateError, RefusedSequenceError, JournalUnavailableError) as error:
            raise CommandRefusedError(REASONS[type(error)], str(error)) from None
