"""One subscription of one connection."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from server.expressions.filter_form import ContentFilter, expr_of
from server.security.permissions import UNLIMITED
from server.topics.subscriptions.delivery.presentation import AS_PUBLISHED, Presentation

if TYPE_CHECKING:
    from server.engine.replays.replay import Replay
    from server.engine.session import Session
    from server.expressions.regex.budget import SearchCounter
    from server.expressions.topic_names import TopicSelector
    from server.expressions.tree import Expr, OrderTerm
    from server.queues.core import Consumer
    from server.security.permissions import Permit
    from server.storage.views.terms import AggregationTerms
    from server.topics.subscriptions.delivery.conflation import Conflater
    from server.topics.subscriptions.delivery.outbox import Outbox
    from server.topics.subscriptions.delivery.sink import MessageSink


@dataclass(frozen=True, slots=True)
class PageTerms:
    """The page options of a subscription.

    Attributes:
        order_by: the order of the records; none if empty.
        start: number of records before the page.
        stop: number of records before it and on it.
    """

    order_by: tuple[OrderTerm, ...]
    start: int
    stop: int


class SubscriptionTerms(msgspec.Struct, frozen=True, eq=False):
    """All of a subscription that others may share: those that differ by ids and filters.

    Attributes:
        selector: selects its topics.
        presentation: the form of its messages.
        conflater: holds messages for later ones of the same key to replace; None to send at once.
        sends_deltas: whether changes of records are sent as deltas, with only the differing fields.
        omits_empty_deltas: whether messages in which no field differs are suppressed.
        tracks_focus: whether `oof` messages are sent for records that match no more.
        began_with_query: whether its client got all matching records when it was placed.
        sink: takes the messages of a client inside the server; None for a client's connection.
        options: the options of the command, as sent.
        page: the page of the topic's records, if it is paginated; None for all records.
        aggregation: how the topic's records are aggregated; None if they are sent as they are.
        replay: sends the messages, if they come from the transaction log.
        consumer: its part in queues, None where there are none.
        max_backlog: messages of queues that it requests at one time; None if unspecified.
        held_in: the outbox where its messages wait, None if they go to the connection at once.
        sends_deletions: whether deletions and lifetimes of records are sent from the log as well.
        bookmark: where messages of the log begin, as sent; None for no messages of the log.
        permit: its user's permit for the topic that has it in this form.
    """

    selector: TopicSelector
    presentation: Presentation = AS_PUBLISHED
    conflater: Conflater | None = None
    sends_deltas: bool = False
    omits_empty_deltas: bool = False
    tracks_focus: bool = False
    began_with_query: bool = False
    sink: MessageSink | None = None
    options: str | None = None
    page: PageTerms | None = None
    aggregation: AggregationTerms | None = None
    replay: Replay | None = None
    consumer: Consumer | None = None
    max_backlog: int | None = None
    held_in: Outbox | None = None
    sends_deletions: bool = False
    bookmark: str | None = None
    permit: Permit = UNLIMITED


class Subscription(msgspec.Struct, frozen=True, eq=False):
    """A client's subscription. Replacing a subscription makes a new one with the same id.

    There may be a million, so it is a small struct, which is fast to create.

    If its user may see only some messages, or some of their fields, a topic has it in another
    form, in which filter, order and presentation are limited by the permit (entitlement_limits.py).

    Attributes:
        subscriber: the client.
        sub_id: its id, unique among those of the subscriber.
        terms: its other properties, which it may share with others.
        content_filter: the filter that messages must match, None for all.
        memory_bytes: bytes that are held for it as long as it exists; see
            server/engine/commands/memory_account.py.
        number: unique among all subscriptions of the process.
    """

    subscriber: Session
    sub_id: str
    terms: SubscriptionTerms
    content_filter: ContentFilter | None = None
    memory_bytes: int = 0
    number: int = msgspec.field(default_factory=count(1).__next__)

    @property
    def filter(self) -> Expr | None:
        """The tree of the filter that messages must match, built anew; None for all."""
        return None if self.content_filter is None else expr_of(self.content_filter)

    @property
    def selector(self) -> TopicSelector:
        """See `SubscriptionTerms`."""
        return self.terms.selector

    @property
    def presentation(self) -> Presentation:
        """See `SubscriptionTerms`."""
        return self.terms.presentation

    @property
    def conflater(self) -> Conflater | None:
        """See `SubscriptionTerms`."""
        return self.terms.conflater

    @property
    def sends_deltas(self) -> bool:
        """See `SubscriptionTerms`."""
        return self.terms.sends_deltas

    @property
    def omits_empty_deltas(self) -> bool:
        """See `SubscriptionTerms`."""
        return self.terms.omits_empty_deltas

    @property
    def tracks_focus(self) -> bool:
        """See `SubscriptionTerms`."""
        return self.terms.tracks_focus

    @property
    def began_with_query(self) -> bool:
        """See `SubscriptionTerms`."""
        return self.terms.began_with_query

    @property
    def sink(self) -> MessageSink | None:
        """See `SubscriptionTerms`."""
        return self.terms.sink

    @property
    def options(self) -> str | None:
        """See `SubscriptionTerms`."""
        return self.terms.options

    @property
    def page(self) -> PageTerms | None:
        """See `SubscriptionTerms`."""
        return self.terms.page

    @property
    def aggregation(self) -> AggregationTerms | None:
        """See `SubscriptionTerms`."""
        return self.terms.aggregation

    @property
    def replay(self) -> Replay | None:
        """See `SubscriptionTerms`."""
        return self.terms.replay

    @property
    def consumer(self) -> Consumer | None:
        """See `SubscriptionTerms`."""
        return self.terms.consumer

    @property
    def max_backlog(self) -> int | None:
        """See `SubscriptionTerms`."""
        return self.terms.max_backlog

    @property
    def held_in(self) -> Outbox | None:
        """See `SubscriptionTerms`."""
        return self.terms.held_in

    @property
    def sends_deletions(self) -> bool:
        """See `SubscriptionTerms`."""
        return self.terms.sends_deletions

    @property
    def bookmark(self) -> str | None:
        """See `SubscriptionTerms`."""
        return self.terms.bookmark

    @property
    def permit(self) -> Permit:
        """See `SubscriptionTerms`."""
        return self.terms.permit

    @property
    def outbox(self) -> Outbox:
        """The outbox that its messages go to."""
        return self.held_in or self.subscriber.outbox

    def matches_topic(self, topic: str, search_counter: SearchCounter) -> bool:
        """Return True if a topic's name matches the subscription.

        If matching takes too many steps, the result is False, and is logged.

        Args:
            topic: the topic's name.
            search_counter: counts long searches; see `TopicSelector.match_topic`.

        Raises:
            TooCostlyError: the allowance of long searches is used up.
        """
        is_match = self.selector.match_topic(topic, search_counter)
        if is_match is None:
            self.subscriber.log.emit(
                "14-0003",
                client=self.subscriber.client_name,
                sub_id=self.sub_id,
                pattern=self.selector.text,
                topic=topic,
            )
        return bool(is_match)

    def close(self) -> None:
        """Drop messages that wait for it, and cancel its replay."""
        if self.conflater is not None:
            self.conflater.close()
        if self.replay is not None:
            self.replay.cancel()
