"""The transports of one instance: their construction, and opening and closing them by name.

The start of the instance, and enabling or disabling a transport at run time, share the same
functions.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from config_schema.spec import InstanceSpec, TransportSpec
from server.app.wiring.sql_transports import ConsoleSql, SqlTransports
from server.app.wiring.transport_factory import ConfiguredTransport, TransportFactory, make_pool
from server.engine.engine import Engine
from server.replication.transport.connector import ReplicationConnector
from server.topics.subscriptions.limits.client_limits import has_own_pool, limits_of
from server.topics.subscriptions.limits.slow_clients import ClientPool
from server.transports.io_threads import IoThreads
from server.transports.listener import Listener, TransportError
from server.transports.tls import watch_files

if TYPE_CHECKING:
    import ssl

    from server.process.file_watch import FileWatch
    from server.replication.links.registry import LinkRegistry
    from server.statistics.statistics_thread import StatisticsThread

_FEW_PROCESSORS: Final = 2
_SOME_PROCESSORS: Final = 6

IO_THREADS_VARIABLE: Final = "AMPERAGE_IO_THREADS"
"""The variable of the environment with the number of I/O threads where Tuning/IOThreads is absent,
for tests."""


@dataclass(frozen=True, slots=True)
class PreparedTransports:
    """The transports of another configuration, prepared to take the place of the present ones.

    Attributes:
        spec: the instance's description.
        transports: all transports, by name, in the order of the configuration.
        added: those that are opened, or may be opened later.
        removed: those that are closed, with their connections.
        tls_contexts: the TLS contexts of transports that stay, by name.
    """

    spec: InstanceSpec
    transports: dict[str, ConfiguredTransport]
    added: list[ConfiguredTransport]
    removed: list[ConfiguredTransport]
    tls_contexts: dict[str, ssl.SSLContext]

    def discard(self) -> None:
        """Release the sockets; nothing has changed."""
        for transport in self.added:
            transport.listener.discard_prepared()


class TransportTable:
    """The transports of an instance, by name.

    Args:
        spec: the instance's description.
        engine: the engine that serves their connections.

    Attributes:
        replication_connector: connects to the destinations of replication; None without it.

    Raises:
        TransportError: a transport's filters cannot be made, its message type does not suit its
            protocol, or the directory for its slow clients cannot be made.
    """

    def __init__(self, spec: InstanceSpec, engine: Engine) -> None:
        self._spec = spec
        self._engine = engine
        self._shared_pool = make_pool(limits_of(spec.limits))
        self._sql = SqlTransports(engine)
        self._links: LinkRegistry | None = None
        self.replication_connector: ReplicationConnector | None = None
        self._file_watch: FileWatch | None = None
        self._io_threads: IoThreads | None = None
        factory = self._make_factory(spec)
        self._transports = {
            transport.name: factory.make(transport) for transport in spec.transports
        }
        for transport in self._transports.values():
            engine.security_switches.transports.append(transport.security)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the transports that can be opened and closed."""
        return tuple(self._transports)

    @property
    def pools(self) -> tuple[ClientPool, ...]:
        """The groups of clients that share limits for their output buffers."""
        pools_used = dict.fromkeys(
            listener.transport_context.client_pool for listener in self.listeners
        )
        return tuple(pools_used)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """All listeners, open or not."""
        return tuple(transport.listener for transport in self._transports.values())

    @property
    def console_sql(self) -> ConsoleSql:
        """The first transport through which the console can execute statements; on any thread."""
        offers = [one.console_sql for one in self._transports.values() if one.console_sql]
        usable = (offer for offer in offers if offer.transport is not None)
        return next(usable, offers[-1] if offers else ConsoleSql())

    @property
    def open_from_start(self) -> dict[str, bool]:
        """The transports that `open` opens, each with True if it is open now."""
        return {
            listener.spec.name: listener.is_open
            for listener in self.listeners
            if self._opens_from_start(listener.spec)
        }

    def set_links(self, links: LinkRegistry) -> None:
        """Serve replication from now on. Called before any transport is opened.

        Args:
            links: the links that use the connections between instances.
        """
        self._links = links
        self.replication_connector = ReplicationConnector(self._engine, links)

    def set_statistics(self, statistics: StatisticsThread) -> None:
        """Show statistics as tables from now on. Called before any transport is opened."""
        self._sql.statistics = statistics

    async def open(self) -> None:
        """Open the transports that are enabled from the start (InitialState).

        Then connect to the destinations.

        Raises:
            TransportError: one of them cannot be opened. The ones before it are open.
        """
        self._start_io_threads()
        for name in self.open_from_start:
            await self._find(name).open()
        connector = self.replication_connector
        if connector is not None:
            connector.start(connector.prepare(self._spec.replication, self._spec.modules))

    async def close(self) -> None:
        """Close all transports, in reverse order; clients' connections stay open.

        The I/O threads end once the sockets of clients have taken what they take at once.
        """
        if self.replication_connector is not None:
            await self.replication_connector.close()
        for listener in reversed(self.listeners):
            await listener.close()
        self._sql.close()
        if self._links is not None:
            self._links.close()
        if self._io_threads is not None:
            asyncio.get_running_loop().remove_reader(self._io_threads.fileno())
            self._io_threads.stop()
            self._io_threads = None

    def _start_io_threads(self) -> None:
        count = io_thread_count(self._spec.tuning.io_threads)
        if not count:
            return
        try:
            self._io_threads = IoThreads(count, self._engine.outboxes.pending_outboxes)
        except OSError as error:
            raise TransportError(
                f"Tuning/IOThreads: {count} threads cannot be started: {error.strerror}"
            ) from None
        loop = asyncio.get_running_loop()
        loop.add_reader(self._io_threads.fileno(), self._io_threads.reap_writes)

    async def stop_accepting(self) -> list[str]:
        """Close the listeners that are open, and return their names; connections stay open."""
        listeners = [listener for listener in self.listeners if listener.is_open]
        for listener in listeners:
            await listener.close()
        return [listener.spec.name for listener in listeners]

    async def enable(self, name: str) -> None:
        """Open a transport, if it is not open.

        Raises:
            TransportError: no transport has this name, or it cannot be opened.
        """
        listener = self._find(name)
        if not self._can_open(listener.spec):
            raise TransportError(
                f"transport {name} takes what other instances replicate, and there is no "
                "TransactionLog to record it in"
            )
        if not listener.is_open:
            self._engine.log.emit("07-0048", transport=name)
            await listener.open()

    async def disable(self, name: str) -> None:
        """Close a transport and disconnect its clients, if it is open.

        Raises:
            TransportError: no transport has this name.
        """
        listener = self._find(name)
        if listener.is_open:
            self._engine.log.emit("07-0047", transport=name)
            await listener.close()
            listener.disconnect_all("")  # the entry above has the reason; real servers give none

    def prepare(
        self, spec: InstanceSpec, replaced: Collection[str], secured: Collection[str]
    ) -> PreparedTransports:
        """Prepare the transports of another configuration: modules, certificates and sockets.

        Args:
            spec: the instance's description.
            replaced: transports of both configurations that are closed and opened anew.
            secured: transports of both with other certificates or settings of TLS.

        Raises:
            TransportError: one of them cannot be made or opened; nothing has changed.
        """
        factory = self._make_factory(spec)
        names = {transport.name for transport in spec.transports}
        removed = {
            name: transport
            for name, transport in self._transports.items()
            if name not in names or name in replaced
        }
        prepared = PreparedTransports(spec, {}, [], list(removed.values()), {})
        try:
            for transport in spec.transports:
                kept = None if transport.name in removed else self._transports.get(transport.name)
                prepared.transports[transport.name] = kept or factory.make(transport)
                if kept is None:
                    prepared.added.append(prepared.transports[transport.name])
                elif transport.name in secured:
                    context = kept.listener.make_tls_context(transport)
                    prepared.tls_contexts[transport.name] = context
            for added in prepared.added:
                if self._opens_after_reload(added.listener.spec):
                    added.listener.prepare(_find_predecessor(added, prepared.removed))
        except BaseException:
            prepared.discard()
            raise
        return prepared

    async def apply(self, prepared: PreparedTransports) -> None:
        """Replace the transports with those of another configuration, and apply its limits.

        Raises:
            Exception: a transport has failed to open, which is a defect; all else is applied.
        """
        failures: list[Exception] = []
        switches = self._engine.security_switches
        for added in prepared.added:
            switches.transports.append(added.security)
            self._watch_certificate(added)
            if self._opens_after_reload(added.listener.spec):
                try:
                    await added.listener.open()
                except Exception as error:
                    failures.append(error)
        for removed in prepared.removed:
            switches.transports.remove(removed.security)
            _end_watches(removed)
            await removed.listener.close()
            removed.listener.disconnect_all("transport removed")
            for forget in removed.security.forget_functions:
                forget(None)
        self._spec = prepared.spec
        self._transports = prepared.transports
        self._shared_pool.limits = limits_of(prepared.spec.limits)
        self._sql.use_limits(prepared.spec)
        for spec in prepared.spec.transports:
            self._update(self._transports[spec.name], spec, prepared.tls_contexts.get(spec.name))
        if failures:
            raise failures[0]

    def _update(
        self,
        transport: ConfiguredTransport,
        spec: TransportSpec,
        tls_context: ssl.SSLContext | None,
    ) -> None:
        listener = transport.listener
        listener.spec = spec
        if has_own_pool(spec.limits):
            limits = limits_of(spec.limits, self._spec.limits)
            listener.transport_context.client_pool.limits = limits
        if tls_context is not None:
            listener.use_tls_context(tls_context)
            _end_watches(transport)
            self._watch_certificate(transport)

    def watch_certificates(self, file_watch: FileWatch) -> None:
        """Make transports read their certificates again when the files change."""
        self._file_watch = file_watch
        for transport in self._transports.values():
            self._watch_certificate(transport)

    def _watch_certificate(self, transport: ConfiguredTransport) -> None:
        listener = transport.listener
        if listener.spec.tls is not None and self._file_watch is not None:
            transport.watches.extend(
                watch_files(listener.spec.tls, self._file_watch, listener.reload_certificate)
            )

    def _make_factory(self, spec: InstanceSpec) -> TransportFactory:
        return TransportFactory(
            spec,
            self._engine,
            self._shared_pool,
            self._sql,
            lambda: self._links,
            lambda: self._io_threads,
        )

    def _find(self, name: str) -> Listener:
        transport = self._transports.get(name)
        if transport is None:
            names = ", ".join(self._transports) or "none"
            raise TransportError(
                f"there is no transport named {name!r}; the transports are {names}"
            )
        return transport.listener

    def _opens_from_start(self, transport: TransportSpec) -> bool:
        return transport.initial_state_enabled and self._can_open(transport)

    def _opens_after_reload(self, transport: TransportSpec) -> bool:
        """Return whether a transport is opened: one that exists keeps its state of now.

        Another InitialState counts like that of a new transport.
        """
        before = self._transports.get(transport.name)
        initial = transport.initial_state_enabled
        if before is None or before.listener.spec.initial_state_enabled != initial:
            return self._opens_from_start(transport)
        return before.listener.is_open and self._can_open(transport)

    def _can_open(self, transport: TransportSpec) -> bool:
        """Return whether a transport's requirements are met; the config check reports if not."""
        return self._links is not None or not transport.is_replication


def io_thread_count(configured: int | None) -> int:
    """Return how many I/O threads an instance has.

    Args:
        configured: the number of Tuning/IOThreads; None if it is absent. Then one for every four
            processors or so, up to 2, while two are left for the engine and for all else.
    """
    if configured is not None:
        return configured
    if (text := os.environ.get(IO_THREADS_VARIABLE)) is not None:
        return int(text)
    processors = len(os.sched_getaffinity(0))
    return 0 if processors <= _FEW_PROCESSORS else 1 if processors <= _SOME_PROCESSORS else 2


def _end_watches(transport: ConfiguredTransport) -> None:
    for end in transport.watches:
        end()
    transport.watches.clear()


def _find_predecessor(
    added: ConfiguredTransport, removed: Collection[ConfiguredTransport]
) -> Listener | None:
    """Return the removed transport whose sockets an added one can have; None if there is none."""
    listeners = (one.listener for one in removed)
    return next((one for one in listeners if one.listens_like(added.listener.spec)), None)
