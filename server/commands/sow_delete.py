"""sow_delete: records leave a topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from server.commands.acks import acknowledge, acknowledge_late, wants
from server.commands.query_terms import read_keys
from server.commands.refusal import CommandRefused
from server.commands.selection import read_filter, read_topic, records_of, require_topic
from server.message_types.base import BodyError
from server.security.entitlement import Permission
from server.sow.keys import KeyRefusedError
from server.sow.records import to_nanoseconds
from server.sow.store import StoreError
from server.sow.topic import Deletion
from server.subscriptions.envelope import Envelope
from server.subscriptions.record_delivery import DELETED
from server.wire.header import Header

if TYPE_CHECKING:
    from server.expressions.tree import Expr
    from server.session import Session
    from server.topics.names import TopicSelector
    from server.topics.stores import Selected

_NO_OPTIONS: Final[Mapping[str, str]] = {}


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


def handle(session: Session, header: Header, body: bytes) -> None:
    """Delete records (AMPS Command Reference, Removing Messages).

    Raises:
        CommandRefused: the topic keeps no records, the command does not say which records are to
            go, or a deletion cannot be stored.
    """
    if header.bookmark is not None:
        raise CommandRefused(
            "invalid topic", "messages are acknowledged by bookmark on queues only"
        )
    selector = read_topic(session, header, _NO_OPTIONS)
    require_topic(session, Permission.WRITE_TOPIC, selector)
    which = _Which(read_filter(session, header), read_keys(header), body)
    if which.filter is None and which.keys is None and not which.body:
        raise CommandRefused(
            "invalid command",
            "a sow_delete needs a filter (1=1 for all records), sow_keys, or a message",
        )
    topics = records_of(session, Permission.WRITE_TOPIC, selector)
    if not topics and not selector.is_regex:
        raise CommandRefused(
            "invalid topic", f"topic {selector.text!r} keeps no records that could be deleted"
        )
    deletions = [_delete(session, selected, which, selector) for selected in topics]
    _acknowledge(session, header, deletions, topics)


def _delete(
    session: Session, selected: Selected, which: _Which, selector: TopicSelector
) -> Deletion:
    """Delete the records of one topic, and tell its subscribers."""
    sow, stores = selected.sow, session.engine.stores
    sequence = stores.next_sequence()
    now = to_nanoseconds(session.last_heard)
    try:
        if which.filter is not None:
            deletion = sow.remove_matching(which.filter, sequence, now, selected.names)
        else:
            if which.keys is not None:
                found = sow.find_keys(which.keys, selected.names)
            else:
                names = _names(selected, selector)
                found = [record for name in names for record in sow.find_body(which.body, name)]
            deletion = Deletion(sow.remove(found, sequence, now), len(found), len(found))
    except (BodyError, KeyRefusedError) as error:
        raise CommandRefused("invalid message", str(error)) from None
    except StoreError as error:
        raise CommandRefused("not stored", str(error)) from None
    envelope = Envelope(session, session.last_heard)
    session.engine.topics.announce(session.message_type, deletion.changes, envelope, DELETED)
    stores.touched(sow)
    return deletion


def _names(selected: Selected, selector: TopicSelector) -> list[str]:
    """The topics to look for a record in; those of a Pattern that have records."""
    if not selector.is_regex:
        return [selector.text]
    if selected.names is None:
        return [selected.sow.spec.name]
    return [name for name in selected.sow.table.topics if selected.names(name)]


def _acknowledge(
    session: Session, header: Header, deletions: Iterable[Deletion], topics: Iterable[Selected]
) -> None:
    deletions = list(deletions)
    keys = {"query_id": header.query_id}
    for ack in ("processed", "completed"):
        acknowledge(session, header, ack, **keys, sequence=header.sequence)
    acknowledge(
        session,
        header,
        "stats",
        **keys,
        topic_matches=sum(deletion.topic_matches for deletion in deletions),
        matches=sum(deletion.matches for deletion in deletions),
        records_deleted=sum(len(deletion.changes) for deletion in deletions),
    )
    if wants(header, "persisted"):
        changed = [selected.sow for selected in topics]
        session.engine.stores.when_stored(changed, partial(acknowledge_late, session, header))
