"""The records of a SOW topic, and their changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from server.expressions.message_context import MessageContext

NANOSECONDS = 1_000_000_000
NANOSECONDS_IN_MICROSECOND = 1_000


class Record(NamedTuple):
    """The current state of one key, or a past one.

    Attributes:
        key: the SOW key as clients see it.
        body: the message.
        topic: the logical topic; for a topic with a Pattern the one that was published to.
        timestamp: the time of its last update, in nanoseconds since 1970.
        expires: the time of its expiry, in nanoseconds since 1970; 0 for never.
        sequence: the place of the update in the instance's order of changes.
        correlation_id: the publisher's correlation id, "" for none.
        bookmark: the update's bookmark (publisher and its sequence), "" for none.
        context: the context that expressions can read, if it is more than the record's fields.
    """

    key: str
    body: bytes
    topic: str
    timestamp: int = 0
    expires: int = 0
    sequence: int = 0
    correlation_id: str = ""
    bookmark: str = ""
    context: MessageContext | None = None


class RecordChange(NamedTuple):
    """The effect of a command on one record.

    Attributes:
        key: the SOW key.
        topic: the logical topic.
        previous: the record before, None if there was none.
        record: the record now, None if it is deleted.
    """

    key: str
    topic: str
    previous: Record | None
    record: Record | None


def is_later(record: Record | None, client: int, sequence: int) -> bool:
    """Return whether a record's state comes from a later message of the same publisher.

    Messages come late when their publisher has moved between instances; they do not undo its later
    publishes.

    Args:
        record: the record, None if there is none.
        client: the number that represents the publisher in bookmarks.
        sequence: the number of its message.
    """
    if record is None:
        return False
    publisher, _, number = record.bookmark.rstrip("|").partition("|")
    return publisher == str(client) and int(number) > sequence


def to_nanoseconds(seconds: float) -> int:
    """Return the clock's seconds as nanoseconds, the unit of records."""
    return int(seconds * NANOSECONDS)


def to_seconds(nanoseconds: int) -> float:
    """Return a record's time in the clock's seconds."""
    return nanoseconds / NANOSECONDS
