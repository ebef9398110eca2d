"""The services of an instance that its action modules may use."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from actions.action import Action
    from actions.context import ActionContext
    from server.app.wiring.transport_table import TransportTable
    from server.engine.engine import Engine
    from server.engine.internal_client import InternalClient
    from server.engine.maintenance.backup import InstanceBackup
    from server.engine.maintenance.journal_retention import JournalRetention
    from server.process.file_watch import FileWatch
    from server.replication.anti_entropy.coordinator import AntiEntropyCoordinator
    from server.replication.links.registry import LinkRegistry
    from server.replication.links.replication_state import ReplicationState
    from server.statistics.statistics_thread import StatisticsThread


@dataclass(frozen=True, slots=True)
class RequestedAction:
    """An action that runs on a request.

    Attributes:
        path: the last part of its path.
        name: its display name.
        description: its description, in the words of the configuration.
        required_parameters: parameters that a request must have.
        post: schedules a run; takes the parameters of the request.
    """

    path: str
    name: str
    description: str
    required_parameters: tuple[str, ...]
    post: Callable[[Mapping[str, bytes]], None]


_Result = TypeVar("_Result")

_HELPER_THREADS: Final = 8
"""Maximum number of steps that can wait for the operating system concurrently."""


class ActionThreads:
    """Helper threads for calls that would block the engine's thread."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(_HELPER_THREADS, "action")

    async def call(self, function: Callable[[], _Result]) -> _Result:
        """Call a blocking function on a helper thread, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)

    def close(self) -> None:
        """Cancel the queued calls, and accept no others."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class StopRequestedError(Exception):
    """Raised when a signal stops the start of the instance. The text names the signal."""


class SignalDispatcher:
    """Dispatches signals of the process to handlers.

    A start can take long, and the event loop does not run meanwhile. Signals are recorded from the
    beginning: the start checks between its steps for signals that request a stop; the others
    are dispatched as soon as their handlers are added.
    """

    def __init__(self) -> None:
        self._handlers: dict[signal.Signals, list[Callable[[], None]]] = {}
        self._recorded_signals: dict[signal.Signals, None] = {}
        self._stop_signals: frozenset[signal.Signals] = frozenset()

    def record_signals(self, numbers: Mapping[signal.Signals, bool]) -> None:
        """Record signals from now on.

        Args:
            numbers: the signals; true for each that aborts a start in progress.

        Raises:
            OSError: the process cannot react to one of them.
        """
        self._stop_signals = frozenset(number for number, stops in numbers.items() if stops)
        for number in numbers:
            signal.signal(number, self._record_signal)

    def check_stop_requested(self) -> None:
        """Return if the start may continue.

        Raises:
            StopRequestedError: a signal has requested a stop.
        """
        for number in self._recorded_signals:
            if number in self._stop_signals:
                raise StopRequestedError(f"signal {number.name}")

    def add_handler(self, number: signal.Signals, handler: Callable[[], None]) -> None:
        """Call a handler on each signal of this number, and soon if one was recorded before.

        Raises:
            OSError: the process cannot react to this signal.
        """
        handlers = self._handlers.setdefault(number, [])
        handlers.append(handler)
        if len(handlers) == 1:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(number, self._dispatch, number)
            if number in self._recorded_signals:
                del self._recorded_signals[number]
                loop.call_soon(self._dispatch, number)

    def _record_signal(self, number: int, _frame: object) -> None:
        self._recorded_signals[signal.Signals(number)] = None

    def _dispatch(self, number: signal.Signals) -> None:
        for handler in self._handlers[number]:
            handler()


@dataclass(slots=True)
class ActionServices:
    """The services of an instance.

    Attributes:
        engine: sessions and topics, the log and the clock.
        make_client: creates a client inside the server; takes its name and its message type.
        transports: the transports.
        stop_instance: stops the instance; takes the cause, for the log.
        rotate_logs: continues the log files in their next files.
        write_minidump: writes a minidump and returns its path, None if minidumps are disabled;
            blocks on the disk.
        file_watch: notifies of changes to files.
        journal_retention: the retention of the transaction log's files; None without a transaction
            log.
        backup: makes backups; None until all topics have been recovered.
        replication: the replication of the instance; None if it takes no part in any.
        link_registry: its replication links with other instances; None as above.
        anti_entropy: compares records with those of other instances; None as above.
        statistics: stores the statistics; None if the configuration has no Admin section.
        reload_configuration: reloads the configuration, and raises `StepError` if that is refused
            or fails; None until the operations of the instance are there.
        helper_threads: threads for blocking calls.
        signals: signals of the process.
        counters: the counters of amps-action-do-increment-counter.
        event_listeners: the actions that run on an event raised by an action, by the event's name.
        minidump_listeners: the actions that run after a minidump has been written.
        requested_actions: the actions that run on a request to the admin interface.
        startup_callbacks: the callbacks for the last step of starting, in order.
        shutdown_callbacks: the callbacks for the first step of stopping, in order.
        current_run: the run that is publishing or raising an event at this moment.
    """

    engine: Engine
    make_client: Callable[[str, str], InternalClient]
    transports: TransportTable
    stop_instance: Callable[[str], None]
    rotate_logs: Callable[[], None]
    write_minidump: Callable[[], Path | None]
    file_watch: FileWatch
    journal_retention: JournalRetention | None = None
    backup: InstanceBackup | None = None
    replication: ReplicationState | None = None
    link_registry: LinkRegistry | None = None
    anti_entropy: AntiEntropyCoordinator | None = None
    statistics: StatisticsThread | None = None
    reload_configuration: Callable[[], Awaitable[None]] | None = None
    helper_threads: ActionThreads = field(default_factory=ActionThreads)
    signals: SignalDispatcher = field(default_factory=SignalDispatcher)
    counters: Counter[str] = field(default_factory=Counter)
    event_listeners: dict[str, list[Action]] = field(default_factory=dict)
    minidump_listeners: list[Action] = field(default_factory=list)
    requested_actions: list[RequestedAction] = field(default_factory=list)
    startup_callbacks: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    shutdown_callbacks: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    current_run: ActionContext | None = None
