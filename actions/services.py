"""The services of an instance that its action modules may use."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from actions.context import ActionContext
    from actions.requests import RequestedAction
    from server.engine.engine import Engine
    from server.engine.internal_client import InternalClient
    from server.engine.maintenance.journal_retention import JournalRetention
    from server.process.file_watch import FileWatch
    from server.replication.anti_entropy.coordinator import AntiEntropyCoordinator
    from server.replication.links.registry import LinkRegistry
    from server.replication.links.replication_state import ReplicationState
    from server.statistics.statistics_thread import StatisticsThread

_Result = TypeVar("_Result")

_HELPER_THREADS: Final = 8
"""Maximum number of steps that can wait for the operating system concurrently."""


class TransportControl(Protocol):
    """The transports of the instance."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the transports that can be opened and closed."""

    @property
    def open_from_start(self) -> Mapping[str, bool]:
        """The transports that open at the start, each mapped to whether it is open now."""

    async def enable(self, name: str) -> None:
        """Open a transport, if it is not open."""

    async def disable(self, name: str) -> None:
        """Close a transport and disconnect its clients, if it is open."""


class ActionThreads:
    """Helper threads for calls that would block the engine's thread."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_HELPER_THREADS, "action")

    async def call(self, function: Callable[[], _Result]) -> _Result:
        """Call a blocking function on a helper thread, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    def close(self) -> None:
        """Cancel the queued calls, and accept no others."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class StopRequestedError(Exception):
    """Raised when a signal stops the start of the instance. The text names the signal."""


class SignalDispatcher:
    """Dispatches signals of the process to handlers.

    A start can take long, and the event loop does not run meanwhile. Signals are recorded from the
    beginning: the start checks between its steps for signals that ask for a stop; the others
    are dispatched as soon as their handlers are added.
    """

    def __init__(self) -> None:
        self._handlers: dict[signal.Signals, list[Callable[[], None]]] = {}
        self._noted: dict[signal.Signals, None] = {}
        self._stopping: frozenset[signal.Signals] = frozenset()

    def note(self, numbers: Mapping[signal.Signals, bool]) -> None:
        """Record signals from now on.

        Args:
            numbers: the signals; true for those that abort a start in progress.

        Raises:
            OSError: the process cannot react to one of them.
        """
        self._stopping = frozenset(number for number, stops in numbers.items() if stops)
        for number in numbers:
            signal.signal(number, self._note)

    def check(self) -> None:
        """Return if the start may continue.

        Raises:
            StopRequestedError: a signal has asked for a stop.
        """
        for number in self._noted:
            if number in self._stopping:
                raise StopRequestedError(f"signal {number.name}")

    def handle(self, number: signal.Signals, handler: Callable[[], None]) -> None:
        """Call a handler on each signal of this number, and soon if one was recorded before.

        Raises:
            OSError: the process cannot react to this signal.
        """
        handlers = self._handlers.setdefault(number, [])
        handlers.append(handler)
        if len(handlers) == 1:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(number, self._receive, number)
            if number in self._noted:
                del self._noted[number]
                loop.call_soon(self._receive, number)

    def _note(self, number: int, _frame: object) -> None:
        self._noted[signal.Signals(number)] = None

    def _receive(self, number: signal.Signals) -> None:
        for handler in self._handlers[number]:
            handler()


class ActionHandle(Protocol):
    """The action that a trigger runs."""

    @property
    def title(self) -> str:
        """The name of the action, for the log."""

    @property
    def is_busy(self) -> bool:
        """True if so many runs are queued that triggers should hold back further ones."""

    def post(self, values: Mapping[str, bytes], cause: str | None = None) -> None:
        """Schedule a run of the action.

        Args:
            values: the context variables of the event.
            cause: the event, for the log; None for the name of the trigger.
        """

    async def perform(self, values: Mapping[str, bytes]) -> None:
        """Run the action, and wait until it has finished."""


@dataclass(slots=True)
class ActionServices:
    """The services of an instance.

    Attributes:
        engine: sessions and topics, the log and the clock.
        client: creates a client inside the server; takes its name and its message type.
        transports: the transports.
        stop: stops the instance; takes the name of the requester.
        rotate_logs: continues the log files in their next files.
        write_minidump: writes a minidump and returns its path, None if minidumps are disabled;
            blocks on the disk.
        files: notifies of changes to files.
        journals: the retention of the transaction log's files; None without a transaction log.
        replication: the replication of the instance; None if it takes no part in any.
        links: its replication links with other instances; None as above.
        comparing: compares records with those of other instances; None as above.
        statistics: stores the statistics; None if the configuration has no Admin section.
        helpers: threads for blocking calls.
        signals: signals of the process.
        counters: the counters of amps-action-do-increment-counter.
        listeners: the actions that run on an event raised by an action, by the event's name.
        minidump_listeners: the actions that run after a minidump has been written.
        requested: the actions that run on a request to the admin interface.
        at_startup: the callbacks for the last step of starting, in order.
        at_shutdown: the callbacks for the first step of stopping, in order.
        running: the run that is publishing or raising an event at this moment.
    """

    engine: Engine
    client: Callable[[str, str], InternalClient]
    transports: TransportControl
    stop: Callable[[str], None]
    rotate_logs: Callable[[], None]
    write_minidump: Callable[[], Path | None]
    files: FileWatch
    journals: JournalRetention | None = None
    replication: ReplicationState | None = None
    links: LinkRegistry | None = None
    comparing: AntiEntropyCoordinator | None = None
    statistics: StatisticsThread | None = None
    helpers: ActionThreads = field(default_factory=ActionThreads)
    signals: SignalDispatcher = field(default_factory=SignalDispatcher)
    counters: Counter[str] = field(default_factory=Counter)
    listeners: dict[str, list[ActionHandle]] = field(default_factory=dict)
    minidump_listeners: list[ActionHandle] = field(default_factory=list)
    requested: list[RequestedAction] = field(default_factory=list)
    at_startup: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    at_shutdown: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    running: ActionContext | None = None
