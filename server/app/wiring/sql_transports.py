"""The transports for SQL: their construction, and the libraries they need.

The libraries come with the extra `amperage[sql]`. They are imported when a configuration has such a
transport, and not before: they take 60 MB and half a second. A reload that adds the first one
imports them on its helper thread. What the transports share stays until the instance stops, also if
the last one is removed; query processes that are idle end by themselves.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple

from config_schema.spec.exposure import accepts_any_client, is_exposed
from server.expressions.backends import columns
from server.security.certificates import channel_binding_of
from server.storage.sow.records import NANOSECONDS
from server.transports.listener import Listener, TransportError
from server.util.safe_open import MAX_CERTIFICATE_FILE_SIZE, read_regular

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

    from config_schema.problems import Problems
    from config_schema.spec import InstanceSpec, TlsSpec, TransportSpec
    from config_schema.spec.common import ModuleUse, Options
    from server.engine.engine import Engine
    from server.security.switches import TransportSecurity
    from server.sql.flight.gateway import FlightGateway
    from server.sql.local_client import LocalSqlTransport
    from server.sql.query.query_engine import QueryLimits
    from server.sql.services import SqlServices
    from server.sql.sql_transport import SqlTransport
    from server.sql.tables.statistics_table import StatisticsAccess
    from server.statistics.statistics_thread import StatisticsThread
    from server.transports.connection import TransportContext

POSTGRES_PROTOCOL: Final = "postgresql"
FLIGHT_PROTOCOL: Final = "flight-sql"
"""The names of the protocols in configurations."""

_LIBRARIES: Final = {
    POSTGRES_PROTOCOL: ("duckdb", "sqlglot"),
    FLIGHT_PROTOCOL: ("duckdb", "sqlglot", "grpc"),
}
"""The libraries of each protocol, as they are imported."""
_MODULES: Final = {
    POSTGRES_PROTOCOL: "server.sql.connection",
    FLIGHT_PROTOCOL: "server.sql.flight.service",
}
"""The modules that import these libraries."""
SQL_PROTOCOLS: Final = frozenset(_LIBRARIES)
"""The protocols of transports for SQL."""

_INSTALL: Final = "pip install 'amperage[sql]'"


class ConsoleSql(NamedTuple):
    """The transport through which the console executes statements.

    Attributes:
        transport: the transport; None if the console cannot use any.
        refusal: why it cannot; empty if it can, or if there is no transport for SQL.
    """

    transport: LocalSqlTransport | None = None
    refusal: str = ""


class SqlTransports:
    """Makes the transports of an instance for SQL.

    Args:
        engine: the engine that serves their connections.

    Attributes:
        statistics: the thread of statistics; None if there are none, or not yet.
    """

    def __init__(self, engine: Engine) -> None:
        self.statistics: StatisticsThread | None = None
        self._engine = engine
        self._services: SqlServices | None = None
        self._gateway: FlightGateway | None = None

    def make_listener(
        self,
        spec: InstanceSpec,
        protocol: str,
        transport: TransportSpec,
        transport_context: TransportContext,
        security: TransportSecurity,
    ) -> tuple[Listener, ConsoleSql | None]:
        """Return the listener of a transport, and what the console can have of it.

        Args:
            spec: the instance's description.
            protocol: a key of `SQL_PROTOCOLS`.
            transport: the transport's description.
            transport_context: the context of its connections.
            security: its modules.

        Raises:
            TransportError: a library is missing.
        """
        missing = missing_libraries(protocol)
        if missing:
            raise TransportError(
                f"{transport.location}: transport {transport.name} needs {missing}, which comes"
                f" with {_INSTALL}"
            )
        columns.warm_up()  # also without topics, which call it
        if protocol == FLIGHT_PROTOCOL:
            return self._make_flight_listener(spec, transport, transport_context, security), None
        return self._make_postgres_listener(spec, transport, transport_context)

    def _make_postgres_listener(
        self, spec: InstanceSpec, transport: TransportSpec, transport_context: TransportContext
    ) -> tuple[Listener, ConsoleSql]:
        from server.sql.connection import PostgresConnection
        from server.sql.sql_transport import SqlTransport, TlsUpgrade

        tls = TlsUpgrade(is_required=transport.tls is not None)

        def set_tls_context(context: ssl.SSLContext, tls_spec: TlsSpec) -> None:
            tls.context = context
            tls.channel_binding = _channel_binding(tls_spec)

        sql = SqlTransport(
            self._shared_services(spec),
            tls,
            _asks_for_passwords(spec, transport),
            self._statistics_access(spec, transport),
        )
        listener = Listener(
            transport,
            transport_context,
            partial(PostgresConnection, transport_context, sql),
            set_tls_context,
        )
        return listener, _offer_to_console(spec, transport, transport_context, sql)

    def _make_flight_listener(
        self,
        spec: InstanceSpec,
        transport: TransportSpec,
        transport_context: TransportContext,
        security: TransportSecurity,
    ) -> Listener:
        from server.sql.flight.connection import FlightConnection, FlightTransport
        from server.sql.flight.gateway import FlightGateway
        from server.sql.flight.service import make_handlers

        gateway = self._gateway = self._gateway or FlightGateway(make_handlers)
        security.forget_functions.append(partial(gateway.tokens.forget, transport.name))
        flight = FlightTransport(
            self._shared_services(spec),
            gateway,
            _asks_for_passwords(spec, transport),
            self._statistics_access(spec, transport),
        )
        return Listener(
            transport,
            transport_context,
            partial(FlightConnection, transport_context, flight),
            alpn_protocols=("h2",),
        )

    def _statistics_access(self, spec: InstanceSpec, transport: TransportSpec) -> StatisticsAccess:
        from server.sql.tables.statistics_table import StatisticsAccess

        return StatisticsAccess(
            lambda: self.statistics,
            shares_admin_access(spec, transport),
            (transport.entitlement or spec.entitlement) is not None,
        )

    def close(self) -> None:
        """Stop the gRPC server, and end the processes of queries."""
        if self._gateway is not None:
            self._gateway.close()
        if self._services is not None:
            self._services.close()

    def use_limits(self, spec: InstanceSpec) -> None:
        """Use the time limits of a configuration from now on."""
        if self._services is not None:
            self._services.use_limits(*_limits_of(spec))

    def _shared_services(self, spec: InstanceSpec) -> SqlServices:
        from server.sql.services import SqlServices

        if self._services is None:
            self._services = SqlServices(self._engine, *_limits_of(spec))
        return self._services


def _limits_of(instance: InstanceSpec) -> tuple[QueryLimits, float | None]:
    """Return the limits of queries, and the seconds from which on one is slow."""
    from server.sql.query.query_engine import QueryLimits

    spec = instance.sql
    limits = QueryLimits(
        spec.max_memory, spec.max_threads, (spec.statement_timeout or 0) / NANOSECONDS
    )
    return limits, None if spec.slow_query is None else spec.slow_query / NANOSECONDS


def _asks_for_passwords(spec: InstanceSpec, transport: TransportSpec) -> bool:
    return not accepts_any_client(transport.authentication, spec.authentication)


def _offer_to_console(
    spec: InstanceSpec,
    transport: TransportSpec,
    transport_context: TransportContext,
    sql: SqlTransport,
) -> ConsoleSql:
    from server.sql.local_client import LocalSqlTransport

    refusal = console_refusal(spec, transport)
    if refusal:
        return ConsoleSql(refusal=f"Transport {transport.name}: {refusal}")
    trusts_users = _asks_for_passwords(spec, transport)
    return ConsoleSql(LocalSqlTransport(transport_context, sql, trusts_users=trusts_users))


def _channel_binding(tls: TlsSpec) -> bytes:
    """Return the hash of a transport's certificate for logons; empty if it has none."""
    if not tls.certificate:
        return b""
    try:
        content = read_regular(tls.certificate, MAX_CERTIFICATE_FILE_SIZE)
    except OSError:  # removed since OpenSSL has read it
        return b""
    return channel_binding_of(content.decode("ascii", "replace"))


