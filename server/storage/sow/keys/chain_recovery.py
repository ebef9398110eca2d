"""Completes chains of ids at a start.

A message in the transaction log is safe with the log, but the ids that it added to a chain are in a
separate file, which is put on stable storage with the topic's file. A power failure may remove ids
from its end. So the topic's file notes up to which change the ids are safe; missing ids are in the
messages after that one. The log has all of these. For a topic that is not in the log, the records
hold the last message of each chain: these are the ones that may have been kept while their ids
were lost.

If the file of chained ids did not exist, was damaged or is shorter than it was, the whole log is
read.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np

from server.storage.journal import MESSAGES
from server.storage.journal.format.layout import split_extras

if TYPE_CHECKING:
    from server.storage.journal import Journal
    from server.storage.sow.keys.chaining import ChainingKeys
    from server.storage.sow.topic_records import SowTopicRecords

_BATCH_SIZE: Final = 1000
"""Records that are read between two calls of `pause`."""

ChainTopicLookup = Callable[[str, str], object | None]


def recover_chains(
    sow: SowTopicRecords,
    chains: ChainingKeys,
    journal: Journal | None,
    find_topic: ChainTopicLookup,
    pause: Callable[[], None],
) -> int:
    """Add the ids of a topic's messages that the file of chained ids lacks.

    Args:
        sow: the topic, before its records are brought up to date with the log.
        chains: the topic's key source.
        journal: the log, if the topic is in it.
        find_topic: returns the topic that has the records of a message type and name.
        pause: called repeatedly; its exception ends the recovery.

    Returns:
        The number of ids added.

    Raises:
        RecordStoreError: an id cannot be stored, or a record cannot be read.
    """
    count_before = len(chains)
    stored, file = sow.table.store.header.chain_file_position, chains.file
    after = stored.until_sequence if file.is_intact and file.size >= stored.size else 0
    if journal is not None:
        _learn_from_log(sow, chains, journal, after, find_topic, pause)
    if sow.table.store.last_sequence > after:
        _learn_from_records(sow, chains, after, pause)
    return len(chains) - count_before


def _learn_from_log(
    sow: SowTopicRecords,
    chains: ChainingKeys,
    journal: Journal,
    after: int,
    find_topic: ChainTopicLookup,
    pause: Callable[[], None],
) -> None:
    for entry_range in journal.raw_ranges(after=after):
        pause()
        columns = entry_range.to_array()
        topics = entry_range.definitions.topics
        own_numbers = [
            number
            for number in set(columns["topic"].tolist())
            if find_topic(topics[number].message_type, topics[number].name) is sow
        ]
        mask = np.isin(columns["topic"], own_numbers) & np.isin(columns["kind"], sorted(MESSAGES))
        mask &= columns["sow_key"] != 0
        if not mask.any():
            continue
        own_entries = entry_range.pick(np.flatnonzero(mask).tolist())
        columns = own_entries.to_array()
        keys, lengths = columns["sow_key"].tolist(), columns["extras_length"].tolist()
        for data, length, key in zip(own_entries.split_bodies(), lengths, keys, strict=True):
            chains.learn_key(split_extras(data, length)[0] if length else data, str(key))


def _learn_from_records(
    sow: SowTopicRecords, chains: ChainingKeys, after: int, pause: Callable[[], None]
) -> None:
    store = sow.table.store
    rows = (row for _, row in store.identities())
    while batch := list(islice(rows, _BATCH_SIZE)):
        pause()
        for record in store.read_records(batch):
            if record.sequence > after:
                chains.learn_key(record.body, record.key)
