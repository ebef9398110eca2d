"""sow_delete on a queue: acknowledges, returns or expires messages.

Source: AMPS User Guide, Acknowledging Messages; AMPS Command Reference, Removing Messages. Our
extensions: `delay` with cancel, `extend` for leases, `redrive` for dead letters.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from config_schema.units import UnitError, parse_interval
from server.engine.commands.acks import acknowledge, wants
from server.engine.commands.errors import CommandRefusedError
from server.engine.commands.failure_acks import refuse_duplicate_command
from server.engine.commands.parsing.options import option_refusal, split_options
from server.engine.commands.parsing.query_parameters import read_keys
from server.engine.commands.parsing.topic_selection import read_filter
from server.engine.commands.publish import acknowledge_settled
from server.expressions.regex.budget import TooCostlyError
from server.queues.core import AckOutcome, UnmatchedError, parse_bookmarks
from server.queues.topic.acknowledgement import AckTerms, QueueAckResult
from server.queues.topic.queue_journal import NO_PUBLISHER
from server.security.permissions import Permission
from server.storage.journal import JournalUnavailableError, JournalUnreadableError
from server.storage.sow.records import NANOSECONDS_IN_MICROSECOND
from server.topics.subscriptions.entitlement_limits import permitted_filter
from server.util.limits import MAX_BOOKMARKS

if TYPE_CHECKING:
    from amperage.wire.header import Header
    from server.engine.commands.continuation import CommandSteps
    from server.engine.session import Session
    from server.expressions.topic_names import TopicSelector
    from server.queues.core import PublisherSequence
    from server.queues.topic.acknowledgement import MessageSearchBatch
    from server.queues.topic.queue_topic import QueueTopic

_OUTCOME_OPTIONS: Final = ("cancel", "expire")
_EXCLUSIVE: Final = (*_OUTCOME_OPTIONS, "extend", "redrive")
_OPTIONS: Final = frozenset({*_EXCLUSIVE, "delay", "non_regex_topic", "none"})
_BATCH_SIZE: Final = 512
"""Messages that are acknowledged in a time slice."""
_REDRIVE_BATCH_SIZE: Final = 32
"""Dead letters that are redriven in a time slice."""


class _AckAction(NamedTuple):
    """The action on messages. Times are microseconds.

    Attributes:
        outcome: their outcome.
        delay_us: the time for which returned messages stay away; None for the queue's setting.
        extends_leases: whether their leases are extended instead.
        lease_period_us: the length of the extended leases, from now on; None for that of new ones.
        redrives: whether they are dead letters to return to the topics that they came from.
    """

    outcome: AckOutcome
    delay_us: int | None
    extends_leases: bool
    lease_period_us: int | None
    redrives: bool


def queue_of(session: Session, selector: TopicSelector) -> QueueTopic | None:
    """Return the queue that a command names, None if it is for other topics."""
    return None if selector.is_regex else queue_named(session, selector.text)


def queue_named(session: Session, topic: str | None) -> QueueTopic | None:
    """Return the queue of a literal name, None if there is none.

    A message of a queue carries its topic's name, and an acknowledgement repeats it. So this is a
    name, even with characters of regular expressions (`a.b`).
    """
    queues = session.engine.topics.queues
    return None if queues is None or not topic else queues.find(session.message_type, topic)


def handle(session: Session, header: Header, body: bytes) -> CommandSteps:
    """Acknowledge messages of a queue by the command `ack`, as sow_delete does.

    The reference reserves the command for servers. Some clients acknowledge with it.

    Raises:
        CommandRefusedError: as for `acknowledge_messages`, or the command names no queue.
    """
    if not header.topic:
        raise CommandRefusedError(
            "unknown command",
            "'ack' is a command of servers: expected sow_delete, or an ack with the topic of a"
            " queue and bookmarks of its messages",
            disconnect_reason="unknown command",
        )
    session.require_permission(Permission.READ_TOPIC, header.topic)
    queue = queue_named(session, header.topic)
    if queue is None:
        raise CommandRefusedError(
            "invalid topic",
            f"topic {header.topic!r} of message type {session.message_type} is no queue, and"
            " an ack is for messages of queues only",
        )
    yield from acknowledge_messages(
        session, header, body, split_options(header.options or ""), queue
    )


def acknowledge_messages(
    session: Session,
    header: Header,
    body: bytes,
    options: Mapping[str, str],
    queue: QueueTopic,
) -> CommandSteps:
    """Acknowledge messages of a queue by their bookmarks, their SOW keys, or a filter.

    A user who may read from a queue may acknowledge (AMPS User Guide, Entitlements for Queues); one
    who may read some of its messages may acknowledge these.

    Raises:
        CommandRefusedError: the command does not select messages, has an invalid option, or cannot
            be recorded.
    """
    session.require_permission(Permission.READ_TOPIC, queue.name)
    permit = session.get_permit(Permission.READ_TOPIC, queue.name)
    action = _read_action(options)
    filter_, keys = read_filter(session, header), read_keys(header)
    if body or (header.bookmark is not None) + (filter_ is not None) + (keys is not None) != 1:
        raise CommandRefusedError(
            "invalid command",
            "messages of a queue are acknowledged by one of these, and no more than one: their"
            " bookmarks, a filter (1=1 for all messages), or sow_keys",
        )
    sequences = None if header.bookmark is None else _read_sequences(header.bookmark)
    if sequences is None and action.extends_leases:
        raise option_refusal("extend", "leases are extended by the bookmarks of their messages")
    refuse_duplicate_command(session, header)
    publisher = session.client_hash, header.sequence or 0
    ack_terms = AckTerms(action.outcome, session.number, publisher, action.delay_us)
    acks = queue.ack_handler
    try:
        if sequences is not None and action.extends_leases:
            result = acks.extend_leases(sequences, action.lease_period_us, ack_terms)
            if permit.filter is not None:  # do not disclose the others
                result = result._replace(examined_count=result.matched_count)
        elif sequences is not None and not action.redrives and permit.filter is None:
            result = acks.acknowledge(sequences, ack_terms)
        else:
            if sequences is not None:
                batches = acks.find_by_bookmarks(sequences)
            elif filter_ is not None:
                batches = acks.find_by_filter(permitted_filter(permit, filter_) or filter_)
            else:
                batches = acks.find_by_sow_keys(keys or ())
            if permit.filter is not None:
                batches = acks.restrict_to_filter(permit.filter, batches)
            result = yield from _process_found(
                session, queue, batches, ack_terms, redrives=action.redrives
            )
            refuse_duplicate_command(session, header)  # another instance may have sent it meanwhile
            acks.acknowledge_offsets((), ack_terms)
    except (JournalUnavailableError, JournalUnreadableError, UnmatchedError) as error:
        raise CommandRefusedError("not stored", str(error)) from None
    except TooCostlyError as error:
        raise CommandRefusedError("bad filter", str(error)) from None
    _answer(session, header, queue, result)


def _process_found(
    session: Session,
    queue: QueueTopic,
    batches: Iterator[MessageSearchBatch],
    ack_terms: AckTerms,
    *,
    redrives: bool,
) -> Generator[bool, None, QueueAckResult]:
    """Acknowledge or redrive messages as they are found; the command's number is not recorded."""
    acks, unrecorded_terms = queue.ack_handler, ack_terms._replace(publisher_sequence=NO_PUBLISHER)
    examined = matched = affected = 0
    for batch in batches:
        examined += batch.examined_count
        matched += len(batch.offsets)
        for offsets in _parts(batch.offsets, _REDRIVE_BATCH_SIZE if redrives else _BATCH_SIZE):
            if redrives:
                affected += queue.dead_letter_redrive.redrive(
                    offsets, unrecorded_terms, session.publish_targets.may_publish
                )
            elif offsets:
                affected += acks.acknowledge_offsets(offsets, unrecorded_terms)
            yield not acks.is_log_backlogged
    return QueueAckResult(examined, matched, affected)


