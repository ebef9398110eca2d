"""One action: events wait in its queue, and their runs are executed one at a time, in order.

Theory of operation. Posting an event to an action costs the engine no more than an entry in a
queue. A task on the engine's thread takes the entries: steps that only compute, or only touch the
engine's state, run there for a millisecond at a time, so that messages never wait longer than that;
steps that wait for the operating system are executed by helper threads, each with a timeout.
The queue is bounded; entries beyond the limit are dropped, and their number is logged.

An action that publishes may cause runs of actions, including its own. Each run has the length of
the chain of runs that caused it; a chain that gets too long is a publish loop, and is cut.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from actions.administrative import ADMINISTRATIVE
from actions.context import ActionContext
from actions.module import Condition, Step, StepError
from server.topics.system.audit import INSTANCE_ACTOR

if TYPE_CHECKING:
    from actions.services import ActionServices
    from config_schema.problems import Location

MAX_PENDING_RUNS: Final = 100_000
"""Maximum number of runs in the queue of an action."""

MAX_PENDING_RUN_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of the variables in that queue, messages mostly, in bytes."""

MAX_ACTION_CHAIN_LENGTH: Final = 64
"""Maximum length of a chain of runs before it counts as a loop."""

_SLICE: Final = 0.001
"""Time slice in seconds that runs take of the engine's thread before messages are processed."""


@dataclass(frozen=True, slots=True)
class ActionPart:
    """A Do or If of an action.

    Attributes:
        name: the name of its module.
        module: the module.
        location: where it is configured.
    """

    name: str
    module: Step | Condition
    location: Location


@dataclass(frozen=True, slots=True)
class ActionRun:
    """One completed run of an action.

    Attributes:
        began: its start, in seconds since 1970.
        seconds: its duration.
        cause: the event that caused it.
        failure: why a step failed; empty if none did.
        ended_by: the module that ended it; empty if all parts were executed.
    """

    began: float
    seconds: float
    cause: str
    failure: str = ""
    ended_by: str = ""