def shares_admin_access(spec: InstanceSpec, transport: TransportSpec) -> bool:
    """Return whether a transport admits and entitles the users that the admin interface does.

    They have the same modules with the same options, or both have none. An admin interface that
    requires certificates of clients admits others than a transport.
    """
    admin = spec.admin
    if admin is None or (admin.tls is not None and admin.tls.verify_client):
        return False
    modules = [
        (
            None
            if accepts_any_client(one.authentication, spec.authentication)
            else _module_of(one.authentication or spec.authentication),
            _module_of(one.entitlement or spec.entitlement),
        )
        for one in (admin, transport)
    ]
    return modules[0] == modules[1]


def console_refusal(spec: InstanceSpec, transport: TransportSpec) -> str:
    """Return why the console must not use a transport; empty if it may.

    The users of the admin interface must not get what the transport would refuse them: it has the
    same authentication, or checks no credentials, and can be reached where the admin interface can.
    """
    admin = spec.admin
    if admin is None or transport.inet_addr is None:
        return "it is a unix socket, for users of this machine only."
    if transport.tls is not None:
        if transport.tls.verify_client:
            return "it requires certificates of clients."
        if admin.tls is None:
            return "it has TLS, and the admin interface has not."
    if not accepts_any_client(transport.authentication, spec.authentication):
        modules = [
            _module_of(one.authentication or spec.authentication) for one in (admin, transport)
        ]
        return "" if modules[0] == modules[1] else "its Authentication is not that of Admin."
    uses = (admin.authentication, spec.authentication)
    if is_exposed(admin.inet_addr, admin.tls, *uses) and not is_exposed(
        transport.inet_addr, transport.tls
    ):
        return "other hosts cannot reach it, and can reach the admin interface without a logon."
    return ""


def _module_of(use: ModuleUse | None) -> tuple[str, Options] | None:
    return None if use is None else (use.module, use.options)


def missing_libraries(protocol: str) -> str:
    """Return the names of a protocol's libraries that are not installed; empty if all are."""
    return " and ".join(name for name in _LIBRARIES[protocol] if find_spec(name) is None)


def sql_transports(spec: InstanceSpec) -> Iterator[tuple[TransportSpec, str]]:
    """Yield the transports for SQL, each with its protocol, a key of `SQL_PROTOCOLS`."""
    modules = {protocol.name: protocol.module for protocol in spec.protocols}
    for transport in spec.transports:
        protocol = modules.get(transport.protocol, transport.protocol)
        if protocol in SQL_PROTOCOLS:
            yield transport, protocol


def import_libraries(spec: InstanceSpec) -> None:
    """Import the libraries of the transports for SQL, as far as they are installed."""
    for protocol in {protocol for _, protocol in sql_transports(spec)}:
        if not missing_libraries(protocol):
            columns.warm_up()
            import_module(_MODULES[protocol])


def check_sql_libraries(spec: InstanceSpec, problems: Problems) -> None:
    """Report transports without their libraries."""
    for transport, protocol in sql_transports(spec):
        if missing := missing_libraries(protocol):
            problems.error(
                transport.location,
                "Protocol",
                f"needs {missing}, which is not installed",
                f"it comes with {_INSTALL}",
            )
