"""publish and delta_publish: publishes a message to a topic.

A topic with records stores the message, or for a delta, the record with the delta applied. A
message that cannot be stored is refused. A delta published to a topic that keeps no records is a
message like any other (AMPS Command Reference, delta_publish command).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from amperage.wire.header import Header
from server.engine.commands.acks import acknowledge, acknowledge_late, wants
from server.engine.commands.errors import CommandRefusedError
from server.engine.commands.parsing.topic_selection import check_name
from server.topics.subscriptions.delivery.envelope import Envelope
from server.topics.topic import RESERVED_TOPICS, is_reserved

if TYPE_CHECKING:
    from server.engine.commands.publish_target import PublishTarget
    from server.engine.session import Session
    from server.topics.sow_registry import DurabilityWait

_MAX_LIFE: Final = (1 << 32) - 1  # seconds, some 136 years

ACKS: Final = ("processed", "completed", "persisted")
"""The acks of a publish, in the order in which they are sent."""


def handle(session: Session, header: Header, body: bytes) -> None:
    """Deliver a message to the subscribers of its topic.

    Raises:
        CommandRefusedError: the topic is missing, reserved or not available, or the user may not
            publish to it.
    """
    topic = header.topic
    if not topic:
        raise CommandRefusedError("invalid topic", "the publish names no topic (header t)")
    if is_reserved(topic):
        raise CommandRefusedError(
            "invalid topic", f"topics that begin with {RESERVED_TOPICS} are the server's own"
        )
    check_name(topic)
    target = session.publish_targets.find_target(topic)
    envelope = Envelope(
        session,
        session.last_input_s,
        header.correlation_id,
        header.sow_key,
        lifetime(header.expiration),
        is_delta=header.command == "delta_publish",
        sequence=header.sequence or 0,
    )
    for refusal in target.publish([body], envelope):
        raise CommandRefusedError(refusal.reason, refusal.detail)
    if header.acks is not None:
        for ack in ("processed", "completed"):
            acknowledge(session, header, ack, sequence=header.sequence)
        if wants(header, "persisted"):
            acknowledge_settled(
                session, header, target.when_settled, is_certain=target.is_journaled
            )


def acknowledge_settled(
    session: Session,
    header: Header,
    when_settled: DurabilityWait,
    *,
    is_certain: bool = False,
) -> None:
    """Acknowledge a command as soon as it is on stable storage, if its sender is still connected.

    Args:
        session: the connection that sent it.
        header: its header.
        when_settled: calls back when it is settled.
        is_certain: whether the callback never reports a problem.
    """
    if session.engine.transaction_log is None:
        when_settled(partial(acknowledge_late, session, header))
    else:
        session.persisted_acks.acknowledge_command(header, when_settled, is_certain=is_certain)


def lifetime(expiration: int | None) -> int | None:
    """Return a message's lifetime in seconds by its header's expiration; None without one."""
    return None if expiration is None else min(expiration, _MAX_LIFE)


def plain_target(session: Session, header: Header) -> PublishTarget | None:
    """Return the target of a publish that requested only delivery, and plain acks.

    Returns:
        The target; None if it requested more.
    """
    if not acks_are_plain(session, header) or session.engine.log.enabled("12-0001"):
        return None
    return session.publish_targets.find_target(header.topic or "")


def acks_are_plain(session: Session, header: Header) -> bool:
    """Return whether the acks of a command follow from its command id and sequence number.

    In the transaction log, only numbers are acknowledged together.
    """
    if header.acks is None:
        return True
    is_numbered = header.sequence is not None or session.engine.transaction_log is None
    return (
        header.command_id != ""
        and not wants(header, "received")
        and (is_numbered or not wants(header, "persisted"))
    )
