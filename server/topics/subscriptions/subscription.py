"""One subscription of one connection."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import msgspec

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


class Subscription(msgspec.Struct, frozen=True, eq=False):
    """A client's subscription. Replacing a subscription makes a new one with the same id.

    There may be a million, so it is a struct, which is fast to create.

    If its user may see only some messages, or some of their fields, a topic has it in another
    form, in which filter, order and presentation are limited by the permit (entitlement_limits.py).

    Attributes:
        subscriber: the client.
        sub_id: its id, unique among those of the subscriber.
        selector: selects its topics.
        filter: the filter that messages must match, None for all.
        presentation: the form of its messages.
        conflater: holds messages for later ones of the same key to replace; None to send at once.
        sends_deltas: whether changes of records are sent as deltas, with only the differing fields.
        omits_empty_deltas: whether messages in which no field differs are suppressed.
        tracks_focus: whether `oof` messages are sent for records that match no more.
        replay: sends the messages, if they come from the transaction log.
        began_with_query: whether its client got all matching records when it was placed.
        sink: takes the messages of a client inside the server; None for a client's connection.
        options: the options of the command, as sent.
        consumer: its part in queues, None where there are none.
        max_backlog: messages of queues that it requests at one time; None if unspecified.
        memory_bytes: bytes that are held for it as long as it exists; see
            server/engine/commands/memory_account.py.
        held_in: the outbox where its messages wait, None if they go to the connection at once.
        page: the page of the topic's records, if it is paginated; None for all records.
        aggregation: how the topic's records are aggregated; None if they are sent as they are.
        sends_deletions: whether deletions and lifetimes of records are sent from the log as well.
        bookmark: where messages of the log begin, as sent; None for no messages of the log.
        permit: its user's permit for the topic that has it in this form.
        number: unique among all subscriptions of the process.
    """

    subscriber: Session
    sub_id: str
    selector: TopicSelector
    filter: Expr | None = None
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
    memory_bytes: int = 0
    held_in: Outbox | None = None
    sends_deletions: bool = False
    bookmark: str | None = None
    permit: Permit = UNLIMITED
    number: int = msgspec.field(default_factory=count(1).__next__)

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
