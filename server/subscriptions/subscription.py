"""One subscription of one connection."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Protocol

import msgspec

from server.security.permissions import UNLIMITED
from server.subscriptions.presentation import AS_PUBLISHED, Presentation

if TYPE_CHECKING:
    from server.expressions.effort import Effort
    from server.expressions.topic_names import TopicSelector
    from server.expressions.tree import Expr, OrderTerm
    from server.queues import Consumer
    from server.security.permissions import Permit
    from server.subscriptions.conflation import Conflater
    from server.subscriptions.outbox import Outbox
    from server.subscriptions.sink import Sink
    from server.subscriptions.subscriber import Subscriber
    from server.views.terms import AggregationTerms


@dataclass(frozen=True, slots=True)
class PageTerms:
    """Which page a subscriber asked for.

    Attributes:
        order_by: the order of the records; none if empty.
        start: how many records come before it.
        stop: how many records come before it and on it.
    """

    order_by: tuple[OrderTerm, ...]
    start: int
    stop: int


class Source(Protocol):
    """What sends the messages of a subscription that does not get them from its topics."""

    def cancel(self) -> None:
        """Send nothing more, for ever."""


class Subscription(msgspec.Struct, frozen=True, eq=False):
    """What a subscriber asked for. Replacing a subscription makes a new one with the same id.

    There may be a million, so it is of a kind that is made quickly.

    Where its user may see some messages only, or some of their fields, a topic has it in another
    form, in which filter, order and presentation are what is permitted of these (entitled.py).

    Attributes:
        subscriber: who subscribed.
        sub_id: its id, unique among those of the subscriber.
        selector: the topics that it is for.
        filter: what messages must match, None for all.
        presentation: the form in which messages are wanted.
        conflater: lets messages wait for later ones with the same key; None to send them at once.
        delta: of records that change, only the fields that differ are wanted.
        no_empties: messages in which no field differs are not wanted.
        tracks_focus: wants to hear of records that match no more.
        replay: what sends the messages, if they come from the transaction log.
        began_with_query: its client got all records that matched when it was placed.
        sink: takes the messages of a client inside the server; None for a client's connection.
        options: the options of the command, as sent.
        consumer: its part in queues, None where there are none.
        max_backlog: messages of queues that it asks to have at one time; None if it does not say.
        memory: bytes that are kept for it as long as it is there; see server/commands/memory.py.
        held_in: where its messages wait, None if they go to the connection at once.
        page: which records of the topic it is for, if it is paginated; None for all.
        aggregation: what is made of the topic's records; None if they are sent as they are.
        deletions: of the log, deletions of records are wanted as well, and how long they live.
        bookmark: from where messages of the log are wanted, as sent; None for none of them.
        permit: what its user may see of the topic that has it in this form.
        number: tells it from all others that there have been.
    """

    subscriber: Subscriber
    sub_id: str
    selector: TopicSelector
    filter: Expr | None = None
    presentation: Presentation = AS_PUBLISHED
    conflater: Conflater | None = None
    delta: bool = False
    no_empties: bool = False
    tracks_focus: bool = False
    began_with_query: bool = False
    sink: Sink | None = None
    options: str | None = None
    page: PageTerms | None = None
    aggregation: AggregationTerms | None = None
    replay: Source | None = None
    consumer: Consumer | None = None
    max_backlog: int | None = None
    memory: int = 0
    held_in: Outbox | None = None
    deletions: bool = False
    bookmark: str | None = None
    permit: Permit = UNLIMITED
    number: int = msgspec.field(default_factory=count(1).__next__)

    @property
    def outbox(self) -> Outbox:
        """Where its messages go."""
        return self.held_in or self.subscriber.outbox

    def is_for(self, topic: str, effort: Effort) -> bool:
        """Whether it is for the messages of a topic, as far as the name goes.

        Where that takes too many steps to tell, it is not, and the log says so.

        Args:
            topic: the topic's name.
            effort: counts long searches; see `TopicSelector.decide`.

        Raises:
            TooCostlyError: there have been enough of them.
        """
        decided = self.selector.decide(topic, effort)
        if decided is None:
            self.subscriber.log.emit(
                "14-0003",
                client=self.subscriber.client_name,
                sub_id=self.sub_id,
                pattern=self.selector.text,
                topic=topic,
            )
        return bool(decided)

    def close(self) -> None:
        """Let go of what waits for it."""
        if self.conflater is not None:
            self.conflater.close()
        if self.replay is not None:
            self.replay.cancel()
