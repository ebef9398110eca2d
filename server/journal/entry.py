"""What the transaction log records: entries, and the things that many of them have in common."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec


class Kind(IntEnum):
    """What an entry stands for. The numbers are part of the file format."""

    PUBLISH = 1
    DELTA_PUBLISH = 2  # the body is the merged message
    SOW_DELETE = 3
    QUEUE_EVENT = 4  # what it says is the queue's affair
    NO_OP = 5
    DEFINE_TOPIC = 6  # the log's own: what a topic's number stands for in this file
    DEFINE_ORIGIN = 7  # the log's own: what an origin's number stands for in this file
    MISSING = 8  # which numbers of a publisher are not here; see missing.py
    RUNS = 9  # the log's own: which run of the instance has recorded which entries; see runs.py


MESSAGES: Final = frozenset((Kind.PUBLISH, Kind.DELTA_PUBLISH))
"""What a bookmark subscription is given."""

EVENTS: Final = frozenset(
    (Kind.PUBLISH, Kind.DELTA_PUBLISH, Kind.SOW_DELETE, Kind.QUEUE_EVENT, Kind.MISSING)
)
"""What changes state, and is applied again when an instance comes back."""


class Topic(msgspec.Struct, frozen=True, gc=False):
    """A topic as the log knows it."""

    message_type: str
    name: str


class Origin(msgspec.Struct, frozen=True, gc=False):
    """Where entries came from, beyond the publisher.

    Attributes:
        auth_id: the user whom the publishing session was authenticated as.
        path: the instances that a replicated message came through, comma-separated.
    """

    auth_id: str = ""
    path: str = ""


NO_ORIGIN: Final = Origin()
NO_TOPIC: Final = Topic("", "")


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry as it is read back.

    Attributes:
        txid: its number in the log of this instance; entries are numbered without gaps.
        timestamp: microseconds since the Unix epoch, never less than that of the entry before.
        client: the publisher's client hash, or the identity that the server made for it.
        sequence: the publisher's sequence number; the txid if it gave none.
        kind: what the entry stands for.
        topic: where it was published.
        body: the message, verbatim.
        sow_key: the SOW key as a number, 0 if there is none.
        expiration: lifetime in seconds, 0 if there is none.
        correlation_id: as the publisher gave it.
        given_key: the SOW key that the publisher gave, as text.
        source_txid: the number in the log of the instance that it was first published to; for a
            publisher without sequence numbers the hash of its client name.
        source: the hash of the instance that it was replicated from, 0 if it was published here.
        origin: user and replication path.
        is_late: whether a later message of the publisher was in the log when this one came, from
            another instance.
    """

    txid: int
    timestamp: int
    client: int
    sequence: int
    kind: int
    topic: Topic
    body: bytes
    sow_key: int
    expiration: int
    correlation_id: bytes
    given_key: bytes
    source_txid: int
    source: int
    origin: Origin
    is_late: bool = False

    @property
    def bookmark(self) -> str:
        """The name of this entry among all of this and other instances."""
        return f"{self.client}|{self.sequence}|"
