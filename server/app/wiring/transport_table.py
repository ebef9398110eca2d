"""The transports of one instance: their construction, and opening and closing them by name.

The start of the instance, and enabling or disabling a transport at run time, share the same
functions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amperage.wire.legacy.dialect import Dialect
from amperage.wire.legacy.dialects import DIALECTS
from config_schema.spec import InstanceSpec, ProtocolSpec, SlowClientLimits, TransportSpec
from config_schema.spec.exposure import accepts_any_client
from config_schema.units import parse_external_address
from server.app.wiring.sql_transports import SQL_PROTOCOLS, ConsoleSql, SqlTransports
from server.engine.connection_context import ConnectionContext
from server.engine.engine import Engine
from server.message_types.registry import DECLARED
from server.replication.transport.connection import AcceptedReplicationConnection, ReplicationUsers
from server.replication.transport.connector import ReplicationConnector
from server.security import modules as security
from server.security.interceptors.base import FilterError
from server.security.interceptors.registry import make_filters
from server.security.modules import DEFAULT
from server.topics.subscriptions.limits.client_limits import ClientLimits, has_own_pool, limits_of
from server.topics.subscriptions.limits.slow_clients import ClientPool
from server.transports.connection import TransportContext
from server.transports.descriptor_reserve import DescriptorReserve
from server.transports.legacy import LegacyConnection, make_dialect
from server.transports.listener import Listener, TransportError
from server.transports.origins import Origins
from server.transports.own_hosts import OwnHosts, own_names
from server.transports.stream import StreamConnection
from server.transports.tls import watch_files
from server.transports.trusted_admin import TrustedAdmin
from server.transports.websocket import WebsocketConnection, WebsocketSettings
from server.transports.websocket_handshake import HandshakeAuthenticator
from server.util.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from server.process.file_watch import FileWatch
    from server.replication.links.registry import LinkRegistry
    from server.statistics.statistics_thread import StatisticsThread

_TEXT_MODULES: Final = ("json", "fix", "nvfix", "xml")
"""Modules of message types with text bodies; other types need binary websocket messages."""


class TransportTable:
    """The transports of an instance, by name.

    Args:
        spec: the instance's description.
        engine: the engine that serves their connections.

    Raises:
        TransportError: a transport's filters cannot be made, its message type does not suit its
            protocol, or the directory for its slow clients cannot be made.
    """

    def __init__(self, spec: InstanceSpec, engine: Engine) -> None:
        self._spec = spec
        self._engine = engine
        self._shared_pool = _pool(limits_of(spec.limits))
        self._descriptors = DescriptorReserve(engine.clock, engine.log)
        self._rate_limited_log = RateLimitedLog(engine.log, engine.clock)
        self._sql = SqlTransports(spec, engine)
        self._links: LinkRegistry | None = None
        self._replication_connector: ReplicationConnector | None = None
        self._protocols = {protocol.name: protocol for protocol in spec.protocols}
        self._listeners = {
            transport.name: self._make_listener(transport) for transport in spec.transports
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the transports that can be opened and closed."""
        return tuple(self._listeners)

    @property
    def pools(self) -> tuple[ClientPool, ...]:
        """The groups of clients that share limits for their output buffers."""
        pools_used = dict.fromkeys(
            listener.transport_context.client_pool for listener in self._listeners.values()
        )
        return tuple(pools_used)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """All listeners, open or not."""
        return tuple(self._listeners.values())

    @property
    def console_sql(self) -> ConsoleSql:
        """The transport through which the console executes statements."""
        return self._sql.console

    @property
    def open_from_start(self) -> dict[str, bool]:
        """The transports that `open` opens, each with True if it is open now."""
        return {
            name: listener.is_open
            for name, listener in self._listeners.items()
            if listener.spec.initial_state_enabled and self._can_open(listener.spec)
        }

    def set_links(self, links: LinkRegistry) -> None:
        """Serve replication from now on. Called before any transport is opened.

        Args:
            links: the links that use the connections between instances.
        """
        self._links = links
        self._replication_connector = ReplicationConnector(self._spec, self._engine, links)

    def set_statistics(self, statistics: StatisticsThread) -> None:
        """Show statistics as tables from now on. Called before any transport is opened."""
        self._sql.statistics = statistics

    async def open(self) -> None:
        """Open the transports that are enabled from the start (InitialState).

        Then connect to the destinations.

        Raises:
            TransportError: one of them cannot be opened. The ones before it are open.
        """
        for name in self.open_from_start:
            await self._listeners[name].open()
        if self._replication_connector is not None:
            self._replication_connector.open()

    async def close(self) -> None:
        """Close all transports, in reverse order; clients' connections stay open."""
        if self._replication_connector is not None:
            await self._replication_connector.close()
        for listener in reversed(self._listeners.values()):
            await listener.close()
        self._sql.close()
        if self._links is not None:
            self._links.close()

    async def stop_accepting(self) -> list[str]:
        """Close the listeners that are open, and return their names; connections stay open."""
        names = [name for name, listener in self._listeners.items() if listener.is_open]
        for name in names:
            await self._listeners[name].close()
        return names

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

    def update_limits(self, spec: InstanceSpec) -> None:
        """Apply the limits for slow clients of another configuration.

        Args:
            spec: the instance, with the same transports; those with limits of their own are so
                again.
        """
        transports = {transport.name: transport for transport in spec.transports}
        self._shared_pool.limits = limits_of(spec.limits)
        for name, listener in self._listeners.items():
            limits = transports[name].limits
            if has_own_pool(limits):
                pool = listener.transport_context.client_pool
                pool.limits = limits_of(limits, spec.limits)

    def watch_certificates(self, file_watch: FileWatch) -> None:
        """Make transports read their certificates again when the files change."""
        for listener in self._listeners.values():
            if listener.spec.tls is not None:
                watch_files(listener.spec.tls, file_watch, listener.reload_certificate)

    def _find(self, name: str) -> Listener:
        listener = self._listeners.get(name)
        if listener is None:
            names = ", ".join(self._listeners) or "none"
            raise TransportError(
                f"there is no transport named {name!r}; the transports are {names}"
            )
        return listener

    def _can_open(self, transport: TransportSpec) -> bool:
        """Return whether a transport's requirements are met; the config check reports if not."""
        return self._links is not None or not transport.is_replication

    def _base_protocol(self, transport: TransportSpec) -> str:
        variant = self._protocols.get(transport.protocol)
        return transport.protocol if variant is None else variant.module

    def _make_listener(self, transport: TransportSpec) -> Listener:
        try:
            filters = make_filters(transport.filters, self._spec.modules)
        except FilterError as error:
            raise TransportError(str(error)) from None
        spec, engine = self._spec, self._engine
        around = engine.security_switches.module_services(
            transport.name, spec.modules, engine.settings.functions, engine.log
        )
        use = transport.authentication or spec.authentication
        try:
            authenticator = security.make_authenticator(use, around)
            entitlement = security.make_entitlement(
                transport.entitlement or spec.entitlement, around
            )
        except security.SecurityError as error:
            raise TransportError(str(error)) from None
        security_modules = engine.security_switches.wrap_modules(
            transport.name, authenticator, entitlement
        )
        context = ConnectionContext(
            transport.name,
            transport.message_type,
            *security_modules,
            transport_filters=filters,
            auth_module=DEFAULT if use is None else use.module,
        )
        transport_context = TransportContext(
            self._engine,
            context,
            self._pool_for(transport.limits),
            self._descriptors,
            self._rate_limited_log,
        )
        if transport.is_replication:
            engine.security_switches.forget_functions.append(
                (transport.name, ReplicationUsers(transport_context).forget)
            )
        protocol = self._base_protocol(transport)
        if protocol in SQL_PROTOCOLS:
            return self._sql.make_listener(protocol, transport, transport_context)
        return Listener(
            transport, transport_context, self._protocol_factory(transport, transport_context)
        )

    def _pool_for(self, limits: SlowClientLimits) -> ClientPool:
        if has_own_pool(limits):
            return _pool(limits_of(limits, self._spec.limits))
        return self._shared_pool

    def _protocol_factory(
        self, transport: TransportSpec, transport_context: TransportContext
    ) -> Callable[[], asyncio.Protocol]:
        if transport.is_replication:
            return partial(self._accept_replication, transport_context)
        protocol = self._base_protocol(transport)
        if protocol == "websocket":
            settings = self._websocket_settings(transport)
            return partial(WebsocketConnection, transport_context, settings)
        if protocol in DIALECTS:
            return partial(LegacyConnection, transport_context, self._dialect(protocol, transport))
        return partial(StreamConnection, transport_context)

    def _accept_replication(
        self, transport_context: TransportContext
    ) -> AcceptedReplicationConnection:
        assert self._links is not None  # noqa: S101 - otherwise the transport is not open
        return AcceptedReplicationConnection(transport_context, self._links)

    def _dialect(self, protocol: str, transport: TransportSpec) -> Dialect:
        message_types = {spec.name: spec for spec in self._spec.message_types}
        try:
            return make_dialect(protocol, message_types.get(transport.message_type or ""))
        except ValueError as error:
            raise TransportError(f"{transport.location}: {error}") from None

    def _websocket_settings(self, transport: TransportSpec) -> WebsocketSettings:
        variant = self._protocols.get(transport.protocol)
        challenge = None if variant is None else variant.www_authenticate
        lines = (
            transport.http_headers
            if variant is None
            else (*variant.http_headers, *transport.http_headers)
        )
        allowed = () if variant is None else variant.allowed_origins
        is_open = accepts_any_client(transport.authentication, self._spec.authentication)
        try:
            origins = Origins(allowed)
        except ValueError as error:
            raise TransportError(f"{transport.location}: {error}") from None
        return WebsocketSettings(
            authenticator=HandshakeAuthenticator(
                self._engine.settings.message_types,
                challenge,
                origins,
                OwnHosts(own_names(self._spec.admin)) if is_open and not allowed else None,
                None if variant is None else self._trusted_admin(variant, origins),
            ),
            response_headers=tuple(_header(line) for line in lines),
            allows_deflate=transport.per_message_deflate,
            text_types=_text_types(self._spec),
        )

    def _trusted_admin(self, protocol: ProtocolSpec, origins: Origins) -> TrustedAdmin | None:
        admin = self._spec.admin
        if not protocol.trusted_admin or admin is None or admin.inet_addr is None:
            return None
        elsewhere = []
        if admin.external_inet_addr is not None:
            where = parse_external_address(admin.external_inet_addr)[1]
            elsewhere.append(where.partition("/")[0])
        return TrustedAdmin(
            self._engine.security_switches.sessions, admin.inet_addr.port, elsewhere, origins
        )


def _text_types(spec: InstanceSpec) -> frozenset[str]:
    modules = {name: name for name in DECLARED}
    modules |= {message_type.name: message_type.module for message_type in spec.message_types}
    return frozenset(name for name, module in modules.items() if module in _TEXT_MODULES) | {""}


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()


def _pool(limits: ClientLimits) -> ClientPool:
    """Return a pool of clients that share limits; make its spill directory if it is missing."""
    try:
        Path(limits.directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"MessageDiskPath {limits.directory} cannot be made: {error.strerror}"
        raise TransportError(reason) from None
    return ClientPool(limits)
