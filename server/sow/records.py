"""What a SOW topic holds, and what happens to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from server.expressions.context import MessageContext

NANOSECONDS = 1_000_000_000
NANOSECONDS_IN_MICROSECOND = 1_000


class Record(NamedTuple):
    """One record: the current state of one key, or a past one.

    Attributes:
        key: the SOW key as clients see it.
        body: the message.
        topic: the logical topic; for a topic with a Pattern the one that was published to.
        timestamp: when it was last updated, in nanoseconds since 1970.
        expires: when it expires, in nanoseconds since 1970; 0 for never.
        sequence: the place of the update in the instance's order of changes.
        correlation_id: the publisher's correlation id, "" for none.
        bookmark: the update's bookmark (publisher and its sequence), "" for none.
        context: what expressions may ask about it, if that is more than a record says.
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


class Change(NamedTuple):
    """What a command did to one record.

    Attributes:
        key: the SOW key.
        topic: the logical topic.
        previous: the record before, None if there was none.
        record: the record now, None if it is gone.
    """

    key: str
    topic: str
    previous: Record | None
    record: Record | None


def is_later(record: Record | None, client: int, sequence: int) -> bool:
    """Whether a record's state was made by a later message of the same publisher.

    Messages come late where their publisher has moved between instances; what it has published
    since is not undone by them.

    Args:
        record: the record, None if there is none.
        client: what stands for the publisher in bookmarks.
        sequence: the number of its message.
    """
    if record is None:
        return False
    publisher, _, number = record.bookmark.rstrip("|").partition("|")
    return publisher == str(client) and int(number) > sequence


def to_nanoseconds(seconds: float) -> int:
    """The clock's seconds as a record keeps them."""
    return int(seconds * NANOSECONDS)


def to_seconds(nanoseconds: int) -> float:
    """A record's time as the clock tells it."""
    return nanoseconds / NANOSECONDS
