"""Brings queues back from the transaction log: their messages, and what became of these.

The state of a queue is the fold of the log: the messages of the topics that feed it, and its own
events, in one order. It is taken in by the same calls as when it was recorded.

Source: AMPS User Guide, Startup and Recovery for Queues.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from server.journal import MESSAGES, Kind
from server.queues import decode
from server.topics.queue_shelf import recorded_of

if TYPE_CHECKING:
    from server.journal import Entry, Journal
    from server.journal import Topic as TopicName
    from server.topics.queue_table import Queues
    from server.topics.queue_topic import QueueTopic


def recover_queues(queues: Queues, journal: Journal, check: Callable[[], None]) -> None:
    """Take in what the log has.

    Args:
        queues: the queues, which are empty.
        journal: the log.
        check: called between entries; what it raises ends the recovery.
    """
    fed: dict[TopicName, list[QueueTopic]] = {}
    for entry in journal.entries():
        check()
        if entry.kind in MESSAGES:
            concerned = fed.get(entry.topic)
            if concerned is None:
                concerned = queues.fed_by(entry.topic.message_type, entry.topic.name)
                fed[entry.topic] = concerned
            if concerned:
                recorded = recorded_of(entry)
                for queue in concerned:
                    queue.recover(recorded)
        elif entry.kind == Kind.QUEUE_EVENT:
            _replay(queues, entry)
    for queue in queues:
        queue.finish_recovery()


def _replay(queues: Queues, entry: Entry) -> None:
    queue = queues.find(entry.topic.message_type, entry.topic.name)
    if queue is None:
        return  # it has been taken out of the configuration
    try:
        queue.replay(decode(entry.body))
    except msgspec.MsgspecError:
        return
