"""What action modules may use of the instance that they run in."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from actions.context import Context
    from actions.requests import RequestedAction
    from server.base.clock import Clock
    from server.base.log import Log
    from server.core.hooks import Hooks
    from server.core.internal_client import InternalClient
    from server.core.session import Session
    from server.links.comparing import Comparing
    from server.links.links import Links
    from server.links.replication import Replication
    from server.security.switches import Switches
    from server.statistics.keeper import Keeper
    from server.topics.audit import Audit
    from server.topics.settings import Settings
    from server.topics.stores import Stores
    from server.topics.table import TopicTable
    from server.upkeep.file_watch import FileWatch
    from server.upkeep.journal_keeping import JournalKeeping

_Result = TypeVar("_Result")

_HELPER_THREADS: Final = 8
"""How many steps can wait for the operating system at a time."""


class Transports(Protocol):
    """The transports of the instance."""

    @property
    def names(self) -> tuple[str, ...]:
        """Those that can be opened and closed."""

    @property
    def open_from_start(self) -> Mapping[str, bool]:
        """Those that are opened at the start, and whether they are open now."""

    async def enable(self, name: str) -> None:
        """Open one, if it is not open."""

    async def disable(self, name: str) -> None:
        """Close one and disconnect its clients, if it is open."""


class Helpers:
    """Threads for what would keep the engine's thread waiting."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_HELPER_THREADS, "action")

    async def call(self, function: Callable[[], _Result]) -> _Result:
        """Call a function that waits, on a thread of its own."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    def close(self) -> None:
        """Begin nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class StopRequested(Exception):
    """The instance is to stop before it has started. The text is the signal that asked for it."""


class Signals:
    """Who handles which signal of the process.

    A start can take long, and the event loop does not run meanwhile. Signals are noted from the
    beginning: those that ask for a stop are looked for between the steps of the start, the others
    reach their handlers as soon as there are any.
    """

    def __init__(self) -> None:
        self._handlers: dict[signal.Signals, list[Callable[[], None]]] = {}
        self._noted: dict[signal.Signals, None] = {}
        self._stopping: frozenset[signal.Signals] = frozenset()

    def note(self, numbers: Mapping[signal.Signals, bool]) -> None:
        """Take signals from now on.

        Args:
            numbers: which ones, and whether they end a start that is under way.

        Raises:
            OSError: the process cannot react to one of them.
        """
        self._stopping = frozenset(number for number, stops in numbers.items() if stops)
        for number in numbers:
            signal.signal(number, self._note)

    def check(self) -> None:
        """Go on with the start, unless a signal has asked for a stop.

        Raises:
            StopRequested: one has.
        """
        for number in self._noted:
            if number in self._stopping:
                raise StopRequested(f"signal {number.name}")

    def handle(self, number: signal.Signals, handler: Callable[[], None]) -> None:
        """Call a handler when the signal comes, and soon if it has come already.

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


class Runnable(Protocol):
    """The action that a trigger is for."""

    @property
    def title(self) -> str:
        """The action, for the log."""

    @property
    def is_busy(self) -> bool:
        """Whether so many runs wait that further ones had better wait elsewhere."""

    def post(self, values: Mapping[str, bytes], cause: str | None = None) -> None:
        """Have the action run soon.

        Args:
            values: what the event says about itself.
            cause: the event, for the log; None for the name of the trigger.
        """

    async def perform(self, values: Mapping[str, bytes]) -> None:
        """Have the action run, and wait until it has."""


class Engine(Protocol):
    """The engine, as far as actions know it."""

    @property
    def settings(self) -> Settings:
        """What the configuration says."""

    @property
    def clock(self) -> Clock:
        """The time."""

    @property
    def log(self) -> Log:
        """Where steps say what they have done."""

    @property
    def audit(self) -> Audit:
        """Where they say what those must know who answer for the instance."""

    @property
    def hooks(self) -> Hooks:
        """Tells of what clients do, and of deliveries."""

    @property
    def stores(self) -> Stores:
        """The topics with records."""

    @property
    def topics(self) -> TopicTable:
        """All topics that are in use."""

    @property
    def switches(self) -> Switches:
        """Whether authentication and entitlement are on."""

    @property
    def sessions(self) -> Collection[Session]:
        """The connections."""

    def flush(self) -> None:
        """Let connections have what has been written for them."""


@dataclass(slots=True)
class Services:
    """What there is.

    Attributes:
        engine: sessions and topics, the log and the clock.
        client: makes a client inside the server; takes its name, and the message type that it
            speaks.
        transports: the transports.
        stop: stops the instance; takes who asked for it.
        rotate_logs: lets log files go on in their next file.
        write_minidump: writes a minidump and gives its path, None where they are disabled; waits
            for the disk.
        files: tells of changes to files.
        journals: looks after the files of the transaction log; None if there is none.
        replication: what the instance has of replication; None if it has no part in it.
        links: its links with other instances; None as above.
        comparing: compares records with those of other instances; None as above.
        statistics: keeps the statistics; None if the configuration has no Admin section.
        helpers: threads for what waits.
        signals: signals of the process.
        counters: the counters of amps-action-do-increment-counter.
        listeners: the actions that run on an event that an action raises, by its name.
        minidump_listeners: the actions that run when a minidump has been written.
        requested: the actions that run on a request to the admin interface.
        at_startup: what to run as the last step of starting, in order.
        at_shutdown: what to run as the first step of stopping, in order.
        running: the run that is publishing or raising an event right now.
    """

    engine: Engine
    client: Callable[[str, str], InternalClient]
    transports: Transports
    stop: Callable[[str], None]
    rotate_logs: Callable[[], None]
    write_minidump: Callable[[], Path | None]
    files: FileWatch
    journals: JournalKeeping | None = None
    replication: Replication | None = None
    links: Links | None = None
    comparing: Comparing | None = None
    statistics: Keeper | None = None
    helpers: Helpers = field(default_factory=Helpers)
    signals: Signals = field(default_factory=Signals)
    counters: Counter[str] = field(default_factory=Counter)
    listeners: dict[str, list[Runnable]] = field(default_factory=dict)
    minidump_listeners: list[Runnable] = field(default_factory=list)
    requested: list[RequestedAction] = field(default_factory=list)
    at_startup: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    at_shutdown: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    running: Context | None = None
