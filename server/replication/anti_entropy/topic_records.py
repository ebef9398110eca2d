"""The records of a topic as comparisons see them, and the choice of the records to compare.

Compared are the records that one instance sends to the other: both determine them from the
description that the sending one has sent of itself. Topics that are replicated with a filter are
not compared, for the other instance lacks the records that the filter excludes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from config_schema.regex import matches
from config_schema.selection import Coverage, TopicPattern
from server.replication.anti_entropy.digests import RecordPortion, RecordState, digest_of
from server.storage.sow.record_table import CURRENT
from server.storage.sow.store import identity_of

if TYPE_CHECKING:
    from config_schema.topology import InstanceDescription
    from config_schema.topology.description import Destination
    from server.storage.sow.records import Record
    from server.storage.sow.topic_records import SowTopicRecords

_ROW_BATCH_SIZE: Final = 64
_MAX_NAMES: Final = 10_000


class TopicRecords:
    """The records of a topic; see `server.replication.anti_entropy.digests.ComparableRecords`.

    Args:
        sow: the topic.
        is_compared: returns whether a logical topic is compared.
    """

    def __init__(self, sow: SowTopicRecords, is_compared: Callable[[str], bool]) -> None:
        self._table: Final = sow.table
        self._has_pattern: Final = sow.table.options.has_pattern
        self._is_compared: Final = is_compared

    def read_portion(self, position: int) -> RecordPortion:
        """See `ComparableRecords.read_portion`; positions are rows.

        Raises:
            RecordStoreError: a record cannot be read.
        """
        table, is_compared, has_pattern = self._table, self._is_compared, self._has_pattern
        row_states, store = table.row_states, table.store
        end = min(position + _ROW_BATCH_SIZE, len(row_states))
        identities: list[str] = []
        bodies: list[bytes] = []
        for row in range(position, end):
            if row_states[row] == CURRENT:
                record = store.read_record(row)
                if not has_pattern or is_compared(record.topic):
                    identities.append(identity_of(record, pattern=has_pattern))
                    bodies.append(record.body)
        return RecordPortion(identities, bodies, end if end < len(row_states) else None)

    def record_state(self, identity: str) -> RecordState:
        """See `ComparableRecords.record_state`.

        Raises:
            RecordStoreError: the record cannot be read.
        """
        record = self._table.get(identity)
        if record is None or (self._has_pattern and not self._is_compared(record.topic)):
            return RecordState()
        client, sequence = _name_of(record)
        return RecordState(digest_of(identity, record.body), client, sequence, bool(record.expires))


def _name_of(record: Record) -> tuple[int, int]:
    """Return identity and number of the message of a record; zeros if they are not known."""
    client, _, rest = record.bookmark.partition("|")
    sequence = rest.partition("|")[0]
    if client.isdigit() and sequence.isdigit():
        return int(client), int(sequence)
    return 0, 0


def is_kept_by(sow: SowTopicRecords, description: InstanceDescription) -> bool:
    """Return whether another instance has the records of a topic, too, in the same way."""
    return any(
        (definition.kind, definition.name, definition.message_type, definition.pattern)
        == ("Topic", sow.name, sow.type_name, sow.spec.pattern)
        for definition in description.stored
    )


def goes_from(
    source: InstanceDescription,
    to: InstanceDescription,
    destination: str | None,
    message_type: str,
) -> Callable[[str], bool]:
    """Return a function that returns whether an instance sends all messages of a topic to another.

    Args:
        source: the sending instance.
        to: the receiving instance.
        destination: its name, if that is known. Otherwise it is the destination with the name of
            the instance, or else all destinations for its group must send the topic.
        message_type: of the topics.
    """
    coverages = [
        Coverage(topic.selection for topic in one.topics if topic.filter is None)
        for one in _destinations(source, to, destination)
    ]

    stored = [one for one in source.stored if one.message_type == message_type]
    single = {one.name for one in stored}
    patterns = [(one.pattern, one.name) for one in stored if one.pattern is not None]

    @lru_cache(maxsize=_MAX_NAMES)
    def is_sent(name: str) -> bool:
        keepers = (
            ()
            if name in single
            else (name_pattern for text, name_pattern in patterns if matches(text, name))
        )
        topics = [
            (TopicPattern(one, message_type, is_expression=False),) for one in (name, *keepers)
        ]
        return bool(coverages) and all(any(map(coverage.covers, topics)) for coverage in coverages)

    return is_sent


def _destinations(
    source: InstanceDescription, to: InstanceDescription, name: str | None
) -> list[Destination]:
    destination_name = to.name if name is None else name
    named = [
        destination for destination in source.destinations if destination.name == destination_name
    ]
    return named or [destination for destination in source.destinations if destination.is_for(to)]
