"""Entries of the transaction log, and the topics and origins that many of them share."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec


class JournalEntryKind(IntEnum):
    """The kind of an entry. The numbers are part of the file format."""

    PUBLISH = 1
    DELTA_PUBLISH = 2  # the body is the merged message
    SOW_DELETE = 3
    QUEUE_EVENT = 4  # the queue defines its body
    NO_OP = 5
    DEFINE_TOPIC = 6  # internal: defines a topic's number in this file
    DEFINE_ORIGIN = 7  # internal: defines an origin's number in this file
    MISSING = 8  # numbers of a publisher that are not in the log; see sequence_gaps.py
    RUNS = 9  # internal: the runs of the instance, by first entry; see runs.py


MESSAGES: Final = frozenset((JournalEntryKind.PUBLISH, JournalEntryKind.DELTA_PUBLISH))
"""The kinds of entries that a bookmark subscription receives."""

EVENTS: Final = frozenset(
    (
        JournalEntryKind.PUBLISH,
        JournalEntryKind.DELTA_PUBLISH,
        JournalEntryKind.SOW_DELETE,
        JournalEntryKind.QUEUE_EVENT,
        JournalEntryKind.MISSING,
    )
)
"""The kinds of entries that change state, and are applied again at recovery."""


class JournalTopic(msgspec.Struct, frozen=True, gc=False):
    """A topic as the log names it."""

    message_type: str
    name: str


class JournalOrigin(msgspec.Struct, frozen=True, gc=False):
    """The origin of entries, beyond the publisher.

    Attributes:
        auth_id: the authenticated user of the publishing session.
        path: the instances that a replicated message came through, comma-separated.
    """

    auth_id: str = ""
    path: str = ""


NO_ORIGIN: Final = JournalOrigin()
NO_TOPIC: Final = JournalTopic("", "")


class JournalEntry(msgspec.Struct, frozen=True, gc=False):
    """One entry as read from the log.

    Attributes:
        txid: its number in the log of this instance; entries are numbered without gaps.
        timestamp: microseconds since the Unix epoch, never less than that of the entry before.
        client: the publisher's client hash, or the identity that the server made for it.
        sequence: the publisher's sequence number; the txid if it gave none.
        kind: the kind of entry, see `JournalEntryKind`.
        topic: the topic that it was published to.
        body: the message, verbatim.
        sow_key: the SOW key as a number, 0 if there is none.
        expiration: lifetime in seconds, 0 if there is none.
        correlation_id: as the publisher gave it.
        given_key: the SOW key that the publisher gave, as text.
        source_txid: the txid in the log of the instance that it was first published to; for a
            publisher without sequence numbers the hash of its client name.
        source: the hash of the instance that it was replicated from, 0 if it was published here.
        origin: user and replication path.
        is_late: a later message of the publisher was in the log when this one came from another
            instance.
    """

    txid: int
    timestamp: int
    client: int
    sequence: int
    kind: int
    topic: JournalTopic
    body: bytes
    sow_key: int
    expiration: int
    correlation_id: bytes
    given_key: bytes
    source_txid: int
    source: int
    origin: JournalOrigin
    is_late: bool = False

    @property
    def bookmark(self) -> str:
        """The name of this entry, unique among all instances."""
        return f"{self.client}|{self.sequence}|"
