"""Gathers facts from the engine: on its thread, in time slices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Final

from server.admin.diagnosis.facts import (
    ClientFacts,
    ConsumerFacts,
    LimitFacts,
    QueryFacts,
    ReplayFacts,
    SubscriptionFacts,
)
from server.engine.replays.replay import Replay
from server.expressions.filter_form import text_of
from server.queues.core.inspection import oldest_lease
from server.queues.topic.queue_topic import QueueTopic
from server.security.permissions import Permission
from server.topics.subscriptions.matching.filter_costs import FilterCost
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.engine.engine import Engine
    from server.engine.session import Session
    from server.queues.core import Consumer
    from server.topics.subscriptions.subscription import Subscription

MAX_LISTED_SUBSCRIPTIONS: Final = 100
"""Subscriptions of a client that are listed one by one."""

_MAX_TOPICS: Final = 500
"""Topics of a subscription for which the cost of its filter is determined."""

_MAX_LIMITS: Final = 20
"""Topics of a subscription for which limits by permissions are listed."""

_BATCH_SIZE: Final = 20
"""Subscriptions, and topics of them, that one time slice handles: some microseconds
each."""


class ClientFactsCollector:
    """Gathers the engine's facts. Its methods are called on the engine's thread.

    Args:
        engine: the engine.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def collect_client(self, number: int, requested_at: float) -> ClientFacts | None:
        """Return the facts about a client.

        Args:
            number: that of its session.
            requested_at: the time of the request, by `perf_counter`.

        Returns:
            The facts; None if the client does not exist, or disconnects meanwhile.
        """
        lag = perf_counter() - requested_at
        session = self._engine.find_session(number)
        if session is None:
            return None
        subscriptions: list[SubscriptionFacts] = []
        examined = 0
        for subscription in list(session.subscriptions.values()):
            facts = self._subscription_facts(session, subscription)
            subscriptions.append(facts)
            examined += 1 + len(facts.costs) + len(facts.limits)
            if examined >= _BATCH_SIZE:
                examined = 0
                await asyncio.sleep(0)
        if not session.is_open:
            return None
        return self._client_facts(session, subscriptions, lag)

    async def collect_filter_costs(self) -> list[FilterCost]:
        """Return the cost of each filter of clients: once for each topic that it is on."""
        costs: dict[tuple[str, str, int], FilterCost] = {}
        examined = 0
        for session in list(self._engine.sessions):
            for subscription in list(session.subscriptions.values()):
                if self._is_filtered(session, subscription):
                    for cost in self._filter_costs(subscription):
                        costs[cost.topic, cost.filter, cost.filter_count] = cost
                        examined += 1
                examined += 1
                if examined >= _BATCH_SIZE:
                    examined = 0
                    await asyncio.sleep(0)
        return list(costs.values())

    def _client_facts(
        self, session: Session, subscriptions: list[SubscriptionFacts], lag: float
    ) -> ClientFacts:
        engine, session_input, outbox = self._engine, session.input, session.outbox
        scheduler = engine.scheduler
        longest_task, elapsed = scheduler.longest_task, scheduler.elapsed()
        listed = sorted(subscriptions, key=_report_priority, reverse=True)[
            :MAX_LISTED_SUBSCRIPTIONS
        ]
        return ClientFacts(
            collected_at=engine.clock.now(),
            number=session.number,
            name=session.client_name,
            connection_name=session.connection_name,
            user=session.user,
            address=session.address,
            transport=session.connection_context.transport,
            message_type=session.message_type,
            version=session.client_version,
            connected_at=session.connected_at,
            has_logged_on=session.is_logged_on,
            last_received_at=session.last_input_s,
            last_command=session.command,
            bytes_in=session_input.bytes_in,
            messages_in=session_input.messages_in,
            bytes_out=outbox.bytes_out,
            messages_out=outbox.messages_out,
            socket_stats=session.read_socket_stats(),
            backlog=session.read_backlog_stats(),
            bytes_behind_queries=outbox.bytes_behind,
            has_waiting_commands=session_input.is_waiting,
            has_blocked_commands=session_input.is_suspended,
            command_memory_bytes=session.command_memory,
            query_seconds=session.query_seconds,
            denied_count=session.denied_reads + session.denied_writes,
            subscriptions=tuple(listed),
            subscription_count=len(subscriptions),
            queries=tuple(
                QueryFacts(query.query_id, query.sub_id or "", elapsed - query.started_at)
                for query in session.queries
            ),
            engine_lag_s=lag,
            waiting_task_count=scheduler.queue_length,
            longest_slice_s=longest_task.seconds,
            longest_slice_task=" of ".join(
                filter(None, (longest_task.task_name, longest_task.client_name))
            ),
            long_slice_count=longest_task.long_task_count,
        )

    def _subscription_facts(
        self, session: Session, subscription: Subscription
    ) -> SubscriptionFacts:
        consumer, conflater = subscription.consumer, subscription.conflater
        content_filter = subscription.content_filter
        return SubscriptionFacts(
            subscription.number,
            subscription.sub_id,
            subscription.selector.text,
            "" if content_filter is None else text_of(content_filter),
            subscription.options or "",
            tuple(self._filter_costs(subscription))
            if self._is_filtered(session, subscription)
            else (),
            subscription.memory_bytes,
            None if conflater is None else conflater.pending_count,
            self._replay_facts(subscription),
            self._consumer_facts(consumer)
            if consumer and self._gets_queue_messages(subscription)
            else None,
            tuple(islice(self._limit_facts(session, subscription), _MAX_LIMITS)),
        )

    def _is_filtered(self, session: Session, subscription: Subscription) -> bool:
        """Return whether a subscription has a filter, of its own or by entitlement."""
        limits = self._limit_facts(session, subscription)
        return subscription.content_filter is not None or any(limit.filter for limit in limits)

    def _limit_facts(self, session: Session, subscription: Subscription) -> Iterator[LimitFacts]:
        """Yield the limits that permissions set for a subscription."""
        selector = subscription.selector
        names = [selector.text]
        if selector.is_regex:
            topic_names = islice(self._engine.topics.topic_names(session.message_type), _MAX_TOPICS)
            names = [name for name in topic_names if selector.matches(name)]
        for topic in names:
            permit = session.get_permit(Permission.READ_TOPIC, topic)
            if permit.is_limited or not permit.is_allowed:
                yield LimitFacts(
                    topic,
                    not permit.is_allowed,
                    permit.filter_text,
                    permit.select_text,
                    permit.rule,
                )

    def _replay_facts(self, subscription: Subscription) -> ReplayFacts | None:
        replay = subscription.replay
        if not isinstance(replay, Replay):
            return None
        log_reader = replay.log_reader
        entries_behind = 0 if log_reader is None else replay.log.last_txid - log_reader.position
        now = self._engine.clock.now()
        return ReplayFacts(
            replay.cursor, replay.is_paused, replay.seconds_behind(now), max(entries_behind, 0)
        )

    def _gets_queue_messages(self, subscription: Subscription) -> bool:
        """Return whether a subscription gets queue messages; where there are queues, any may."""
        attached = self._engine.topics.topics_of(subscription)
        return any(isinstance(topic, QueueTopic) for topic in islice(attached, _MAX_TOPICS))

    def _consumer_facts(self, consumer: Consumer) -> ConsumerFacts:
        queues = self._engine.topics.queues or ()
        leases = [oldest_lease(queue.core, consumer) for queue in queues]
        oldest_lease_us = min(
            (leased_at for leased_at in leases if leased_at is not None), default=None
        )
        return ConsumerFacts(
            consumer.outstanding,
            consumer.max_backlog,
            consumer.requested_backlog,
            consumer.is_held_back,
            None
            if oldest_lease_us is None
            else self._engine.clock.steady() - oldest_lease_us / MICROSECONDS_PER_SECOND,
        )

    def _filter_costs(self, subscription: Subscription) -> Iterator[FilterCost]:
        """Yield the cost of a subscription's filter, on some of its topics if there are many."""
        replay = subscription.replay
        if isinstance(replay, Replay):
            yield from islice(replay.filter_costs(), _MAX_TOPICS)
        for topic in islice(self._engine.topics.topics_of(subscription), _MAX_TOPICS):
            cost = topic.cost_of(subscription)
            if cost is not None:
                yield cost


def _report_priority(subscription: SubscriptionFacts) -> tuple[bool, float, float]:
    """Return a sort key: the more there is to report about a subscription, the greater."""
    has_state = bool(
        subscription.pending_conflated
        or subscription.replay
        or (subscription.consumer and subscription.consumer.leased)
    )
    return has_state, subscription.engine_share, subscription.cost_seconds
