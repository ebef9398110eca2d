"""How a command is refused: whoever sent it is told why, and so is the log."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from amperage.wire.header import Header, command_name
from server.commands.acks import fail, failure, wants
from server.commands.refusal import CommandRefused
from server.journal import JournalUnavailable
from server.topics.refusals import RefusedBeforeError
from server.topics.stored import REASONS
from server.topics.transaction_log import DUPLICATE, DuplicateError

if TYPE_CHECKING:
    from server.commands.persisted_acks import Publisher


def refuse(session: Publisher, header: Header, reason: str, detail: str) -> None:
    """Say to whoever sent a command, and to the log, why it is not carried out.

    A failure is reported in the `processed` ack, and in the `persisted` one, which publishers ask
    for (AMPS Command Reference, publish command: Errors). Who asks for none but those of the end
    gets it as one of these, rather than to wait for ever.
    """
    if wants(header, "processed"):
        fail(session, header, "processed", reason, detail)
    else:
        for ack in ("completed", "stats"):
            fail(session, header, ack, reason, detail)
    log = session.engine.transaction_log
    if log is not None and header.sequence and session.client_hash and reason != DUPLICATE:
        log.refusals.refused(session.client_hash, header.sequence)
    if wants(header, "persisted"):
        refused = failure(header, "persisted", reason, detail)
        if log is None:
            session.send(refused)
        elif reason == DUPLICATE:
            session.persisted_acks.repeated(
                refused, lambda then: log.when_settled(partial(then, None))
            )
        else:
            session.persisted_acks.refused(refused)
    if reason == DUPLICATE:  # what publishers send again after a lost connection
        session.remark("02-0026", sequence=header.sequence)
        return
    session.silent_refusals.add(header, reason, detail)
    entry = {
        "client": session.client_name,
        "command": command_name(header.command),
        "reason": reason,
        "detail": detail,
    }
    if session.logged_on:
        session.engine.log.emit("02-0001", **entry)
    else:  # so it may be anybody, as often as they like
        session.engine.audit.complain("02-0001", session.party, **entry)


def refuse_duplicate(session: Publisher, header: Header) -> None:
    """Refuse a command that is recorded, if its publisher has sent it before.

    Raises:
        CommandRefused: its sequence number is too low, or none.
    """
    log = session.engine.transaction_log
    if log is not None and header.sequence:
        try:
            log.refuse_duplicate(session.client_hash, header.sequence)
        except (DuplicateError, RefusedBeforeError, JournalUnavailable) as error:
            raise CommandRefused(REASONS[type(error)], str(error)) from None
