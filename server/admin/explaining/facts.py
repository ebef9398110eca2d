"""What the engine knows of a client, at one moment: values that nobody changes any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.core.readings import Readings
    from server.subscriptions.filter_costs import FilterCost
    from server.subscriptions.slow_clients import Kept


@dataclass(frozen=True, slots=True)
class ReplayFacts:
    """What a bookmark subscription reads.

    Attributes:
        cursor: what reads for it: a number for a reading of its own, "tail", or nothing.
        is_paused: whether its client wants nothing for now.
        seconds_behind: the age of what it was sent last, if there is more.
        entries_behind: entries of the log, of any topic, that have not been read for it.
    """

    cursor: str
    is_paused: bool
    seconds_behind: float
    entries_behind: int

    @property
    def is_behind(self) -> bool:
        """Whether it reads for itself, and there is more."""
        return self.cursor.isdigit() and self.entries_behind > 0


@dataclass(frozen=True, slots=True)
class ConsumerFacts:
    """What a subscription has of queues.

    Attributes:
        leased: messages that it has and has not acknowledged.
        most: how many it may have.
        asked_for: the max_backlog of the subscription.
        is_held_back: whether it gets none for now, because its client does not read.
        oldest_lease: seconds for which it has had what it has had for longest; None for nothing.
    """

    leased: int
    most: int
    asked_for: int
    is_held_back: bool
    oldest_lease: float | None


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """What a user's permission keeps from them of a topic.

    Attributes:
        topic: the topic.
        is_closed: whether they may not read it at all.
        filter: what messages have to match, empty for nothing.
        select: which fields they may see, empty for all.
        rule: what says so, as the entitlement module names it.
    """

    topic: str
    is_closed: bool
    filter: str
    select: str
    rule: str


@dataclass(frozen=True, slots=True)
class SubscriptionFacts:
    """A subscription.

    Attributes:
        number: its id in /amps/instance/subscriptions.
        sub_id: its own id.
        topic: the topic or expression.
        filter: the filter, empty for none.
        options: the options, as sent.
        costs: what its filter costs, on each topic.
        memory: bytes that are kept for it as long as it is there.
        conflated: messages that wait to be conflated; None if they are not.
        replay: what it reads of the log; None if nothing.
        consumer: what it has of queues; None if it does not consume.
        limits: what permissions keep from it, on some of its topics.
    """

    number: int
    sub_id: str
    topic: str
    filter: str
    options: str
    costs: tuple[FilterCost, ...]
    memory: int
    conflated: int | None
    replay: ReplayFacts | None
    consumer: ConsumerFacts | None
    limits: tuple[LimitFacts, ...]

    @property
    def share(self) -> float:
        """The part of the engine's time that its filter takes, lately."""
        return sum(cost.share for cost in self.costs)

    @property
    def cost_seconds(self) -> float:
        """What its filter has taken so far."""
        return sum(cost.seconds for cost in self.costs)

    @property
    def seconds_each(self) -> float | None:
        """What its filter takes of a message, on the topic where it is most; None if unknown."""
        return max((cost.seconds_each for cost in self.costs if cost.looks), default=None)


@dataclass(frozen=True, slots=True)
class QueryFacts:
    """A query under way.

    Attributes:
        query_id: its id.
        sub_id: the subscription that goes with it, empty for none.
        seconds: since it began.
    """

    query_id: str
    sub_id: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """A client.

    Attributes:
        moment: when this was so, in seconds since 1970.
        number: its id in /amps/instance/clients.
        name: the name that it logged on with, the connection's before.
        connection_name: the connection's name.
        user: as whom it has logged on.
        address: where it is.
        transport: the transport that it came through.
        message_type: that of the connection; empty before the logon.
        version: what it says of its version.
        connected_at: since when, in seconds since 1970.
        has_logged_on: whether it has said who it is.
        last_heard: when it last sent anything, in seconds since 1970.
        last_command: the command obeyed last, in a word.
        bytes_in: bytes received.
        messages_in: messages and commands received.
        bytes_out: bytes sent.
        messages_out: messages and acks sent.
        readings: what is on its way in its socket.
        kept: what is kept for it, and within which limits; None if nothing ever is.
        behind_queries: bytes that wait for results of queries to leave before them.
        commands_wait: whether commands of it wait for their turn.
        commands_are_held: whether they wait for others to be done.
        memory_of_commands: bytes that its subscriptions and queries take.
        query_seconds: time spent on its queries.
        denied: how often its user was refused to read or to write.
        subscriptions: those of its subscriptions that most can be said about.
        subscription_count: how many it has.
        queries: its queries under way.
        engine_lag: seconds until the engine had time to say this.
        engine_waiting: how many wait for a slice of the engine's time.
        longest_turn: seconds that the longest piece of work has taken since the start.
        longest_work: what it was, and for whom.
        long_turns: how many have taken more than a tenth of a second.
    """

    moment: float
    number: int
    name: str
    connection_name: str
    user: str
    address: str
    transport: str
    message_type: str
    version: str
    connected_at: float
    has_logged_on: bool
    last_heard: float
    last_command: str
    bytes_in: int
    messages_in: int
    bytes_out: int
    messages_out: int
    readings: Readings
    kept: Kept | None
    behind_queries: int
    commands_wait: bool
    commands_are_held: bool
    memory_of_commands: int
    query_seconds: float
    denied: int
    subscriptions: tuple[SubscriptionFacts, ...]
    subscription_count: int
    queries: tuple[QueryFacts, ...]
    engine_lag: float
    engine_waiting: int
    longest_turn: float
    longest_work: str
    long_turns: int

    @property
    def unread(self) -> int:
        """Bytes that it has been sent and has not read, wherever they are."""
        return self.readings.kept + self.readings.sending

    @property
    def is_behind(self) -> bool:
        """Whether its socket does not take what there is for it."""
        return self.readings.kept > 0
