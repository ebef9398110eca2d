"""Takes in what other instances have recorded of a topic with records.

It is recorded as it is, but for SOW keys: where queries find records by the fields that keys are
made from, this topic's own `Key` decides. Nothing is preprocessed, enriched or merged again, and a
message lives as long as it says.

A message that comes late, behind later ones of its publisher, does not undo these: it is recorded,
and the record stays as it is.

Source: AMPS User Guide, Replicating Messages Between Instances; Message Enrichment; Replication and
Expiration.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from server.journal import MESSAGES, Kind, each
from server.message_types.base import BodyError
from server.replication.columns import picked
from server.sow.keys import KeyRefusedError
from server.sow.records import NANOSECONDS, NANOSECONDS_IN_MICROSECOND, Record, is_later
from server.sow.store import StoreError
from server.subscriptions.record_delivery import DELETED, MATCH
from server.topics.arrivals import AT_ONCE
from server.topics.interleaved import Drafts, OneByOneError
from server.topics.topic_journal import split_key

if TYPE_CHECKING:
    from server.journal import AppendedRun, Content
    from server.sow.records import Change
    from server.sow.topic import SowTopic
    from server.subscriptions.envelope import Envelope
    from server.topics.arrivals import Arrivals, Entries
    from server.topics.interleaved import Failure
    from server.topics.topic_journal import TopicJournal


class Announcer(Protocol):
    """Tells of changes; see `TopicWithRecords`."""

    @property
    def has_subscriptions(self) -> bool:
        """Whether anybody subscribes."""

    @property
    def has_followers(self) -> bool:
        """Whether other topics are made from this one."""

    def announce(self, change: Change, envelope: Envelope, reason: str) -> None:
        """Tell of a change."""


class Receiving:
    """Records, applies and announces what has come for one topic.

    Args:
        sow: the records.
        name: the topic's name.
        journal: records its messages.
        announcer: tells of changes.
    """

    __slots__ = ("_announcer", "_journal", "_name", "_own_keys", "_sow")

    def __init__(
        self, sow: SowTopic, name: str, journal: TopicJournal, announcer: Announcer
    ) -> None:
        self._sow: Final = sow
        self._name: Final = name
        self._journal: Final = journal
        self._announcer: Final = announcer
        self._own_keys: Final = bool(sow.table.options.key_fields)

    def take_in(self, arrivals: Arrivals) -> None:
        """Take in some of what has come, from the front."""
        if arrivals.kind in MESSAGES:
            self._take_in_messages(arrivals)
        elif arrivals.kind is Kind.SOW_DELETE:
            self._take_in_deletion(arrivals)
        else:
            self._journal.append_copies(arrivals, arrivals.content())

    def draft(self, entries: Entries, positions: Sequence[int]) -> Drafts:
        """What messages come to, which are recorded together with those of other topics.

        Raises:
            OneByOneError: not all of them can be taken in at once.
        """
        records, problem = self._drafts_of(entries, positions)
        if problem is not None:
            raise OneByOneError(str(problem))
        if self._own_keys:
            if entries.has_extras and any(entries.extras(position)[1] for position in positions):
                raise OneByOneError("the key of one of them is not recorded here")
            return Drafts(records, [int(record.key) for record in records])
        keys = (entries.sow_key(position) for position in positions)
        if any(record.key != key for record, key in zip(records, keys, strict=True)):
            raise OneByOneError("the key of one of them is another one here")
        return Drafts(records)

    def apply(
        self, entries: Entries, positions: Sequence[int], drafts: Drafts, appended: AppendedRun
    ) -> Sequence[Failure]:
        """Apply and announce messages that have been drafted and recorded."""
        if self._journal.has_feeds:
            keys = drafts.sow_keys or picked(entries.run.sow_keys, positions)
            self._journal.feed(entries, positions[0], appended, keys)
        return self._apply(entries, positions, drafts.records, appended)

    # messages

    def _take_in_messages(self, arrivals: Arrivals) -> None:
        start = arrivals.position
        most = 1 if arrivals.has_extras else AT_ONCE
        positions = range(start, min(start + most, len(arrivals.bodies)))
        drafts, problem = self._drafts_of(arrivals, positions)
        if problem is not None and not drafts:
            arrivals.cannot(problem)
        drafts = self._with_room(drafts, arrivals)
        if not drafts:
            return
        content = self._content_of(arrivals, drafts)
        with self._sow.table.store.undisturbed():
            appended = self._journal.append_copies(arrivals, content)
            positions = positions[: len(appended.txids)]
            arrivals.unapplied += self._apply(arrivals, positions, drafts, appended)

    def _drafts_of(
        self, entries: Entries, positions: Sequence[int]
    ) -> tuple[list[Record], Exception | None]:
        """What messages come to, as many as can be recorded in one step, and why not the next.

        Their records have no moment yet, and no place in the order of changes.
        """
        bodies = entries.bodies
        sow, own, name = self._sow, self._own_keys, self._name
        key_of = sow.key_source(name).key
        lifetimes = picked(entries.run.expirations, positions)
        drafts: list[Record] = []
        try:
            for position, lifetime in zip(positions, lifetimes, strict=True):
                body = bodies[position]
                key = None if own else entries.sow_key(position)
                if key is None:
                    key = key_of(body, None)
                else:
                    sow.learn(body, key)
                mark = entries.correlation_id(position)
                drafts.append(Record(key, body, name, 0, lifetime * NANOSECONDS, 0, mark))
        except (BodyError, KeyRefusedError, StoreError) as error:
            return drafts, error
        return drafts, None

    def _with_room(self, drafts: list[Record], arrivals: Arrivals) -> list[Record]:
        """The first of some records, as many as there is room for: what is recorded comes true."""
        while drafts:
            try:
                self._sow.table.make_room(drafts)
            except StoreError as error:
                if len(drafts) == 1:
                    arrivals.cannot(error)
                drafts = drafts[: len(drafts) // 2]
            else:
                break
        return drafts

    def _content_of(self, arrivals: Arrivals, drafts: Sequence[Record]) -> Content:
        """The next messages as they are recorded, with the SOW keys that they have here."""
        first = drafts[0].key
        if arrivals.has_extras:
            is_same = first == arrivals.sow_key(arrivals.position)
            return arrivals.content(1) if is_same else arrivals.with_key(*split_key(first))
        if self._own_keys:
            numbers = [int(draft.key) for draft in drafts]
        else:
            keys = (split_key(draft.key) for draft in drafts)
            numbers = [number for number, _ in takewhile(_is_number, keys)]
        if not numbers:
            return arrivals.with_key(*split_key(first))
        content = arrivals.content(len(numbers))
        return content if content.sow_keys == numbers else content._replace(sow_keys=numbers)

    def _apply(
        self,
        entries: Entries,
        positions: Sequence[int],
        drafts: Sequence[Record],
        appended: AppendedRun,
    ) -> list[Failure]:
        """Apply and announce messages that have been recorded; returns what has gone wrong."""
        apply, announcer = self._sow.apply, self._announcer
        failed: list[Failure] = []
        envelope: Envelope | None = None
        is_heard = announcer.has_subscriptions or announcer.has_followers
        moment = appended.timestamp * NANOSECONDS_IN_MICROSECOND
        flags = each(appended.flags, len(appended.txids))
        for position, txid, is_late, draft in zip(
            positions, appended.txids, flags, drafts, strict=False
        ):
            key, body, topic, _, expires, _, correlation_id, _, _ = draft
            if is_late and self._is_superseded(entries, position, draft):
                continue
            if expires:
                expires += moment
            bookmark = entries.bookmark(position)
            record = Record(key, body, topic, moment, expires, txid, correlation_id, bookmark)
            try:
                change = apply(record)
            except StoreError as error:
                failed.append((position, error))
                continue
            if is_heard:
                if envelope is None or entries.has_extras:
                    envelope = entries.envelope(position, appended.timestamp)
                envelope.bookmark = bookmark
                announcer.announce(change, envelope, MATCH)
        return failed

    def _is_superseded(self, entries: Entries, position: int, record: Record) -> bool:
        """Whether a record is of a later message of the same publisher already."""
        table, run = self._sow.table, entries.run
        there = table.get(table.identity(record.key, record.topic))
        return is_later(there, run.clients[position], run.sequences[position])

    # deletions

    def _take_in_deletion(self, arrivals: Arrivals) -> None:
        sow, position = self._sow, arrivals.position
        try:
            keys = msgspec.json.decode(arrivals.bodies[position], type=list[str])
            records = sow.find_keys(keys, lambda name: name == self._name)
            sow.table.make_room_to_remove(records)
        except (msgspec.MsgspecError, StoreError) as error:
            arrivals.cannot(error)
            return
        appended = self._journal.append_copies(arrivals, arrivals.content(1))
        if not appended.txids:
            return
        envelope = arrivals.envelope(position, appended.timestamp)
        moment = appended.timestamp * NANOSECONDS_IN_MICROSECOND
        for record in records:
            if appended.flags and self._is_superseded(arrivals, position, record):
                continue
            try:
                change = sow.remove(record, appended.txids[0], moment)
            except StoreError as error:
                arrivals.unapplied.append((position, error))
            else:
                if change is not None:
                    self._announcer.announce(change, envelope, DELETED)


def _is_number(key: tuple[int, bytes]) -> bool:
    """Whether a SOW key, as `split_key` gives it, has no text."""
    return not key[1]
