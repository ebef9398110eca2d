"""Makes the transports of one configuration: their modules, protocols and listeners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
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
from server.security import modules as security
from server.security.interceptors.base import FilterError
from server.security.interceptors.registry import make_filters
from server.security.modules import DEFAULT
from server.security.switches import TransportSecurity
from server.topics.subscriptions.limits.client_limits import ClientLimits, has_own_pool, limits_of
from server.topics.subscriptions.limits.slow_clients import ClientPool
from server.transports.connection import TransportContext
from server.transports.descriptor_reserve import DescriptorReserve
from server.transports.legacy import LegacyConnection, make_dialect
from server.transports.listener import Listener, TransportError
from server.transports.origins import Origins
from server.transports.own_hosts import OwnHosts, own_names
from server.transports.stream import StreamConnection
from server.transports.trusted_admin import TrustedAdmin
from server.transports.websocket import WebsocketConnection, WebsocketSettings
from server.transports.websocket_handshake import HandshakeAuthenticator
from server.util.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from server.replication.links.registry import LinkRegistry
    from server.transports.io_threads import IoThreads

_TEXT_MODULES: Final = ("json", "fix", "nvfix", "xml")
"""Modules of message types with text bodies; other types need binary websocket messages."""


@dataclass(frozen=True, slots=True)
class ConfiguredTransport:
    """A transport of the configuration.

    Attributes:
        listener: its sockets.
        security: its modules.
        console_sql: what the console can have of it; None if it is not for SQL.
        watches: functions that end the watches of its certificates.
    """

    listener: Listener
    security: TransportSecurity
    console_sql: ConsoleSql | None = None
    watches: list[Callable[[], None]] = field(default_factory=list)


class TransportFactory:
    """Makes the transports of one configuration.

    Args:
        spec: the instance's description.
        engine: the engine that serves their connections.
        shared_pool: the clients of transports without limits of their own.
        sql: makes the transports for SQL.
        find_links: returns the links that use the connections between instances; None if the
            instance does not replicate.
        find_io_threads: returns the threads that write to clients; None if the event loop does.
    """

    def __init__(
        self,
        spec: InstanceSpec,
        engine: Engine,
        shared_pool: ClientPool,
        sql: SqlTransports,
        find_links: Callable[[], LinkRegistry | None],
        find_io_threads: Callable[[], IoThreads | None],
    ) -> None:
        self._spec = spec
        self._engine = engine
        self._shared_pool = shared_pool
        self._sql = sql
        self._find_links = find_links
        self._find_io_threads = find_io_threads
        self._descriptors = DescriptorReserve(engine.clock, engine.log)
        self._rate_limited_log = RateLimitedLog(engine.log, engine.clock)
        self._protocols = {protocol.name: protocol for protocol in spec.protocols}

    def make(self, transport: TransportSpec) -> ConfiguredTransport:
        """Make a transport; it does not listen yet.

        Raises:
            TransportError: it cannot be made as configured.
        """
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
        switched = engine.security_switches.wrap_modules(transport.name, authenticator, entitlement)
        context = ConnectionContext(
            transport.name,
            transport.message_type,
            switched.authenticator,
            switched.entitlement,
            transport_filters=filters,
            auth_module=DEFAULT if use is None else use.module,
        )
        transport_context = TransportContext(
            self._engine,
            context,
            self._pool_for(transport.limits),
            self._descriptors,
            self._rate_limited_log,
            self._find_io_threads,
        )
        if transport.is_replication:
            switched.forget_functions.append(ReplicationUsers(transport_context).forget)
        protocol = self._base_protocol(transport)
        if protocol in SQL_PROTOCOLS:
            listener, console_sql = self._sql.make_listener(
                spec, protocol, transport, transport_context, switched
            )
            return ConfiguredTransport(listener, switched, console_sql)
        make_protocol = self._protocol_factory(transport, transport_context)
        return ConfiguredTransport(Listener(transport, transport_context, make_protocol), switched)

    def _base_protocol(self, transport: TransportSpec) -> str:
        variant = self._protocols.get(transport.protocol)
        return transport.protocol if variant is None else variant.module

    def _pool_for(self, limits: SlowClientLimits) -> ClientPool:
        if has_own_pool(limits):
            return make_pool(limits_of(limits, self._spec.limits))
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
        links = self._find_links()
        assert links is not None  # noqa: S101 - otherwise the transport is not open
        return AcceptedReplicationConnection(transport_context, links)

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


def make_pool(limits: ClientLimits) -> ClientPool:
    """Return a pool of clients that share limits; make its spill directory if it is missing.

    Raises:
        TransportError: the directory cannot be made.
    """
    try:
        Path(limits.directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"MessageDiskPath {limits.directory} cannot be made: {error.strerror}"
        raise TransportError(reason) from None
    return ClientPool(limits)
