"""What queues need of the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.base.clock import Clock
    from server.base.log import Log
    from server.base.slices import Sliced
    from server.topics.transaction_log import TransactionLog


class Surroundings:
    """What queues need of the server.

    Attributes:
        log: the transaction log.
        clock: tells the time.
        queue: has work done in slices.
        flush: lets leave what has been written, when a timer has made it.
        events: where is written what happens.
    """

    def __init__(
        self,
        log: TransactionLog,
        clock: Clock,
        queue: Callable[[Sliced], None],
        flush: Callable[[], None],
        events: Log,
    ) -> None:
        self.log: Final = log
        self.clock: Final = clock
        self.queue: Final = queue
        self.flush: Final = flush
        self.events: Final = events
