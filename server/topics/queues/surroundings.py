"""What queues need of the server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from server.base.clock import Clock
    from server.base.log import Log
    from server.base.slices import Sliced
    from server.subscriptions.envelope import Envelope
    from server.subscriptions.rejection import Rejection
    from server.topics.keeper import Keeper
    from server.topics.queues.fabric import Fabric
    from server.topics.stored import TopicWithRecords
    from server.topics.transaction_log import TransactionLog

_MICROSECONDS: Final = 1_000_000


class Target(Protocol):
    """A topic that takes messages."""

    def publish(self, bodies: Sequence[bytes], envelope: Envelope) -> Sequence[Rejection]:
        """See `Topic.publish`."""


class Topics(Protocol):
    """The topics of the server. See `TopicTable`."""

    def find(self, message_type: str, name: str) -> Target:
        """Find a topic, making it if need be."""

    def behind_queue(self, message_type: str, queue: str, name: str) -> Target:
        """The topic that takes what is published to a queue."""

    def has_lost(self, message_type: str, queue: str, topic: str, letters: str) -> bool:
        """Whether a message of a topic may have left a queue, and have a letter in another topic.

        Args:
            message_type: the message type of all three.
            queue: the name of the queue.
            topic: where the message was published.
            letters: where the letter is.

        Returns:
            False if there is no such queue, if the topic does not feed it, or if its letters are
            published somewhere else.
        """

    def lookers_at(self, messages: Keeper) -> TopicWithRecords:
        """Make what tells those who look at a queue, and take nothing."""


class Surroundings:
    """What queues need of the server.

    Attributes:
        log: the transaction log.
        topics: the other topics; asked when everything is there.
        clock: tells the time.
        queue: has work done in slices.
        events: where is written what happens.
        fabric: the other instances.
        group: the Group of this instance.
        is_replicated: whether this instance replicates a topic, by message type and name.
    """

    def __init__(
        self,
        log: TransactionLog,
        topics: Topics,
        clock: Clock,
        queue: Callable[[Sliced], None],
        events: Log,
        fabric: Fabric,
        group: str,
        is_replicated: Callable[[str, str], bool],
    ) -> None:
        self.log: Final = log
        self.topics: Final = topics
        self.clock: Final = clock
        self.queue: Final = queue
        self.events: Final = events
        self.fabric: Final = fabric
        self.group: Final = group
        self.is_replicated: Final = is_replicated

    @property
    def now(self) -> int:
        """The time of the steady clock, in microseconds, which queues use."""
        return int(self.clock.steady() * _MICROSECONDS)

    def steady(self, txids: Sequence[int], timestamps: Sequence[int]) -> Sequence[int]:
        """Return the steady moments of entries of the log, none of them later than now."""
        now, ahead = self.now, self.ahead
        times = self.log.journal.steps.corrected(txids, timestamps)
        return [min(time - ahead, now) for time in times]

    @property
    def ahead(self) -> int:
        """Microseconds by which the wall clock is ahead of the steady one."""
        return round(self.clock.ahead * _MICROSECONDS)
