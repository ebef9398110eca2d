"""The engine's facts about a client, at one moment: immutable values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.engine.socket_stats import SocketStats
    from server.topics.subscriptions.limits.slow_clients import BacklogStats
    from server.topics.subscriptions.matching.filter_costs import FilterCost


@dataclass(frozen=True, slots=True)
class ReplayFacts:
    """The replay of a bookmark subscription.

    Attributes:
        cursor: its reader: a number for a reader of its own, "tail", or nothing.
        is_paused: whether its client has paused it.
        seconds_behind: the age of the last entry sent to it, if there are more.
        entries_behind: entries of the log, of any topic, that have not been read for it.
    """

    cursor: str
    is_paused: bool
    seconds_behind: float
    entries_behind: int

    @property
    def is_behind(self) -> bool:
        """Whether it has a reader of its own, and there are more entries."""
        return self.cursor.isdigit() and self.entries_behind > 0


@dataclass(frozen=True, slots=True)
class ConsumerFacts:
    """The queue messages of a subscription.

    Attributes:
        leased: messages that it has and has not acknowledged.
        lease_limit: the maximum that it may have.
        requested_backlog: the max_backlog of the subscription.
        is_throttled: whether it gets none for now, because its client does not read.
        oldest_lease_age_s: seconds since its oldest lease began; None for no lease.
    """

    leased: int
    lease_limit: int
    requested_backlog: int
    is_throttled: bool
    oldest_lease_age_s: float | None


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """The limits that a user's permission sets for a topic.

    Attributes:
        topic: the topic.
        is_read_denied: whether the user may not read it at all.
        filter: the filter that messages have to match, empty for none.
        select: the fields that the user may see, empty for all.
        rule: the rule that sets these limits, as the entitlement module names it.
    """

    topic: str
    is_read_denied: bool
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
        costs: the cost of its filter, on each topic.
        memory_bytes: bytes that are retained for it as long as it exists.
        pending_conflated: messages that wait to be conflated; None without conflation.
        replay: its replay of the log; None for none.
        consumer: its queue messages; None if it is no consumer.
        limits: its limits by permissions, on some of its topics.
    """

    number: int
    sub_id: str
    topic: str
    filter: str
    options: str
    costs: tuple[FilterCost, ...]
    memory_bytes: int
    pending_conflated: int | None
    replay: ReplayFacts | None
    consumer: ConsumerFacts | None
    limits: tuple[LimitFacts, ...]

    @property
    def engine_share(self) -> float:
        """The share of the engine's time that its filter takes, lately."""
        return sum(cost.engine_share for cost in self.costs)

    @property
    def cost_seconds(self) -> float:
        """The seconds that its filter has taken so far."""
        return sum(cost.total_seconds for cost in self.costs)

    @property
    def seconds_per_message(self) -> float | None:
        """The filter's time per message, on the topic where it is highest; None if unknown."""
        return max(
            (cost.seconds_per_message for cost in self.costs if cost.sample_count), default=None
        )


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
        collected_at: when the facts were gathered, in seconds since 1970.
        number: its id in /amps/instance/clients.
        name: the name that it logged on with, the connection's before.
        connection_name: the connection's name.
        user: the user that it is logged on as.
        address: its address.
        transport: the transport that it came through.
        message_type: that of the connection; empty before the logon.
        version: the version that it reports.
        connected_at: since when, in seconds since 1970.
        has_logged_on: whether it has logged on.
        last_received_at: when it last sent anything, in seconds since 1970.
        last_command: the command executed last, in a word.
        bytes_in: bytes received.
        messages_in: messages and commands received.
        bytes_out: bytes sent.
        messages_out: messages and acks sent.
        socket_stats: the state of its socket and buffers.
        backlog: its output buffer, and the buffer's limits; None if it never has one.
        bytes_behind_queries: bytes that wait until results of queries are sent.
        has_waiting_commands: whether commands of it wait for a time slice.
        has_blocked_commands: whether they wait until others have ended.
        command_memory_bytes: bytes that its subscriptions and queries take.
        query_seconds: time spent on its queries.
        denied_count: how often its user was refused to read or to write.
        subscriptions: its subscriptions with the most to report.
        subscription_count: the number of all.
        queries: its queries under way.
        engine_lag_s: seconds until the engine had time to answer.
        waiting_task_count: tasks that wait for a time slice of the engine.
        longest_slice_s: seconds that the longest time slice has taken since the start.
        longest_slice_task: its task, and the client of the task.
        long_slice_count: slices that have taken more than a tenth of a second.
    """

    collected_at: float
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
    last_received_at: float
    last_command: str
    bytes_in: int
    messages_in: int
    bytes_out: int
    messages_out: int
    socket_stats: SocketStats
    backlog: BacklogStats | None
    bytes_behind_queries: int
    has_waiting_commands: bool
    has_blocked_commands: bool
    command_memory_bytes: int
    query_seconds: float
    denied_count: int
    subscriptions: tuple[SubscriptionFacts, ...]
    subscription_count: int
    queries: tuple[QueryFacts, ...]
    engine_lag_s: float
    waiting_task_count: int
    longest_slice_s: float
    longest_slice_task: str
    long_slice_count: int

    @property
    def unread_bytes(self) -> int:
        """Bytes that it has been sent and has not read, in any buffer."""
        return self.socket_stats.unsent_bytes + self.socket_stats.unacked_bytes

    @property
    def is_behind(self) -> bool:
        """Whether its socket does not take all the bytes for it."""
        return self.socket_stats.unsent_bytes > 0
