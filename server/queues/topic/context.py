"""The server's services for queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.queues.topic.delivery_scheduler import DeliveryScheduler
    from server.queues.topic.peers import QueuePeers
    from server.topics.topic_table import TopicTable
    from server.topics.transaction_log import TransactionLog
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog
    from server.util.task import EngineTask


@dataclass(frozen=True, slots=True, eq=False)
class QueueServices:
    """The server's services for queues.

    Attributes:
        log: the transaction log.
        topics: the other topics; used only after all of them exist.
        clock: the time, and timers.
        schedule: schedules work in time slices.
        deliveries: schedules the deliveries of all queues.
        events: the server's log.
        queue_peers: the other instances.
        group: the Group of this instance.
        is_replicated: returns True if this instance replicates a topic, by message type and name.
    """

    log: TransactionLog
    topics: TopicTable
    clock: Clock
    schedule: Callable[[EngineTask], None]
    deliveries: DeliveryScheduler
    events: ServerLog
    queue_peers: QueuePeers
    group: str
    is_replicated: Callable[[str, str], bool]

    @property
    def now_us(self) -> int:
        """The time of the steady clock, which queues use, in microseconds."""
        return int(self.clock.steady() * MICROSECONDS_PER_SECOND)

    def steady_times(self, txids: Sequence[int], timestamps: Sequence[int]) -> Sequence[int]:
        """Return the steady-clock times of log entries, none of them later than now."""
        now_us, wall_clock_lead_us = self.now_us, self.wall_clock_lead_us
        times = self.log.journal.clock_steps.correct_times(txids, timestamps)
        return [min(time - wall_clock_lead_us, now_us) for time in times]

    @property
    def wall_clock_lead_us(self) -> int:
        """Microseconds by which the wall clock is ahead of the steady one."""
        return round(self.clock.wall_offset_s * MICROSECONDS_PER_SECOND)
