"""A client inside the server: publishes and subscribes like any other, but has no connection.

It is not listed among the sessions, its actions are not reported as client events, it needs no user
name, and it has all permissions. Its messages are published through the same code as any client's.
Source: AMPS User Guide, Publish Message; On Message Published to AMPS.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from amperage.wire.framing import FrameReader
from amperage.wire.header import Header
from server.engine.commands import aggregation
from server.engine.commands.dispatch import AFTER_LOGON
from server.engine.commands.errors import CommandRefusedError
from server.engine.commands.parsing.options import (
    check_query_options,
    read_presentation,
    split_options,
)
from server.engine.commands.parsing.query_parameters import read_query_terms
from server.engine.commands.parsing.topic_selection import read_topic, records_of
from server.engine.commands.query import QueryCommand
from server.engine.commands.subscribe import prepare
from server.engine.connection_context import ConnectionContext, ConnectionHandle
from server.engine.session import Session
from server.message_types.base import BodyError
from server.security.entitlement import FixedEntitlement
from server.security.modules import OPEN
from server.security.permissions import ALL_PERMISSIONS, Permission
from server.storage.sow.keys.key_source import KeyRefusedError
from server.storage.sow.topic_records import SowTopicRecords

if TYPE_CHECKING:
    from server.engine.engine import Engine
    from server.storage.sow.query.query import OpenQuery
    from server.topics.subscriptions.delivery.presentation import Presentation
    from server.topics.subscriptions.delivery.sink import MessageSink
    from server.topics.subscriptions.subscription import Subscription

_LITERAL: Final = "non_regex_topic"
"""The option that makes a topic a name, even with characters of regular expressions."""


class InternalClient:
    """A client inside the server.

    Args:
        engine: the engine.
        name: its client name.
        message_type: the name of its message type.
    """

    def __init__(self, engine: Engine, name: str, message_type: str) -> None:
        connection_context = ConnectionContext(
            transport="",
            message_type=message_type,
            authenticator=OPEN,
            entitlement=FixedEntitlement(ALL_PERMISSIONS),
        )
        connection = ConnectionHandle("", send=lambda _: None, close_after_flush=lambda: None)
        number = engine.allocate_internal_number()
        self._session = Session(engine, number, connection_context, name, connection, FrameReader())
        self._session.permissions = ALL_PERMISSIONS
        self._session.log_on(name, message_type)
        self._engine = engine

    def publish(self, topic: str, body: bytes, command: str = "publish") -> None:
        """Publish a message.

        Args:
            topic: the topic.
            body: the message.
            command: `publish` or `delta_publish`.

        Raises:
            CommandRefusedError: the topic cannot be published to.
        """
        self._session.last_input_s = self._engine.clock.now()
        self._session.last_input_steady_s = self._engine.clock.steady_unpaused()
        self._engine.internal_publishes.add(1, len(body))
        AFTER_LOGON[command](self._session, Header(command=command, topic=topic), body)

    def delete_records(
        self, topic: str, filter_text: str, *, literal: bool = False
    ) -> Iterator[None]:
        """Delete records of a topic, or of all topics that a regular expression matches, in slices.

        Args:
            topic: the topic.
            filter_text: the filter that the records match.
            literal: whether the topic is a name, even with characters of regular expressions.

        Raises:
            CommandRefusedError: the topic keeps no records, or the filter cannot be used.
        """
        self._session.last_input_s = self._engine.clock.now()
        self._session.last_input_steady_s = self._engine.clock.steady_unpaused()
        header = Header(
            command="sow_delete",
            topic=topic,
            short_filter=filter_text,
            short_options=_LITERAL if literal else None,
        )
        for _ in AFTER_LOGON[header.command](self._session, header, b"") or ():
            yield

    def has_record_for(self, topic: str, body: bytes) -> bool:
        """Return whether there is a record that a publish of a message would update."""
        sow = self._engine.sow_registry.find(self._session.message_type, topic)
        try:
            return isinstance(sow, SowTopicRecords) and bool(sow.find_by_body(body, topic))
        except (BodyError, KeyRefusedError):
            return False

    def find_first_record(
        self,
        topic: str,
        filter_text: str,
        order_by: str | None,
        options: str | None,
        *,
        literal: bool = False,
    ) -> Iterator[bytes | None]:
        """Find the first record of a query's result, in slices.

        Args:
            topic: the topic.
            filter_text: the filter that the record must match.
            order_by: the order that decides which one is the first.
            options: options of the command.
            literal: whether the topic is a name, even with characters of regular expressions.

        Returns:
            The record's body in the form that the options request, once it is found; before that,
            None after each slice of work.

        Raises:
            CommandRefusedError: the query is not valid.
        """
        session = self._session
        if literal:
            options = ",".join(filter(None, (options, _LITERAL)))
        header = Header(
            command="sow",
            topic=topic,
            short_filter=filter_text,
            order_by=order_by,
            short_options=options,
            top_n=1,
        )
        parsed_options = split_options(options or "")
        if aggregation.is_requested(parsed_options):
            command, groups = aggregation.open_query(session, header, parsed_options)
            return _first([groups], command.presentation)
        check_query_options(header, parsed_options)
        presentation = read_presentation(header, parsed_options, session)
        terms = read_query_terms(session, header, parsed_options)
        selector = read_topic(session, header, parsed_options)
        topics = records_of(session, Permission.READ_TOPIC, selector)
        if not topics and not selector.is_regex:
            raise CommandRefusedError("invalid topic", f"topic {selector.text!r} keeps no records")
        topic_queries = QueryCommand(session, header, terms, presentation).open_queries(topics)
        skip_n = terms.skip_n or 0 if len(topics) > 1 else 0  # otherwise the query itself skips
        return _first([topic_query.query for topic_query in topic_queries], presentation, skip_n)

    def subscribe(
        self, topic: str, sink: MessageSink, filter_text: str | None, options: str | None
    ) -> Subscription:
        """Subscribe; a client of this kind has one subscription at most.

        Args:
            topic: a topic or a regular expression over topics.
            sink: takes the messages.
            filter_text: the filter that messages must match.
            options: options of the command.

        Raises:
            CommandRefusedError: the subscription is not valid.
        """
        header = Header(
            command="subscribe", topic=topic, short_filter=filter_text, short_options=options
        )
        parsed_options = split_options(options or "")
        subscription = prepare(self._session, header, parsed_options, sink=sink)
        self._session.add_subscription(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription."""
        self._session.remove_subscription(subscription.sub_id)


def _first(
    queries: Sequence[OpenQuery], presentation: Presentation, skip_n: int = 0
) -> Iterator[bytes | None]:
    try:
        for query in queries:
            for records in query:
                if len(records) > skip_n:
                    yield presentation.format_body(presentation.select_fields(records[skip_n].body))
                    return
                skip_n -= len(records)
                yield None
    finally:
        for query in queries:
            query.close()
