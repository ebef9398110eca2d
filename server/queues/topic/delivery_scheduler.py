"""Delivers the messages of all queues as one task of the engine.

A publisher that sends to many queues wakes all of them with each batch. If each had a task of its
own, a scheduling round would be divided by their number: the publisher would execute a few messages
per slice, and each queue would deliver one or two per slice, at the fixed cost of a slice. So all
queues share one slice. It is deferred while other work goes on and adds to the queues: each queue
then has many messages to deliver at once.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.engine.scheduler import Scheduler
    from server.util.task import EngineTask


class DeliveryScheduler:
    """Runs the delivery slices of all queues.

    Args:
        scheduler: the engine's scheduler.
    """

    __slots__ = ("_is_running", "_pass_size", "_queues", "_scheduler")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._queues: deque[EngineTask] = deque()  # those with something to do
        self._pass_size = 0  # how many of these still get a slice in the current pass
        self._is_running = False  # whether slices are given out, and not deferred

    def add_queue(self, queue: EngineTask) -> None:
        """Give a queue slices until its `step` returns False; it has none now."""
        self._queues.append(queue)
        self.note_addition()

    def note_addition(self) -> None:
        """Note that a queue with something to do has got more."""
        if not self._is_running:
            self._scheduler.defer_task(self)

    @property
    def task_label(self) -> tuple[str, str]:
        """See `EngineTask.task_label`; the work is for all consumers."""
        return "", "queue"

    def step(self) -> bool:
        """Deliver messages of the queues in turn. See `EngineTask.step`."""
        self._is_running = True
        if not self._pass_size:
            self._pass_size = len(self._queues)
        try:
            is_behind = self._run_pass()
        except Exception:  # a defect: the other queues go on
            self._is_running = bool(self._queues)
            if self._queues:
                self._scheduler.queue_task(self)
            raise
        if is_behind:
            return True
        self._is_running = False
        if self._queues:
            self._scheduler.defer_task(self)
        return False

    def _run_pass(self) -> bool:
        """Give each queue a slice, as long as there is time; return whether work is left over."""
        scheduler, queues = self._scheduler, self._queues
        is_behind = False
        while self._pass_size:
            self._pass_size -= 1
            queue = queues.popleft()
            if queue.step():
                is_behind = True
                queues.append(queue)
            if scheduler.time_left(scheduler.elapsed()) <= 0:
                break
        return is_behind or self._pass_size > 0
