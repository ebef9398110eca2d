"""Acknowledges and delivers the messages of all queues as one task of the engine.

A publisher that sends to many queues wakes all of them with each batch. If each had a task of its
own, a scheduling round would be divided by their number: the publisher would execute a few messages
per slice, and each queue would deliver one or two per slice, at the fixed cost of a slice. So all
queues share one slice. It is deferred while other work goes on and adds to the queues: each queue
then has many messages to deliver at once. Acknowledgements wait for that, too: those of several
reads of a connection are executed together. The more queues and consumers there are, the longer a
pass takes, and the longer it waits: no more than about half of the time goes into passes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.engine.scheduler import Scheduler
    from server.util.task import EngineTask

_MIN_DEFERRAL_S: Final = 0.002
_MAX_DEFERRAL_S: Final = 0.01
"""Limits of the time for which deliveries wait while other work adds to them."""


class DeliveryScheduler:
    """Runs the delivery slices of all queues, and executes acknowledgements before them.

    Args:
        scheduler: the engine's scheduler.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._acknowledgements: deque[Callable[[], None]] = deque()  # to be executed
        self._queues: deque[EngineTask] = deque()  # those with something to do
        self._pass_size = 0  # how many of these still get a slice in the current pass
        self._is_running = False  # whether slices are given out, and not deferred
        self._running_s = 0.0  # processor time since the last deferral
        self._deferral_s = _MIN_DEFERRAL_S

    def add_queue(self, queue: EngineTask) -> None:
        """Give a queue slices until its `step` returns False; it has none now."""
        self._queues.append(queue)
        self.note_addition()

    def add_acknowledgements(self, execute: Callable[[], None]) -> None:
        """Have acknowledgements executed before the next delivery slice of any queue.

        Args:
            execute: executes some; fewer than fill a time slice.
        """
        self._acknowledgements.append(execute)
        self.note_addition()

    def note_addition(self) -> None:
        """Note that a queue with something to do has got more."""
        if not self._is_running:
            self._scheduler.defer_task(self, self._deferral_s)

    @property
    def task_label(self) -> tuple[str, str]:
        """See `EngineTask.task_label`; the work is for all consumers."""
        return "", "queue"

    def step(self) -> bool:
        """Deliver messages of the queues in turn. See `EngineTask.step`."""
        self._is_running = True
        started_s = self._scheduler.processor_time()
        try:
            is_behind = self._acknowledge() or self._run_pass()
        except Exception:  # a defect: the other queues go on
            self._is_running = bool(self._queues or self._acknowledgements)
            if self._is_running:
                self._scheduler.queue_task(self)
            raise
        self._running_s += self._scheduler.processor_time() - started_s
        if is_behind:
            return True
        self._is_running = False
        self._deferral_s = min(max(self._running_s, _MIN_DEFERRAL_S), _MAX_DEFERRAL_S)
        self._running_s = 0.0
        if self._queues:
            self.note_addition()
        return False

    def _acknowledge(self) -> bool:
        """Execute acknowledgements as long as there is time; return whether the slice is over."""
        while self._acknowledgements:
            self._acknowledgements.popleft()()
            if self._is_slice_over():
                return True
        return False

    def _run_pass(self) -> bool:
        """Give each queue a slice, as long as there is time; return whether work is left over."""
        queues = self._queues
        is_behind = False
        if not self._pass_size:
            self._pass_size = len(queues)
        while self._pass_size:
            self._pass_size -= 1
            queue = queues.popleft()
            if queue.step():
                is_behind = True
                queues.append(queue)
            if self._is_slice_over():
                break
        return is_behind or self._pass_size > 0

    def _is_slice_over(self) -> bool:
        return self._scheduler.time_left(self._scheduler.elapsed()) <= 0
