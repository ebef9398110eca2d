"""sow_delete on a queue: messages are done with, given back, or expired.

Source: AMPS User Guide, Acknowledging Messages; AMPS Command Reference, Removing Messages.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from config_schema.units import UnitError, parse_interval
from server.base.limits import MOST_BOOKMARKS
from server.commands.acks import acknowledge, wants
from server.commands.options import option_refusal, split_options
from server.commands.publish import acknowledge_stored
from server.commands.query_terms import read_keys
from server.commands.refusal import CommandRefused
from server.commands.refuse import refuse_duplicate
from server.commands.selection import read_filter, read_topic
from server.expressions.effort import TooCostlyError
from server.journal import JournalUnavailable
from server.queues import UnmatchedError, Way, parse_marks
from server.security.entitlement import Permission
from server.topics.queue_acknowledging import Acknowledged, Said

if TYPE_CHECKING:
    from server.commands.persisted_acks import Publisher
    from server.commands.sender import Sender
    from server.commands.steps import Steps
    from server.expressions.topic_names import TopicSelector
    from server.queues import Mark
    from server.topics.queue_acknowledging import Acknowledging, Found
    from server.topics.queue_topic import QueueTopic
    from server.wire.header import Header

_OPTIONS: Final = frozenset({"cancel", "expire", "delay", "non_regex_topic", "none"})
_MICROSECONDS: Final = 1_000  # nanoseconds


def queue_of(session: Sender, selector: TopicSelector) -> QueueTopic | None:
    """The queue that a command names, None if it is for other topics."""
    queues = session.engine.topics.queues
    if queues is None or selector.is_regex:
        return None
    return queues.find(session.message_type, selector.text)


def handle(session: Publisher, header: Header, body: bytes) -> Steps:
    """An ack that a client sends: an acknowledgement by bookmarks, in another word for it.

    The reference keeps the command for servers. There are clients that acknowledge so.

    Raises:
        CommandRefused: as for `acknowledge_messages`, or it is no acknowledgement of messages.
    """
    queue = None
    if header.bookmark is not None and header.topic:
        options = split_options(header.options or "")
        queue = queue_of(session, read_topic(session, header, options))
    if queue is None:
        raise CommandRefused(
            "unknown command",
            "'ack' is a command of servers: expected sow_delete, or an ack with the topic of a"
            " queue and bookmarks of its messages",
            disconnect="unknown command",
        )
    yield from acknowledge_messages(session, header, body, options, queue)


def acknowledge_messages(
    session: Publisher, header: Header, body: bytes, options: Mapping[str, str], queue: QueueTopic
) -> Steps:
    """Acknowledge messages of a queue by their bookmarks, their SOW keys, or a filter.

    Who may read from a queue may acknowledge (AMPS User Guide, Entitlements for Queues).

    Raises:
        CommandRefused: the command does not say which messages, or how, or cannot be recorded.
    """
    session.require(Permission.READ_TOPIC, queue.name)
    way, delay = _read_way(options)
    filter_, keys = read_filter(session, header), read_keys(header)
    if body or (header.bookmark is not None) + (filter_ is not None) + (keys is not None) != 1:
        raise CommandRefused(
            "invalid command",
            "messages of a queue are acknowledged by one of these, and no more than one: their"
            " bookmarks, a filter (1=1 for all messages), or sow_keys",
        )
    marks = None if header.bookmark is None else _read_marks(header.bookmark)
    refuse_duplicate(session, header)
    said = Said(way, session.number, (session.client_hash, header.sequence or 0), delay)
    acks = queue.acknowledging
    try:
        if marks is not None:
            done = acks.acknowledge(marks, said)
        else:
            found = acks.find_keys(keys or ()) if filter_ is None else acks.find_matching(filter_)
            done = yield from _acknowledge_found(acks, found, said)
    except (JournalUnavailable, UnmatchedError) as error:
        raise CommandRefused("not stored", str(error)) from None
    except TooCostlyError as error:
        raise CommandRefused("bad filter", str(error)) from None
    _answer(session, header, queue, done)


def _acknowledge_found(
    acks: Acknowledging, found: Iterator[Found], said: Said
) -> Generator[bool, None, Acknowledged]:
    """Acknowledge messages as they are found; the command's number comes last."""
    looked_at = matched = done = 0
    some = said._replace(publisher=(0, 0))
    for portion in found:
        looked_at += portion.looked_at
        matched += len(portion.places)
        if portion.places:
            done += acks.acknowledge_places(portion.places, some)
        yield not acks.is_log_crowded
    acks.acknowledge_places((), said)
    return Acknowledged(looked_at, matched, done)


def _read_way(options: Mapping[str, str]) -> tuple[Way, int | None]:
    """What became of the messages, and for how many microseconds they are to stay away."""
    for name in options:
        if name not in _OPTIONS:
            raise option_refusal(name, "it is no option of an acknowledgement")
    if "cancel" in options and "expire" in options:
        raise option_refusal("expire", "a message that is given back cannot expire as well")
    delay = None
    if "delay" in options:
        if "cancel" not in options:
            raise option_refusal("delay", "it goes with the option cancel only")
        try:
            delay = parse_interval(options["delay"]) // _MICROSECONDS
        except UnitError as error:
            raise option_refusal("delay", str(error)) from None
    if "cancel" in options:
        return Way.CANCEL, delay
    return Way.EXPIRE if "expire" in options else Way.DONE, None


def _read_marks(text: str) -> list[Mark]:
    if (count := text.count(",") + 1) > MOST_BOOKMARKS:
        raise CommandRefused(
            "invalid bookmark",
            f"the list has {count} bookmarks: expected no more than {MOST_BOOKMARKS}",
        )
    marks, malformed = parse_marks(text)
    if malformed:
        raise CommandRefused(
            "invalid bookmark", f"{malformed[0]!r} is no bookmark: expected PUBLISHER|NUMBER|"
        )
    return marks


def _answer(session: Publisher, header: Header, queue: QueueTopic, done: Acknowledged) -> None:
    if header.acks is None:
        return
    for ack in ("processed", "completed"):
        acknowledge(session, header, ack, query_id=header.query_id, sequence=header.sequence)
    acknowledge(
        session,
        header,
        "stats",
        query_id=header.query_id,
        topic_matches=done.looked_at,
        matches=done.matched,
        records_deleted=done.done,
    )
    if wants(header, "persisted"):
        acknowledge_stored(session, header, queue.when_stored)
