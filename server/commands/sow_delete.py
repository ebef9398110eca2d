"""sow_delete: records leave a topic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from server.commands.acks import acknowledge, wants
from server.commands.options import check_delete_options, split_options
from server.commands.publish import acknowledge_stored
from server.commands.query_terms import read_keys
from server.commands.refusal import CommandRefused
from server.commands.selection import read_filter, read_topic, records_of, require_topic
from server.expressions.effort import TooCostlyError
from server.journal import JournalUnavailable
from server.message_types.base import BodyError
from server.security.entitlement import Permission
from server.sow.keys import KeyRefusedError
from server.sow.records import to_nanoseconds
from server.sow.store import StoreError
from server.sow.topic import Found, SowTopic
from server.subscriptions.envelope import Envelope
from server.topics.stored import REASONS, StoredTopic
from server.topics.stores import all_settled
from server.topics.transaction_log import DuplicateError
from server.wire.header import Header

if TYPE_CHECKING:
    from server.commands.persisted_acks import Publisher
    from server.expressions.topic_names import TopicSelector
    from server.expressions.tree import Expr
    from server.sow.records import Record
    from server.topics.stores import Selected

_MOST_IN_ENTRY: Final = 10_000
"""Records that one entry of the log deletes; their keys take a few hundred kilobytes."""


class _Which(NamedTuple):
    """The records that a command is about, said in one of three ways.

    Attributes:
        filter: those that match it.
        keys: those with these SOW keys.
        body: the one that a publish of it would update.
    """

    filter: Expr | None
    keys: tuple[str, ...] | None
    body: bytes


def handle(session: Publisher, header: Header, body: bytes) -> None:
    """Delete records (AMPS Command Reference, Removing Messages).

    Raises:
        CommandRefused: the topic keeps no records, the command does not say which records are to
            go, or a deletion cannot be stored.
    """
    options = split_options(header.options or "")
    selector = read_topic(session, header, options)
    if header.bookmark is not None:
        raise CommandRefused(
            "invalid topic", "messages are acknowledged by bookmark on queues only"
        )
    check_delete_options(header, options)
    require_topic(session, Permission.WRITE_TOPIC, selector)
    which = _Which(read_filter(session, header), read_keys(header), body)
    ways = (which.filter is not None) + (which.keys is not None) + bool(body)
    if ways != 1:
        raise CommandRefused(
            "invalid command",
            "a sow_delete needs one of these, and no more than one: a filter (1=1 for all records),"
            " sow_keys, or a message",
        )
    topics = records_of(session, Permission.WRITE_TOPIC, selector)
    if selector.is_regex:
        topics = [chosen for chosen in topics if isinstance(chosen.keeper, SowTopic)]
    if not topics and not selector.is_regex:
        raise CommandRefused(
            "invalid topic",
            f"topic {selector.text!r} of message type {session.message_type} keeps no records that"
            " could be deleted",
        )
    _refuse_duplicate(session, header)
    found = [_find(session, selected, which, selector) for selected in topics]
    groups = _by_topic(session, found, selector)
    deleted = _delete(session, header, groups)
    if not session.is_internal:
        session.engine.client_status.publish(
            header.command,
            session,
            topic=header.topic,
            filter=header.filter,
            options=header.options,
            query_id=header.query_id,
            correlation_id=header.correlation_id,
        )
    _acknowledge(session, header, found, deleted)
    if wants(header, "persisted"):
        changed = list({topic: None for topic, _ in groups})
        acknowledge_stored(
            session, header, partial(all_settled, [topic.when_stored for topic in changed])
        )


def _refuse_duplicate(session: Publisher, header: Header) -> None:
    log = session.engine.transaction_log
    if log is not None and header.sequence:
        try:
            log.refuse_duplicate(session.client_hash, header.sequence)
        except (DuplicateError, JournalUnavailable) as error:
            raise CommandRefused(REASONS[type(error)], str(error)) from None


def _find(session: Publisher, selected: Selected, which: _Which, selector: TopicSelector) -> Found:
    """The records of one topic that are to go."""
    sow = selected.keeper
    if not isinstance(sow, SowTopic):
        raise CommandRefused(
            "invalid topic", f"the records of topic {sow.name!r} are made from those of another one"
        )
    if which.filter is not None:
        now = to_nanoseconds(session.last_heard)
        try:
            return sow.find_matching(which.filter, now, selected.names)
        except TooCostlyError as error:
            raise CommandRefused("bad filter", str(error)) from None
    if which.keys is not None:
        records = sow.find_keys(which.keys, selected.names)
    else:
        names = _names(selected, selector)
        try:
            records = [record for name in names for record in sow.find_body(which.body, name)]
        except (BodyError, KeyRefusedError) as error:
            raise CommandRefused("invalid message", str(error)) from None
        except StoreError as error:
            raise CommandRefused("not stored", str(error)) from None
    return Found(records, len(records), len(records))


def _by_topic(
    session: Publisher, found: Iterable[Found], selector: TopicSelector
) -> list[tuple[StoredTopic, list[Record]]]:
    """Records by the topic that they were published to; the topic named, if there are none.

    There are several groups of a topic if its records are too many for one entry of the log.
    """
    records: dict[str, list[Record]] = {}
    if not selector.is_regex:
        records[selector.text] = []
    for one in found:
        for record in one.records:
            records.setdefault(record.topic, []).append(record)
    topics = ((session.find_topic(name), group) for name, group in records.items())
    return [
        (topic, group[start : start + _MOST_IN_ENTRY])
        for topic, group in topics
        if isinstance(topic, StoredTopic)
        for start in range(0, max(1, len(group)), _MOST_IN_ENTRY)
    ]


def _delete(
    session: Publisher, header: Header, groups: Sequence[tuple[StoredTopic, list[Record]]]
) -> int:
    """Delete records, and tell subscribers; gives how many are gone.

    The command's sequence number goes into the log with the last of its groups: until all are done,
    the command is not.
    """
    last = max((i for i, (topic, _) in enumerate(groups) if topic.is_journaled), default=None)
    deleted = 0
    for number, (topic, records) in enumerate(groups):
        sequence = header.sequence or 0 if number == last else 0
        envelope = Envelope(session, session.last_heard, sequence=sequence)
        try:
            deleted += topic.delete(records, envelope)
        except (JournalUnavailable, StoreError) as error:
            already = f"; {deleted} records have been deleted before that" if deleted else ""
            raise CommandRefused("not stored", f"{error}{already}") from None
    return deleted


def _names(selected: Selected, selector: TopicSelector) -> list[str]:
    """The topics to look for a record in; those of a Pattern that have records."""
    if not selector.is_regex:
        return [selector.text]
    if selected.names is None:
        return [selected.keeper.name]
    return [name for name in selected.keeper.table.topics if selected.names(name)]


def _acknowledge(session: Publisher, header: Header, found: Sequence[Found], deleted: int) -> None:
    keys = {"query_id": header.query_id}
    for ack in ("processed", "completed"):
        acknowledge(session, header, ack, **keys, sequence=header.sequence)
    acknowledge(
        session,
        header,
        "stats",
        **keys,
        topic_matches=sum(one.topic_matches for one in found),
        matches=sum(one.matches for one in found),
        records_deleted=deleted,
    )
