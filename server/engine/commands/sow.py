"""sow: sends the records of a topic, or of all topics matching a pattern, at this moment."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from amperage.wire.header import Header
from server.engine.commands import aggregation
from server.engine.commands.acks import acknowledge
from server.engine.commands.as_of import with_point
from server.engine.commands.errors import CommandRefusedError
from server.engine.commands.parsing.options import (
    check_query_options,
    read_options,
    read_presentation,
)
from server.engine.commands.parsing.query_parameters import read_query_terms
from server.engine.commands.parsing.topic_selection import read_topic, records_of, require_topic
from server.engine.commands.query import QueryCommand
from server.security.permissions import Permission

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.storage.sow.history import HistoryPoint


def handle(session: Session, header: Header, _body: bytes) -> None:
    """Query records (AMPS Command Reference, sow command).

    A bookmark requests a past state; topics without History ignore it.

    Raises:
        CommandRefusedError: the topic keeps no records, or a part of the command cannot be used.
    """
    options = read_options(header)
    if aggregation.is_requested(options):
        aggregation.query(session, header, options)
        return
    selector = read_topic(session, header, options)
    require_topic(session, Permission.READ_TOPIC, selector)
    topics = records_of(session, Permission.READ_TOPIC, selector)
    if not topics and not selector.is_regex:
        raise CommandRefusedError(
            "invalid topic",
            f"topic {selector.text!r} of message type {session.message_type} keeps no records that"
            " could be queried",
        )
    check_query_options(header, options)
    terms = read_query_terms(session, header, options)
    presentation = read_presentation(header, options, session)

    def begin(as_of: HistoryPoint | None) -> None:
        command = QueryCommand(session, header, replace(terms, as_of=as_of), presentation)
        acknowledge(session, header, "processed", query_id=command.query_id)
        command.begin(command.open_queries(topics))

    with_point(session, header, topics, begin)
