"""The waiting tasks of an asyncio client; `amperage.client.state_lock` has the waiting threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from amperage.client.time_limit import TimeLimit


class Waiters:
    """The waiting tasks of a client, on all its connections.

    Attributes:
        urgent_count: the number of tasks that wait for anything other than messages of a stream.
        on_wait: a callback for a task that begins to wait.
    """

    def __init__(self) -> None:
        self._conditions: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.urgent_count = 0
        self.on_wait: Callable[[], None] | None = None

    async def wait_until(
        self, arrived: Callable[[], bool], limit: TimeLimit, what: str, *, is_urgent: bool
    ) -> None:
        """Wait until a condition is met.

        Args:
            arrived: the condition.
            limit: the timeout.
            what: the name of the expected event, for the error.
            is_urgent: whether to read on even if too many messages wait in streams.

        Raises:
            TimedOutError: the condition was not met in time.
        """
        if arrived():
            return
        future = asyncio.get_running_loop().create_future()
        self._conditions[future] = arrived
        self.urgent_count += is_urgent
        try:
            if self.on_wait is not None:
                self.on_wait()
            async with asyncio.timeout(limit.remaining_s):
                await future
        except TimeoutError:
            raise limit.timeout_error(what) from None
        finally:
            self.urgent_count -= is_urgent
            del self._conditions[future]

    def wake(self) -> None:
        """Wake the tasks whose conditions are met."""
        for future, arrived in self._conditions.items():
            if not future.done() and arrived():
                future.set_result(None)

    def start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine in a new task, and wake the tasks that wait for its effect."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.wake()
