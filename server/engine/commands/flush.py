"""flush: acknowledge that all earlier commands of the connection have been processed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from amperage.wire.header import Header
from server.engine.commands.acks import acknowledge, wants
from server.engine.commands.publish import acknowledge_settled

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.storage.sow.store import RecordStoreError, StoreCallback


def handle(session: Session, header: Header, _body: bytes) -> None:
    """Answer once all earlier commands of the connection are processed.

    Commands of a connection are executed in order, so by now they are (AMPS Command Reference,
    flush command). By the ack of type persisted, their messages to topics with records and their
    acknowledgements of queue messages are on stable storage, and settled where other instances have
    to acknowledge them.

    With the option `refusals`, the ack of type completed reports the publishes that were refused
    since the last such flush and that requested no ack.
    """
    acknowledge(session, header, "processed")
    report = session.silent_refusals.take_report() if _asks_for_refusals(header) else {}
    acknowledge(session, header, "completed", **report)
    if wants(header, "persisted"):
        acknowledge_settled(session, header, partial(_when_settled, session))


def _asks_for_refusals(header: Header) -> bool:
    return wants(header, "completed") and "refusals" in (header.options or "").split(",")


def _when_settled(session: Session, callback: StoreCallback) -> None:
    """Call back when all messages so far are on stable storage, or some may not get there."""
    sow_registry, log = session.engine.sow_registry, session.engine.transaction_log
    queues = session.engine.topics.queues
    if log is None:
        sow_registry.when_settled(sow_registry.topics, callback)
        return

    def records_settled(problem: RecordStoreError | None) -> None:
        if queues is None:
            log.when_settled(partial(callback, problem))
        else:
            queues.when_recorded(partial(log.when_settled, partial(callback, problem)))

    unrecorded = [sow for sow in sow_registry.topics if not sow_registry.is_journaled(sow)]
    sow_registry.when_settled(unrecorded, records_settled)