def _parts(offsets: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Yield parts of a batch, at least one."""
    for start in range(0, max(len(offsets), 1), size):
        yield offsets[start : start + size]


def _read_action(options: Mapping[str, str]) -> _AckAction:
    for name in options:
        if name not in _OPTIONS:
            raise option_refusal(name, "it is no option of an acknowledgement")
    exclusive = [name for name in _EXCLUSIVE if name in options]
    if len(exclusive) > 1:
        raise option_refusal(exclusive[1], f"it cannot be done together with {exclusive[0]}")
    if "delay" in options and "cancel" not in options:
        raise option_refusal("delay", "it goes with the option cancel only")
    return _AckAction(
        AckOutcome(exclusive[0])
        if exclusive and exclusive[0] in _OUTCOME_OPTIONS
        else AckOutcome.DONE,
        _read_interval(options, "delay"),
        "extend" in options,
        _read_interval(options, "extend") if options.get("extend") else None,
        "redrive" in options,
    )


def _read_interval(options: Mapping[str, str], name: str) -> int | None:
    """Return an interval in microseconds, None if the option is not given."""
    if name not in options:
        return None
    try:
        return parse_interval(options[name]) // NANOSECONDS_IN_MICROSECOND
    except UnitError as error:
        raise option_refusal(name, str(error)) from None


def _read_sequences(text: str) -> list[PublisherSequence]:
    if (count := text.count(",") + 1) > MAX_BOOKMARKS:
        raise CommandRefusedError(
            "invalid bookmark",
            f"the list has {count} bookmarks: expected no more than {MAX_BOOKMARKS}",
        )
    sequences, malformed = parse_bookmarks(text)
    if malformed:
        raise CommandRefusedError(
            "invalid bookmark", f"{malformed[0]!r} is no bookmark: expected PUBLISHER|NUMBER|"
        )
    return sequences


def _answer(session: Session, header: Header, queue: QueueTopic, result: QueueAckResult) -> None:
    if header.acks is None:
        return
    for ack in ("processed", "completed"):
        acknowledge(session, header, ack, query_id=header.query_id, sequence=header.sequence)
    acknowledge(
        session,
        header,
        "stats",
        query_id=header.query_id,
        topic_matches=result.examined_count,
        matches=result.matched_count,
        records_deleted=result.affected_count,
    )
    if wants(header, "persisted"):
        acknowledge_settled(session, header, queue.when_settled)
