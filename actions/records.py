"""The base of triggers on records: an internal subscription that follows their focus."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from actions.context import message_variables
from actions.module import ModuleProvisionError, Trigger
from config_schema.regex import matches
from server.engine.commands.errors import CommandRefusedError
from server.expressions import ContextKind, parse
from server.expressions.topic_names import select_topics
from server.storage.sow.query.query import QuerySpec
from server.storage.sow.records import to_nanoseconds

if TYPE_CHECKING:
    from actions.action import Action
    from actions.services import ActionServices
    from config_schema.spec import Options
    from server.engine.internal_client import InternalClient
    from server.storage.sow.records import Record
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.delivery.record_delivery import RecordMessage
    from server.topics.subscriptions.subscription import Subscription


class OnRecords(Trigger):
    """Runs on changes of records; subclasses choose the changes.

    Attributes:
        topic_option: the option that names their topic.
        filter_option: the option that filters its records.
    """

    topic_option: ClassVar[str] = "Topic"
    filter_option: ClassVar[str] = "Filter"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._subscriptions: list[tuple[InternalClient, Subscription]] = []

    def provision(self, services: ActionServices, action: Action) -> None:
        """Subscribe to the topics, as far as there are any with records."""
        self.services = services
        self.action = action
        literal = not services.engine.settings.regex_topics
        topic = self.options.get(self.topic_option) or ""
        selector = select_topics(topic, literal=literal)
        message_types = [
            name
            for name in self.message_types()
            if services.engine.sow_registry.select(name, selector)
        ]
        if not message_types:
            services.engine.log.emit("29-0110", action=action.name, topic=topic)
        for name in message_types:
            client = services.make_client(action.name, name)
            try:
                subscription = client.subscribe(topic, self, self._filter, "oof")
            except CommandRefusedError as refusal:
                raise ModuleProvisionError(str(refusal)) from None
            self._subscriptions.append((client, subscription))

    def message_types(self) -> list[str]:
        """Return the message types of the topics."""
        return [self.options.get("MessageType") or ""]

    def close(self) -> None:
        """Unsubscribe."""
        for client, subscription in self._subscriptions:
            client.unsubscribe(subscription)
        self._subscriptions.clear()

    @property
    def _filter(self) -> str | None:
        return self.options.get(self.filter_option)

    def matching_records(self) -> list[Record]:
        """Return the records that match now, in the order of their last updates."""
        engine, text = self.services.engine, self._filter
        filter_ = None if not text else parse(text, ContextKind.FILTER, engine.settings.functions)
        selector = select_topics(self.options.get(self.topic_option) or "", literal=True)
        matching: list[Record] = []
        for name in self.message_types():
            for selected in engine.sow_registry.select(name, selector):
                now = to_nanoseconds(engine.clock.now())
                query = selected.source.query(
                    QuerySpec(filter=filter_, topic_predicate=selected.name_filter), now
                )
                matching += [record for records in query for record in records]
        return sorted(matching, key=lambda candidate: candidate.timestamp)

    def current_body(self, topic: str, key: str) -> bytes | None:
        """Return the current body of a record; None if it is gone."""
        source = self.services.engine.sow_registry.find(
            self.options.get("MessageType") or "", topic
        )
        if source is None:
            return None
        record = source.table.get(source.table.make_identity(key, topic))
        return None if record is None else record.body

    def on_message(self, topic: str, body: bytes, envelope: Envelope) -> None:
        """Handle a message of a topic without records; a pattern may match some of these."""

    def on_record(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Handle a record that matches, also if it matched before."""

    def on_oof(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Handle a record that does not match any more."""


def matching_types(pattern: str, services: ActionServices) -> list[str]:
    """Return the message types that a regular expression matches."""
    return [name for name in services.engine.settings.message_types if matches(pattern, name)]


def removed_record_variables(topic: str, body: bytes, message: RecordMessage) -> dict[str, bytes]:
    """Return the variables that hold a record that is gone."""
    correlation_id = message.correlation_id.encode("utf-8", "surrogateescape")
    return message_variables(topic, body) | {"AMPS_CORRELATION_ID": correlation_id}