class Action:
    """One Action of the configuration.

    Args:
        name: its name in the log.
        parts: its steps and conditions, in order.
        services: the instance.

    Attributes:
        run_count: the number of runs since the start.
        failure_count: the number of failed runs.
        last_run: the last run.
        last_failed_run: the last run that failed.
    """

    def __init__(self, name: str, parts: Sequence[ActionPart], services: ActionServices) -> None:
        self.name = name
        self.run_count = 0
        self.failure_count = 0
        self.last_run: ActionRun | None = None
        self.last_failed_run: ActionRun | None = None
        self._parts = parts
        self._services = services
        self._queue: deque[tuple[ActionContext, asyncio.Future[None] | None]] = deque()
        self._pending_bytes = 0
        self._dropped_count = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """True if so many runs are queued that triggers should hold back further ones."""
        waiting, size = len(self._queue), self._pending_bytes
        return waiting >= MAX_PENDING_RUNS // 2 or size >= MAX_PENDING_RUN_BYTES // 2

    @property
    def pending_runs(self) -> int:
        """The number of runs that have not begun."""
        return len(self._queue)

    def post(self, values: Mapping[str, bytes], cause: str | None = None) -> None:
        """Schedule a run of the action, unless too many runs wait already.

        Args:
            values: the context variables of the event.
            cause: the event, for the log; None for the name of the trigger.
        """
        self._enqueue(values, cause, None)

    async def perform(self, values: Mapping[str, bytes]) -> None:
        """Run the action, and wait until it has finished or is dropped."""
        done = asyncio.get_running_loop().create_future()
        self._enqueue(values, None, done)
        await done

    async def wait_until_idle(self) -> None:
        """Wait until the queue is empty and the last run has ended."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def close(self) -> None:
        """Drop the queued runs, and cancel the current one."""
        self._queue.clear()
        if self._task is not None:
            self._task.cancel()
        for part in self._parts:
            part.module.close()

    def _enqueue(
        self, values: Mapping[str, bytes], cause: str | None, done: asyncio.Future[None] | None
    ) -> None:
        engine, current_run = self._services.engine, self._services.current_run
        depth = 0 if current_run is None else current_run.depth + 1
        context = ActionContext(
            engine.settings.instance_name,
            engine.clock.now(),
            values,
            self.name if cause is None else cause,
            depth,
        )
        if depth > MAX_ACTION_CHAIN_LENGTH:
            engine.log.emit("29-0106", action=self.name, length=MAX_ACTION_CHAIN_LENGTH)
        elif self._has_room(context.size):
            self._queue.append((context, done))
            self._pending_bytes += context.size
            if self._task is None:
                self._start_task()
            return
        if done is not None:
            done.set_result(None)

    def _has_room(self, size: int) -> bool:
        waiting = len(self._queue)
        is_full = waiting >= MAX_PENDING_RUNS or self._pending_bytes + size > MAX_PENDING_RUN_BYTES
        if is_full and waiting:  # a single large one may pass
            if not self._dropped_count:
                self._services.engine.log.emit("29-0107", action=self.name, waiting=waiting)
            self._dropped_count += 1
            return False
        return True

    def _start_task(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._process_queue(), name=self.name)
        self._task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """Log a defect of the task, and continue with the queue."""
        self._task = None
        if not task.cancelled():
            if (error := task.exception()) is not None:
                self._services.engine.log.emit(
                    "01-0004", text=f"action {self.name}", error=repr(error)
                )
            if self._queue:
                self._start_task()

    async def _process_queue(self) -> None:
        began = time.monotonic()
        while self._queue:
            context, done = self._queue.popleft()
            self._pending_bytes -= context.size
            try:
                await self._execute_run(context)
            finally:
                if done is not None and not done.done():
                    done.set_result(None)
            if time.monotonic() - began > _SLICE:
                self._services.engine.flush()
                await asyncio.sleep(0)
                began = time.monotonic()
        self._services.engine.flush()
        self._log_dropped()

    def _log_dropped(self) -> None:
        if self._dropped_count:
            self._services.engine.log.emit("29-0108", action=self.name, count=self._dropped_count)
            self._dropped_count = 0

    async def _execute_run(self, context: ActionContext) -> None:
        began, started_s = self._services.engine.clock.now(), time.monotonic()
        ended_by, failure = await self._execute_parts(context)
        seconds = time.monotonic() - started_s
        self.run_count += 1
        self.last_run = ActionRun(began, seconds, context.cause, failure, ended_by)
        if failure:
            self.failure_count += 1
            self.last_failed_run = self.last_run

    async def _execute_parts(self, context: ActionContext) -> tuple[str, str]:
        """Execute the parts one after the other.

        Returns:
            The module that ended the run, and why it failed; empty if none did.
        """
        log, audit = self._services.engine.log, self._services.engine.audit
        for part in self._parts:
            log.emit("29-0100", module=part.name, event=context.cause)
            if part.name in ADMINISTRATIVE:
                audit.report_action(INSTANCE_ACTOR, part.name, context.cause)
            try:
                if not await self._execute_part(part, context):
                    return part.name, ""
            except (StepError, OSError) as failure:
                reason = _reason(failure)
                log.emit("29-0101", module=part.name, location=part.location, reason=reason)
                return part.name, reason
        return "", ""

    async def _execute_part(self, part: ActionPart, context: ActionContext) -> bool:
        limit = part.module.limit_s(context)
        if limit is None:
            return await _run_module(part.module, context)
        self._services.engine.flush()  # flush first: published messages do not wait for this step
        try:
            async with asyncio.timeout(limit):
                return await _run_module(part.module, context)
        except TimeoutError:
            raise StepError(f"it took longer than {limit:g} seconds") from None


async def _run_module(module: Step | Condition, context: ActionContext) -> bool:
    if isinstance(module, Condition):
        return await module.holds(context)
    await module.run(context)
    return True


def _reason(failure: Exception) -> str:
    if isinstance(failure, OSError):
        prefix = f"{failure.filename}: " if failure.filename is not None else ""
        return f"{prefix}{failure.strerror or failure}"
    return str(failure)
