"""Moves records to the SOW keys that their topic makes now, if theirs were made differently.

A SOW key identifies a record without a check of the body. After a change of the `Key`, the
`KeyDomain` or the topic's name, a message would therefore replace any record that happens to have
the message's key. So a start moves each record to the key that the topic makes for its body.

Several records may then have one key. The newest gets it. The others are *set aside*: they keep
their content under the key `OLD.SEQUENCE`, a text, which no message can have if keys are numbers.
The same applies to records without any field of the key. Nothing is removed, and a start with the
former `Key` finds all keys again. Past states move with their record.

The entries of the log keep the keys of their time. If all records of a topic are made from the
log, each gets the present key at once (`LogRekeyer` in log_apply.py).

A move writes the record under its new key before it removes the old one. If a crash comes in
between, the next start finds two records of one sequence, and removes the one with the wrong key.

Checking all keys takes a third of the start's time, so a file notes the keys for which it was found
to be in order, and is not checked again while these stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from itertools import groupby, islice
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

from server.storage.sow.keys.key_source import FieldKeys
from server.storage.sow.records import Record
from server.storage.sow.topic_records import SowTopicRecords

_BATCH_SIZE: Final = 1000
"""Records that are checked between two calls of `pause`."""


class RekeyResult(NamedTuple):
    """The changes of the SOW keys of a topic at a start.

    Attributes:
        moved_count: records that got the key that the topic makes for them.
        set_aside_count: records that are set aside, also by earlier starts.
    """

    moved_count: int = 0
    set_aside_count: int = 0


def rekey_records(
    sow: SowTopicRecords, wait_for_commits: Callable[[], None], pause: Callable[[], None]
) -> RekeyResult:
    """Move the records of a topic to the SOW keys that it makes now.

    Args:
        sow: a topic that has been recovered, and is not in use.
        wait_for_commits: waits until every requested commit is done.
        pause: called repeatedly; its exception ends the work, which another start continues.

    Returns:
        The changes. If records are set aside, queries cannot find records by their keys.

    Raises:
        RecordStoreError: there is no space for a record under its new key, or one cannot be read.
    """
    table = sow.table
    if not derives_keys_from_fields(sow):
        return RekeyResult()
    digest = _key_scheme_digest(sow)
    if table.store.header.key_scheme_digest == digest:
        return RekeyResult()
    misplaced = dict(_find_misplaced(sow, pause))
    result = RekeyResult()
    if misplaced:
        plan = _RekeyPlan(sow, misplaced)
        table.store.header.rekey_sequence = table.store.last_sequence
        table.store.commit()  # the log does not have the moves
        wait_for_commits()
        table.rekey_records(plan.plan_moves(pause))
        result = plan.result
    if result.set_aside_count:
        table.key_hash = None
    table.store.header.key_scheme_digest = 0 if result.set_aside_count else digest
    if misplaced:
        table.store.commit()
        wait_for_commits()
    return result


def may_need_rekeying(sow: SowTopicRecords) -> bool:
    """Return whether records may have other SOW keys than a topic makes now."""
    table = sow.table
    return (
        len(table) > 0
        and derives_keys_from_fields(sow)
        and table.store.header.key_scheme_digest != _key_scheme_digest(sow)
    )


def derives_keys_from_fields(sow: SowTopicRecords) -> bool:
    """Return whether the SOW keys of records follow from their fields."""
    fields = sow.table.options.key_fields
    return bool(fields) and isinstance(sow.key_source(sow.name), FieldKeys)


def displaced_key(key: str, sequence: int) -> str:
    """Return the key of a record that is set aside."""
    return f"{key}.{sequence}" if key.isdecimal() else key


def current_record_keys(
    sow: SowTopicRecords, topic: str, bodies: list[bytes], recorded: Sequence[str]
) -> list[str]:
    """Return the SOW keys that records made from the log get.

    Args:
        sow: a topic that makes keys of fields.
        topic: the topic that the messages were published to.
        bodies: the messages.
        recorded: the keys that they had.
    """
    null_key = str(_source(sow, topic).null_key)
    keys = derive_record_keys(sow, topic, bodies)
    return [
        now or (own if own == null_key else displaced_key(own, 0))
        for own, now in zip(recorded, keys, strict=True)
    ]


def derive_record_keys(sow: SowTopicRecords, topic: str, bodies: list[bytes]) -> list[str | None]:
    """Return the SOW keys that a topic makes for bodies; None for those without any key field.

    Args:
        sow: a topic that makes keys of fields.
        topic: the topic that the messages were published to.
        bodies: the messages.
    """
    source = _source(sow, topic)
    return [
        None if number == source.null_key else str(number) for number in source.key_numbers(bodies)
    ]


def _find_misplaced(
    sow: SowTopicRecords, pause: Callable[[], None]
) -> Iterator[tuple[str, str | None]]:
    """Yield the records with other keys than those that the topic makes for them.

    Returns:
        The identity of each, and the new one; None if it has no key field.
    """
    table, records = sow.table, sow.table.store.identities()
    while batch := list(islice(records, _BATCH_SIZE)):
        for topic, group in groupby(batch, lambda item: _topic_of(sow, item[0])):
            group_rows = list(group)
            null_identity = table.make_identity(str(_source(sow, topic).null_key), topic)
            bodies = table.store.read_bodies([row for _, row in group_rows])
            for (identity, _), key in zip(
                group_rows, derive_record_keys(sow, topic, bodies), strict=True
            ):
                if key is None:
                    if identity != null_identity:
                        yield identity, None
                elif identity != (target := table.make_identity(key, topic)):
                    yield identity, target
        pause()


def _source(sow: SowTopicRecords, topic: str) -> FieldKeys:
    source = sow.key_source(topic)
    assert isinstance(source, FieldKeys)  # noqa: S101 - others make no keys of fields
    return source


def _topic_of(sow: SowTopicRecords, identity: str) -> str:
    return identity.partition("\0")[0] if sow.is_container else sow.name


class _RekeyPlan:
    """The new keys of records.

    Args:
        sow: the topic.
        misplaced: see `_target_by_identity`.

    Attributes:
        result: the sum of the moves, once all are made.
    """

    def __init__(self, sow: SowTopicRecords, misplaced: dict[str, str | None]) -> None:
        self._table: Final = sow.table
        self._moved_to: Final[dict[str, str]] = {}
        # Records left by a crash while they were set aside.
        self._interrupted: Final = [
            identity for identity in misplaced if self._displaced_identity(identity) in misplaced
        ]
        interrupted = set(self._interrupted)
        self._target_by_identity: Final = {
            identity: misplaced[identity] for identity in misplaced if identity not in interrupted
        }
        self._winners: Final = self._choose_winners(interrupted)
        self.result = RekeyResult()

    def _choose_winners(self, interrupted: Set[str]) -> dict[str, tuple[int, bool, str]]:
        """Return, for each wanted identity, sequence and identity of the record that gets it."""
        winners: dict[str, tuple[int, bool, str]] = {}
        for identity, target in self._target_by_identity.items():
            if target is None:
                continue
            candidate = (self._read_record(identity).sequence, False, identity)
            winners[target] = max(winners.get(target, candidate), candidate)
        for target, winner in winners.items():
            holder = self._table.get(target)
            if (
                holder is not None
                and target not in interrupted
                and target not in self._target_by_identity
            ):
                winners[target] = max(winner, (holder.sequence, True, target))
        return winners

    def _read_record(self, identity: str) -> Record:
        """Return a record, wherever it has been moved to."""
        record = self._table.get(self._moved_to.get(identity, identity))
        assert record is not None  # noqa: S101 - nothing is removed before it is moved
        return record

    def plan_moves(self, pause: Callable[[], None]) -> Iterator[tuple[str, Record]]:
        """Yield the moves one by one, each when the one before has been made."""
        moved_count = set_aside_count = 0
        for identity in self._interrupted:
            yield self._displace(identity)
        for wanted_identity, (sequence, _, identity) in self._winners.items():
            holder = self._table.get(wanted_identity)
            if identity != wanted_identity and holder is not None and holder.sequence != sequence:
                set_aside_count += (
                    not {wanted_identity, self._displaced_identity(wanted_identity)}
                    & self._target_by_identity.keys()
                )
                yield self._displace(wanted_identity)
                pause()
        for wanted_identity, (_, _, identity) in self._winners.items():
            if identity != wanted_identity:
                moved_count += 1
                yield self._make_move(identity, _key_of(wanted_identity))
                pause()
        for identity, target in self._target_by_identity.items():
            if target is not None:
                sequence, _, winner = self._winners[target]
                if winner == identity:
                    continue
                if sequence == self._read_record(identity).sequence:
                    yield self._make_move(
                        identity, _key_of(target)
                    )  # a crash came between its steps
                    continue
            set_aside_count += 1
            if _key_of(self._moved_to.get(identity, identity)).isdecimal():
                yield self._displace(identity)
            pause()
        self.result = RekeyResult(moved_count, set_aside_count)

    def _displaced_identity(self, identity: str) -> str | None:
        """Return the identity that a record gets when it is set aside; None if it is aside."""
        record = self._read_record(identity)
        key = displaced_key(record.key, record.sequence)
        return None if key == record.key else self._table.make_identity(key, record.topic)

    def _displace(self, identity: str) -> tuple[str, Record]:
        record = self._read_record(identity)
        return self._make_move(identity, displaced_key(record.key, record.sequence))

    def _make_move(self, identity: str, key: str) -> tuple[str, Record]:
        """Return the present identity of a record, and the record with its new key."""
        record = self._read_record(identity)._replace(key=key)
        current_identity = self._moved_to.get(identity, identity)
        self._moved_to[identity] = self._table.make_identity(key, record.topic)
        return current_identity, record


def _key_of(identity: str) -> str:
    return identity.rpartition("\0")[2]


def _key_scheme_digest(sow: SowTopicRecords) -> int:
    """Return a digest of the way in which a topic makes SOW keys; never 0."""
    options = sow.table.options
    scheme = repr((sow.type_name, options.key_domain, options.key_fields))
    return xxh3_64_intdigest(scheme.encode(errors="surrogatepass")) or 1
