"""A queue of pending calls of an application's handlers, made one after the other.

The blocking client makes them with `call_all`. The asyncio clients make them in a task, which
awaits the result of each call before the next.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from amperage.client.arguments import call_blocking_callback

HandlerCall: TypeAlias = Callable[[], Awaitable[None] | None]
"""Calls a handler with its arguments."""

StartTask: TypeAlias = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class HandlerCalls:
    """A queue of calls. A call stays in it until it has returned and has been awaited.

    Attributes:
        last_name: the client's argument for the handler that was called last, for errors.
    """

    def __init__(self) -> None:
        self.last_name = ""
        self._calls: deque[tuple[str, HandlerCall]] = deque()
        self._task: asyncio.Task[None] | None = None

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, name: str, call: HandlerCall) -> None:
        """Append a call.

        Args:
            name: the client's argument for the handler.
            call: calls the handler.
        """
        self._calls.append((name, call))

    def call_all(self) -> None:
        """Make all calls.

        Raises:
            TypeError: a handler has returned a coroutine, which a blocking client cannot await.
        """
        while self._calls:
            try:
                call_blocking_callback(*self._calls[0])
            finally:
                self._calls.popleft()

    def start_calls(self, start_task: StartTask) -> asyncio.Task[None] | None:
        """Start a task that makes all calls, and ends with the first that fails.

        Returns:
            The task; None if there is no call to make, or an earlier task makes it.
        """
        if not self._calls or (self._task is not None and not self._task.done()):
            return None
        self._task = start_task(self._await_all())
        return self._task

    async def wait_until_done(self) -> None:
        """Wait until all calls have returned, unless one of them waits here itself."""
        task = self._task
        if task is not None and not task.done() and task is not asyncio.current_task():
            await asyncio.wait([task])

    async def _await_all(self) -> None:
        while self._calls:
            self.last_name, call = self._calls[0]
            try:
                result = call()
                if inspect.isawaitable(result):
                    await result
            finally:
                self._calls.popleft()
