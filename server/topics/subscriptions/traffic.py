"""Counters of the output to clients, by origin, for statistics.

Most messages are deliveries of a publish to plain subscriptions. They are not counted here: they
are the rest of the outboxes' totals.
"""

from __future__ import annotations

from server.util.counters import TrafficCounter


class OutputTraffic:
    """Counters of the output to clients.

    Attributes:
        answers: acks, heartbeats, and other frames that are no messages.
        bookmark: messages from the transaction log.
        detached: messages of conflated, paginated and aggregated subscriptions.
        internal: messages for clients inside the server, which get them without a frame.
        queue: messages of queues.
        sow: results of queries.
    """

    def __init__(self) -> None:
        self.answers = TrafficCounter()
        self.bookmark = TrafficCounter()
        self.detached = TrafficCounter()
        self.internal = TrafficCounter()
        self.queue = TrafficCounter()
        self.sow = TrafficCounter()
