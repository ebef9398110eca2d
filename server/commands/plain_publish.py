"""Publishes that say nothing but where their body goes: what a session remembers of a header."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.commands.acks import SequencedAcks

if TYPE_CHECKING:
    from server.topics.table import AnyTopic


@dataclass(frozen=True, slots=True, eq=False)
class PlainPublish:
    """What a remembered header asks for.

    Attributes:
        topic: where bodies with this header go.
        ack_types: the types of ack that it asks for.
        acks: makes those that can be sent at once, None if there are none.
        late_acks: makes those that wait until messages are on stable storage, None if there are
            none.
        conflates: whether these are conflated instead, see `PersistedAcks`.
        is_numbered: whether the numbers of messages matter to anybody.
    """

    topic: AnyTopic
    ack_types: Sequence[str]
    acks: SequencedAcks | None
    late_acks: SequencedAcks | None
    conflates: bool
    is_numbered: bool


def plain_publish(
    topic: AnyTopic, acks: Sequence[str], *, is_numbered: bool, has_log: bool
) -> PlainPublish:
    """What a header asks for.

    Args:
        topic: where bodies with it go.
        acks: the types of ack that it asks for.
        is_numbered: whether it has a sequence number.
        has_log: whether there is a transaction log, where `persisted` acks are conflated.
    """
    conflates = "persisted" in acks and has_log
    late = [ack for ack in acks if ack == "persisted" and (topic.keeps_messages or conflates)]
    prompt = [ack for ack in acks if ack not in late]
    return PlainPublish(
        topic,
        acks,
        SequencedAcks(prompt) if prompt else None,
        SequencedAcks(late) if late and not conflates else None,
        conflates,
        is_numbered and (bool(acks) or topic.is_journaled),
    )
