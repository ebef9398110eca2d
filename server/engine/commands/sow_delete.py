"""sow_delete: deletes records of a topic.

The command first finds all records to delete, as they are when it arrives, and then deletes them in
groups. Both are done in steps, and other tasks run between these: they see some of the records
deleted and the others still there. A record that changes before its group is deleted stays, as if
it had been published after the deletion. The command is not done before its last group, which has
the command's sequence number in the log.

Where a permission is limited by a filter, records that do not match it stay. A deletion by filter
passes them over, as if they were not there; a command that names records, and may delete none of
them, is refused (AMPS User Guide, Content Filtered Entitlements). Records that the user may not
read either are passed over in each case, so that the answer does not disclose that they exist.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from amperage.wire.header import Header
from server.engine.commands.acks import acknowledge, wants
from server.engine.commands.errors import CommandRefusedError
from server.engine.commands.failure_acks import refuse_duplicate_command
from server.engine.commands.parsing.options import check_delete_options, split_options
from server.engine.commands.parsing.query_parameters import read_keys
from server.engine.commands.parsing.topic_selection import (
    may_read,
    read_filter,
    read_topic,
    records_of,
    require_topic,
)
from server.engine.commands.publish import acknowledge_settled, acks_are_plain
from server.engine.commands.publish_target import NOT_ENTITLED
from server.engine.commands.queue_acks import acknowledge_messages, queue_named
from server.engine.queries.redacted_query import RedactedQuery
from server.expressions.regex.budget import SearchAllowance, TooCostlyError
from server.message_types.base import BodyError
from server.security.permissions import Permission
from server.storage.journal import JournalUnavailableError
from server.storage.sow.keys.key_source import KeyRefusedError
from server.storage.sow.query.query import QuerySpec
from server.storage.sow.query.record_filter import RecordFilter
from server.storage.sow.records import to_nanoseconds
from server.storage.sow.store import RecordStoreError
from server.storage.sow.topic_records import SowTopicRecords
from server.topics.refused_sequences import RefusedSequenceError
from server.topics.sow_registry import when_all_settled
from server.topics.sow_topic import NO_SELECTION, REASONS, SowTopic
from server.topics.subscriptions.delivery.envelope import Envelope
from server.topics.subscriptions.entitlement_limits import permitted_filter
from server.topics.transaction_log import DuplicateError

if TYPE_CHECKING:
    from server.engine.commands.continuation import CommandSteps
    from server.engine.session import Session
    from server.expressions.topic_names import TopicSelector
    from server.expressions.tree import Expr
    from server.security.permissions import Permit
    from server.storage.sow.query.query import OpenQuery
    from server.storage.sow.records import Record
    from server.topics.record_source import RecordSource
    from server.topics.sow_registry import TopicSelection

ACKS: Final = ("processed", "completed", "stats", "persisted")
"""The acks of a deletion, in the order in which they are sent."""

_BATCH_SIZE: Final = 50
"""Records deleted between two checks of the clock, with one log entry."""

_KEY_BATCH_SIZE: Final = 200
"""SOW keys looked up between two checks of the clock."""


class _RecordSelection(NamedTuple):
    """The records that a command selects, by one of three criteria.

    Attributes:
        filter: those that match it.
        keys: those with these SOW keys.
        body: the one that a publish of it would update.
    """

    filter: Expr | None
    keys: tuple[str, ...] | None
    body: bytes


class _Group(NamedTuple):
    """Records that are deleted together.

    Attributes:
        topic: the name of their topic.
        states: the SOW key of each record, and the sequence of the state that was found.
    """

    topic: str
    states: Sequence[tuple[str, int]]


class _DeletionCandidates:
    """The records to delete, and the counts for the acks.

    Attributes:
        topic_matches: the number of records tested.
        matches: the number of records to delete.
        refused_count: the number of named records that the user may not delete.
        visible_refused_count: the number of these that the user may read.
    """

    def __init__(self) -> None:
        self.refused_count = 0
        self.visible_refused_count = 0
        self.topic_matches = 0
        self.matches = 0
        self._states: dict[str, deque[tuple[str, int]]] = {}

    def add(self, records: Iterable[Record]) -> None:
        """Add records; only key and sequence of each are kept."""
        for record in records:
            states = self._states.setdefault(record.topic, deque())
            states.append((record.key, record.sequence))

    def drain_groups(self, named_topic: str) -> Iterator[_Group]:
        """Yield the records by topic, in the order in which they were added, and free them.

        Args:
            named_topic: the topic that the command names, empty for a pattern. Without any records,
                it gets a group with none, since the command itself is recorded.
        """
        if named_topic:
            self._states.setdefault(named_topic, deque())
        for topic, states in self._states.items():
            if not states:
                yield _Group(topic, ())
            while states:
                batch = [states.popleft() for _ in range(min(_BATCH_SIZE, len(states)))]
                yield _Group(topic, batch)


def handle(session: Session, header: Header, body: bytes) -> CommandSteps:
    """Delete records (AMPS Command Reference, Removing Messages).

    Raises:
        CommandRefusedError: the topic keeps no records, the command does not select records, or a
            deletion cannot be stored.
    """
    options = split_options(header.options or "")
    queue = queue_named(session, header.topic)
    names_record = bool(body) and isinstance(session.find_topic(header.topic or ""), SowTopic)
    selector = read_topic(session, header, options, literal=queue is not None or names_record)
    # check entitlement first, for any kind of topic
    if queue is None or not may_read(session, selector):
        require_topic(session, Permission.WRITE_TOPIC, selector)
    if queue is not None:
        yield from acknowledge_messages(session, header, body, options, queue)
        return
    if header.bookmark is not None:
        raise CommandRefusedError(
            "invalid topic", "messages are acknowledged by bookmark on queues only"
        )
    check_delete_options(header, options)
    selection = _RecordSelection(read_filter(session, header), read_keys(header), body)
    selection_count = (selection.filter is not None) + (selection.keys is not None) + bool(body)
    if selection_count != 1:
        raise CommandRefusedError("invalid command", NO_SELECTION)
    topics = records_of(session, Permission.WRITE_TOPIC, selector)
    if selector.is_regex:
        topics = [selected for selected in topics if isinstance(selected.source, SowTopicRecords)]
    if not topics and not selector.is_regex:
        raise CommandRefusedError(
            "invalid topic",
            f"topic {selector.text!r} of message type {session.message_type} keeps no records that"
            " could be deleted",
        )
    refuse_duplicate_command(session, header)
    candidates = _DeletionCandidates()
    yield from _find(session, topics, selection, selector, candidates)
    if candidates.refused_count:
        session.record_refused_write(selector.text, candidates.refused_count)
        if candidates.visible_refused_count and not candidates.matches:
            raise CommandRefusedError(
                NOT_ENTITLED,
                f"user {session.user!r} may delete other records only of {header.topic!r}",
            )
    deletion = _Deletion(session, header)
    yield from deletion.delete_groups(
        candidates.drain_groups("" if selector.is_regex else selector.text)
    )
    report_deletion(session, header)
    _acknowledge(session, header, candidates, deletion.deleted_count)
    if wants(header, "persisted"):
        store_waits = [topic.when_settled for topic in deletion.changed_topics]
        acknowledge_settled(session, header, partial(when_all_settled, store_waits))


def report_deletion(session: Session, header: Header) -> None:
    """Report a deletion to watchers of client actions."""
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


def plain_target(session: Session, header: Header) -> SowTopic | None:
    """Return the topic of a deletion that names its record by a body, and requests plain acks.

    Returns:
        The topic; None for any other command, and if the command has to be checked beyond that: by
        a filter of the permission, or against the numbers of other topics in the log.
    """
    log = session.engine.transaction_log
    own = Header(
        "sow_delete",
        command_id=header.command_id,
        sequence=header.sequence,
        topic=header.topic,
        acks=header.acks,
        correlation_id=header.correlation_id,
    )
    if header != own or not header.topic or not acks_are_plain(session, header):
        return None
    topic = session.find_topic(header.topic)
    permit = session.get_permit(Permission.WRITE_TOPIC, header.topic)
    is_checked = log is None or header.sequence is None
    return (
        topic
        if isinstance(topic, SowTopic)
        and (topic.is_journaled or is_checked)
        and permit.is_allowed
        and permit.filter is None
        and not session.engine.log.enabled("12-0002")
        else None
    )


def _find(
    session: Session,
    topics: Iterable[TopicSelection],
    selection: _RecordSelection,
    selector: TopicSelector,
    candidates: _DeletionCandidates,
) -> CommandSteps:
    """Find the records to delete."""
    pairs: list[tuple[SowTopicRecords, TopicSelection]] = []
    for selected in topics:
        sow = selected.source
        if not isinstance(sow, SowTopicRecords):
            raise CommandRefusedError(
                "invalid topic",
                f"the records of topic {sow.name!r} are made from those of another one",
            )
        pairs.append((sow, selected))
    # Journaled topics last: the last group has the command's sequence number.
    pairs.sort(key=lambda pair: session.engine.sow_registry.is_journaled(pair[0]))
    if selection.filter is not None:
        yield from _find_matching(session, pairs, selection.filter, candidates)
        return
    for sow, selected in pairs:
        is_deletable = _PermitTest(sow, selected.permit)
        is_visible = _PermitTest(sow, session.get_permit(Permission.READ_TOPIC, sow.name))
        for batch in _named_records(sow, selected, selection, selector):
            records = [record for record in batch if is_deletable(record)]
            candidates.add(records)
            candidates.matches += len(records)
            if len(records) < len(batch):
                refused = [record for record in batch if not is_deletable(record)]
                candidates.refused_count += len(refused)
                candidates.visible_refused_count += sum(map(is_visible, refused))
            yield True
    candidates.topic_matches = candidates.matches


def _find_matching(
    session: Session,
    topics: Sequence[tuple[SowTopicRecords, TopicSelection]],
    filter_: Expr,
    candidates: _DeletionCandidates,
) -> CommandSteps:
    now = to_nanoseconds(session.last_input_s)
    queries = [_query(sow, selected, filter_, now) for sow, selected in topics]
    try:
        for query in queries:
            for records in query:
                candidates.add(records)
                yield True
            candidates.matches += query.matches
            candidates.topic_matches += query.topic_matches
    except TooCostlyError as error:
        raise CommandRefusedError("bad filter", str(error)) from None
    finally:
        for query in queries:
            query.close()


def _query(sow: SowTopicRecords, selected: TopicSelection, filter_: Expr, now: int) -> OpenQuery:
    """Return a query for matching records that may be deleted; others are not even counted."""
    permit = selected.permit
    spec = QuerySpec(filter=permitted_filter(permit, filter_), topic_predicate=selected.name_filter)
    query = sow.query(spec, now)
    return query if permit.filter is None else RedactedQuery(query)


class _PermitTest:
    """Tests whether a permit covers a record; if the test takes too long, it does not.

    Args:
        sow: the topic.
        permit: the permit.
    """

    def __init__(self, sow: SowTopicRecords, permit: Permit) -> None:
        self._is_allowed = permit.is_allowed
        self._effort = SearchAllowance()
        self._record_filter = RecordFilter(sow.table, permit.filter, search_counter=self._effort)

    def __call__(self, record: Record) -> bool:
        """Return whether the permit covers a record."""
        if not self._is_allowed:
            return False
        self._effort.reset()
        try:
            return self._record_filter(record)
        except TooCostlyError:
            return False


def _named_records(
    sow: SowTopicRecords,
    selected: TopicSelection,
    selection: _RecordSelection,
    selector: TopicSelector,
) -> Iterator[list[Record]]:
    """Yield the records of a topic that the command names by keys or by a message."""
    if selection.keys is not None:
        for start in range(0, len(selection.keys), _KEY_BATCH_SIZE):
            yield sow.find_by_keys(
                selection.keys[start : start + _KEY_BATCH_SIZE], selected.name_filter
            )
        return
    for name in _topic_names(selected, selector):
        try:
            yield sow.find_by_body(selection.body, name)
        except (BodyError, KeyRefusedError) as error:
            raise CommandRefusedError("invalid message", str(error)) from None
        except RecordStoreError as error:
            raise CommandRefusedError("not stored", str(error)) from None


class _Deletion:
    """Deletes groups of records, and notifies subscribers.

    Args:
        session: the connection that sent the command.
        header: its header.

    Attributes:
        deleted_count: the number of records deleted.
        changed_topics: one topic of each file that has changed.
    """

    def __init__(self, session: Session, header: Header) -> None:
        self.deleted_count = 0
        self._session = session
        self._header = header
        self._changed_by_source: dict[RecordSource, SowTopic] = {}

    @property
    def changed_topics(self) -> Iterable[SowTopic]:
        return self._changed_by_source.values()

    def delete_groups(self, groups: Iterator[_Group]) -> CommandSteps:
        """Delete one group after the other.

        Raises:
            CommandRefusedError: a deletion cannot be stored.
        """
        group = next(groups, None)
        while group is not None:
            next_group = next(groups, None)
            self._delete_group(group, is_last=next_group is None)
            group = next_group
            yield not self._is_log_backlogged

    def _delete_group(self, group: _Group, *, is_last: bool) -> None:
        session = self._session
        topic = session.find_topic(group.topic)
        if not isinstance(topic, SowTopic):
            return
        sequence = self._header.sequence or 0 if is_last and topic.is_journaled else 0
        envelope = Envelope(session, session.last_input_s, sequence=sequence)
        try:
            self.deleted_count += topic.delete(group.states, envelope)
        except (DuplicateError, RefusedSequenceError) as error:
            raise CommandRefusedError(REASONS[type(error)], str(error)) from None
        except (JournalUnavailableError, RecordStoreError) as error:
            suffix = f"; {self.deleted_count} records have been deleted before that"
            raise CommandRefusedError(
                "not stored", f"{error}{suffix if self.deleted_count else ''}"
            ) from None
        self._changed_by_source[topic.records] = topic

    @property
    def _is_log_backlogged(self) -> bool:
        log = self._session.engine.transaction_log
        return log is not None and log.journal.is_backlogged and log.journal.write_error is None


def _topic_names(selected: TopicSelection, selector: TopicSelector) -> list[str]:
    """Return the topics to search for a record; of a Pattern, those that have records."""
    if not selector.is_regex:
        return [selector.text]
    if selected.name_filter is None:
        return [selected.source.name]
    return [name for name in selected.source.table.row_topics.names if selected.name_filter(name)]


def _acknowledge(
    session: Session, header: Header, candidates: _DeletionCandidates, deleted: int
) -> None:
    keys = {"query_id": header.query_id}
    for ack in ("processed", "completed"):
        acknowledge(session, header, ack, **keys, sequence=header.sequence)
    acknowledge(
        session,
        header,
        "stats",
        **keys,
        topic_matches=candidates.topic_matches,
        matches=candidates.matches,
        records_deleted=deleted,
    )
