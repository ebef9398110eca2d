"""Drains an instance: it stops once clients and other instances have what it owes them.

    begin                 listeners are closed, queues deliver nothing more
      no leases           reading from clients stops
        all settled       the instance stops

Publishers go on while consumers finish their leases. Then nothing is read from clients any more, so
that the commands that have been read can be executed, stored, replicated and acknowledged. What a
publisher has sent and the instance has not read is not acknowledged: its client publishes it again
elsewhere, or after the restart. If the time is over, the instance serves again, or stops anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from server.transports.listener import TransportError

if TYPE_CHECKING:
    from actions.services import ActionServices
    from server.app.wiring.transport_table import TransportTable
    from server.engine.engine import Engine

SERVING: Final = "serving"
DRAINING: Final = "draining"
DRAINED: Final = "drained"
NOT_DRAINED: Final = "not drained"
STOPPING: Final = "stopping"
"""The states; except for the first and third, the reasons follow."""

_CHECK_INTERVAL_S: Final = 0.05
_REPORT_S: Final = 1.0
"""Seconds between the end of the drain and the stop, in which the state can be read."""
_MAX_REASONS: Final = 20


class DrainError(Exception):
    """A drain cannot begin or end. The text is for the operator."""


class InstanceDrain:
    """Drains one instance; used on the engine's thread.

    Args:
        engine: its sessions and queues.
        transports: its transports.
        services: has its replication.
        stop_instance: stops it; takes the cause, for the log.
    """

    def __init__(
        self,
        engine: Engine,
        transports: TransportTable,
        services: ActionServices,
        stop_instance: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._transports = transports
        self._services = services
        self._stop_instance = stop_instance
        self._state = SERVING
        self._reasons: list[str] = []
        self._task: asyncio.Task[None] | None = None
        self._is_cancelled = False
        self._exclusions = 0

    @property
    def state(self) -> str:
        """The state, and the steps that remain or have failed."""
        return f"{self._state}: {'; '.join(self._reasons)}" if self._reasons else self._state

    @property
    def is_active(self) -> bool:
        """Whether the instance takes no new clients because of it."""
        return self._task is not None

    @contextmanager
    def excluded(self) -> Iterator[None]:
        """Let no drain begin meanwhile.

        Raises:
            DrainError: the instance is being drained.
        """
        if self._task is not None:
            raise DrainError("the instance is being drained")
        self._exclusions += 1
        try:
            yield
        finally:
            self._exclusions -= 1

    def begin(self, timeout_s: float, *, is_forced: bool) -> None:
        """Begin to drain the instance.

        Args:
            timeout_s: seconds that it may take.
            is_forced: whether the instance stops after that time, whatever is left.

        Raises:
            DrainError: it is being drained already, or its configuration is being reloaded.
        """
        if self._task is not None:
            raise DrainError("the instance is being drained already")
        if self._exclusions:
            raise DrainError("its configuration is being reloaded")
        self._state, self._reasons, self._is_cancelled = DRAINING, [], False
        self._engine.log.emit("00-0055", seconds=timeout_s)
        self._task = asyncio.get_running_loop().create_task(self._run(timeout_s, is_forced))

    def cancel(self) -> None:
        """Let the instance serve again.

        Raises:
            DrainError: it is not being drained, or it stops already.
        """
        if self._task is None or self._state != DRAINING:
            raise DrainError(f"there is no drain to cancel: {self._state}")
        self._is_cancelled = True
        self._task.cancel()

    def close(self) -> None:
        """End it because the instance stops for another reason, and open nothing again."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self, timeout_s: float, is_forced: bool) -> None:
        names = await self._transports.stop_accepting()
        self._set_delivery_paused(is_paused=True)
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_for(self._unfinished_leases)
                self._set_reading_stopped(is_stopped=True)
                await self._wait_for(self._unfinished)
        except TimeoutError:
            if not is_forced:
                await self._resume(names)
                return
            self._state = STOPPING
            self._engine.log.emit("00-0057", reasons="; ".join(self._reasons))
        except asyncio.CancelledError:
            if not self._is_cancelled:
                raise
            self._reasons = ["cancelled"]
            await self._resume(names)
            return
        else:
            self._state = DRAINED
            self._engine.log.emit("00-0056")
        await asyncio.sleep(_REPORT_S)
        self._stop_instance("a drain")

    async def _resume(self, transports: list[str]) -> None:
        """Serve again as before."""
        self._set_reading_stopped(is_stopped=False)
        self._set_delivery_paused(is_paused=False)
        for name in transports:
            try:
                await self._transports.enable(name)
            except TransportError as error:
                self._reasons.append(f"transport {name} is closed: {error}")
        self._engine.flush()
        self._engine.log.emit("00-0058", reasons="; ".join(self._reasons))
        self._state = NOT_DRAINED
        self._task = None

    async def _wait_for(self, find_reasons: Callable[[], Iterator[str]]) -> None:
        """Wait until there is nothing left to be done."""
        while reasons := list(find_reasons()):
            more = len(reasons) - _MAX_REASONS
            self._reasons = reasons[:_MAX_REASONS] + ([f"{more} more"] if more > 0 else [])
            await asyncio.sleep(_CHECK_INTERVAL_S)
        self._reasons = []

    def _set_delivery_paused(self, *, is_paused: bool) -> None:
        queues = self._engine.topics.queues
        if queues is not None:
            queues.set_delivery_paused(is_paused)

    def _set_reading_stopped(self, *, is_stopped: bool) -> None:
        for listener in self._transports.listeners:
            listener.set_reading_stopped(is_stopped)

    def _unfinished_leases(self) -> Iterator[str]:
        """Yield for each queue how many of its messages are leased, and destinations that are away.

        A destination that lacks messages and cannot get them is waited for with publishers at work.
        """
        for queue in self._engine.topics.queues or ():
            if leased := queue.core.leased_count:
                yield f"queue {queue.name}: {_count(leased, 'message')} leased"
        replication = self._services.replication
        if replication is not None:
            for lag in replication.destination_lags():
                if not replication.destinations[lag.destination].is_connected:
                    yield f"destination {lag.destination} lacks messages and is not connected"

    def _unfinished(self) -> Iterator[str]:
        """Yield the steps that remain once clients are not read any more."""
        yield from self._unfinished_leases()
        sessions = self._engine.sessions
        if busy := sum(session.input.is_waiting for session in sessions):
            yield f"{_count(busy, 'client')} with commands that are not executed"
        if pending := sum(session.persisted_acks.has_pending for session in sessions):
            yield f"{_count(pending, 'publisher')} waiting for acknowledgements"
        yield from self._unfinished_log()

    def _unfinished_log(self) -> Iterator[str]:
        """Yield descriptions of data not stored yet: here, or at a connected destination."""
        for queue in self._engine.topics.queues or ():
            if not queue.queue_journal.is_up_to_date:
                yield f"queue {queue.name}: events that are not recorded"
        log = self._engine.transaction_log
        if log is not None and log.journal_durable_txid() < log.last_txid:
            yield "messages that are not on stable storage"
        replication = self._services.replication
        if replication is not None:
            for lag in replication.destination_lags():
                if replication.destinations[lag.destination].is_connected:
                    yield f"destination {lag.destination} lacks messages"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
