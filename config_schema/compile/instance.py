"""The instance itself: identity, admin interface, tuning and external libraries.

Source: AMPS User Guide, Instance-Level Configuration and Configuring Monitoring.
"""

import re
from collections.abc import Sequence
from typing import Final

from config_schema.compile.reader import COUNT, INTERVAL, SIZE, ElementReader, did_you_mean
from config_schema.compile.scope import Scope
from config_schema.compile.transports import (
    ANY_ORIGIN,
    compile_authentication,
    compile_entitlement,
    compile_tls,
    www_authenticate,
)
from config_schema.spec import (
    AdminSpec,
    DestinationSpec,
    ExternalsSpec,
    OpenTelemetrySpec,
    SqlSpec,
    TlsSpec,
    TuningSpec,
)
from config_schema.units import (
    UnitError,
    parse_count,
    parse_external_address,
    parse_size,
    quoted,
)

_UNFIT_NAME: Final = re.compile(r"[\s/\\$~]")
_ENDPOINT: Final = re.compile(r"https?://[^\s/?#]+(?:/[^\s?#]*)?")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_OF_THE_CONNECTION: Final = frozenset(
    ("connection", "content-encoding", "content-length", "date", "transfer-encoding")
)
DEFAULT_MINI_DUMP_DIRECTORY: Final = "/tmp"  # noqa: S108 - the default in the AMPS documentation
DEFAULT_SQL_MEMORY: Final = "512MB"
DEFAULT_SQL_THREADS: Final = "2"
DEFAULT_SESSION_OPTIONS: Final = "max-age=86400; path=/; HttpOnly"


def compile_name(root: ElementReader) -> str:
    """Return the name of the instance, which also becomes part of the names of its files."""
    name = root.required("Name")
    if _UNFIT_NAME.search(name):
        root.warning(
            f"{quoted(name)} becomes part of file names: avoid blanks, slashes, $ and ~",
            tag="Name",
        )
    return name


def mini_dump_directory(root: ElementReader) -> str | None:
    """Return the directory of minidumps; None if they are disabled."""
    text = root.text("MiniDumpDirectory") or DEFAULT_MINI_DUMP_DIRECTORY
    return None if text.lower() == "disabled" else text


def compile_admin(root: ElementReader, scope: Scope) -> AdminSpec | None:
    """Compile the Admin section."""
    reader = root.child("Admin")
    if reader is None:
        return None
    return AdminSpec(
        inet_addr=reader.address("InetAddr"),
        file_name=reader.text("FileName") or ":memory:",
        interval=reader.quantity("Interval", INTERVAL, "10s", minimum="1s"),
        www_authenticate=www_authenticate(reader) or "Negotiate",
        authentication=compile_authentication(reader, scope),
        entitlement=compile_entitlement(reader, scope),
        anonymous_paths=reader.pattern("AnonymousPaths"),
        headers=_headers(reader),
        external_inet_addr=_external_address(reader),
        access_control_allow_origin=_allowed_origin(reader),
        session_options=_session_options(reader),
        sql_transport=_sql_transport(reader, scope),
        sql_transport_inet_addr=reader.text("SQLTransportInetAddr"),
        galvanometer=reader.flag("Galvanometer", default=True),
        backup_directory=reader.text("BackupDirectory") or "backups",
        open_telemetry=_open_telemetry(reader),
        tls=_admin_tls(reader),
        location=reader.location,
    )


def _open_telemetry(admin: ElementReader) -> OpenTelemetrySpec | None:
    reader = admin.child("OpenTelemetry")
    endpoint = None if reader is None else reader.text("Endpoint")
    if reader is None or endpoint is None:
        return None
    if not _ENDPOINT.fullmatch(endpoint):
        reader.error(
            f"{quoted(endpoint)} is no endpoint: expected the URL of a collector, such as "
            "http://localhost:4318",
            tag="Endpoint",
        )
    traces = reader.flag("Traces", default=False)
    return OpenTelemetrySpec(endpoint, traces, reader.location)


def _headers(reader: ElementReader) -> tuple[str, ...]:
    for header in reader.children("Header"):
        name, _, value = header.value.partition(":")
        if not _HEADER_NAME.fullmatch(name.strip()) or not _HEADER_VALUE.fullmatch(value.strip()):
            header.error(
                f"{quoted(header.value)} is not a header: expected Name: value, in one line"
            )
        elif name.strip().lower() in _OF_THE_CONNECTION:
            header.error(
                f"the header {name.strip()} is the server's own: it follows from the answer"
            )
    return reader.texts("Header")


def _external_address(reader: ElementReader) -> str | None:
    text = reader.text("ExternalInetAddr")
    if text is None:
        return None
    if not reader.has("InetAddr"):
        reader.warn_no_effect(["ExternalInetAddr"], "without InetAddr there is nothing to reach")
    try:
        parse_external_address(text)
    except UnitError as error:
        reader.error(str(error), tag="ExternalInetAddr")
        return None
    return text


def _allowed_origin(reader: ElementReader) -> str | None:
    """Return the expression for origins; `*`, which is AMPS's default, is accepted as well."""
    text = reader.text("AccessControlAllowOrigin")
    return text if text == ANY_ORIGIN else reader.pattern("AccessControlAllowOrigin")


def _session_options(reader: ElementReader) -> str:
    text = reader.text("SessionOptions") or DEFAULT_SESSION_OPTIONS
    if not _HEADER_VALUE.fullmatch(text):
        reader.error(
            f"{quoted(text)} cannot be part of a cookie: expected one line", tag="SessionOptions"
        )
    return text


def _sql_transport(reader: ElementReader, scope: Scope) -> str | None:
    name = reader.text("SQLTransport")
    if name is None:
        return None
    websockets = [
        transport.name
        for transport in scope.transports.values()
        if _module(transport.protocol, scope) == "websocket"
    ]
    if name in scope.transports and name not in websockets:
        reader.error(
            f"the transport {quoted(name)} uses the protocol "
            f"{quoted(scope.transports[name].protocol)}: expected one that uses websocket",
            tag="SQLTransport",
        )
    elif name not in scope.transports:
        listed = f"the transports with websocket are {', '.join(websockets)}"
        reader.error(
            f"there is no transport named {quoted(name)}",
            did_you_mean(name, websockets)
            or (listed if websockets else "add a Transport with the Protocol websocket"),
            tag="SQLTransport",
        )
    return name


def _module(protocol: str, scope: Scope) -> str:
    variant = scope.protocols.get(protocol)
    return variant.module if variant else protocol


def _admin_tls(reader: ElementReader) -> TlsSpec | None:
    absent = [tag for tag in ("Certificate", "PrivateKey") if not reader.text(tag)]
    if len(absent) == 1:
        reader.error("is missing: HTTPS needs Certificate and PrivateKey", tag=absent[0])
    return None if absent else compile_tls(reader)


def compile_tuning(root: ElementReader, destinations: Sequence[DestinationSpec]) -> TuningSpec:
    """Compile the Tuning section; an absent one has the defaults."""
    tuning = root.child("Tuning")
    numa = tuning.child("NUMA") if tuning else None
    queue = tuning.child("Queue") if tuning else None
    replication = tuning.child("Replication") if tuning else None
    log = tuning.child("TransactionLog") if tuning else None
    return TuningSpec(
        numa_enabled=numa.flag("Enabled", default=True) if numa else True,
        min_sync_destinations=_min_sync(replication, destinations) if replication else None,
        queue_delivery_flush_interval=queue.quantity(
            "QueueDeliveryFlushInterval", INTERVAL, "250us", minimum="1us"
        )
        if queue
        else 250_000,
        statistics_indexing_enabled=_indexing(tuning),
        topic_index_enabled=log.flag("TopicIndex", default=False) if log else False,
        io_threads=tuning.quantity("IOThreads", COUNT, maximum="64") if tuning else None,
    )


def compile_sql(root: ElementReader) -> SqlSpec:
    """Compile the SQL section; an absent one has the defaults."""
    reader = root.child("SQL")
    if reader is None:
        return SqlSpec(parse_size(DEFAULT_SQL_MEMORY), parse_count(DEFAULT_SQL_THREADS), None, None)
    return SqlSpec(
        max_memory=reader.quantity("MaxMemory", SIZE, DEFAULT_SQL_MEMORY, minimum="16MB"),
        max_threads=reader.quantity(
            "MaxThreads", COUNT, DEFAULT_SQL_THREADS, minimum="1", maximum="256"
        ),
        statement_timeout=reader.quantity("StatementTimeout", INTERVAL, minimum="1ms"),
        slow_query=reader.quantity("SlowQuery", INTERVAL, minimum="1ms"),
    )


def _min_sync(reader: ElementReader, destinations: Sequence[DestinationSpec]) -> int | None:
    """Return how many destinations stay sync; names are counted, as the one example has a name."""
    text = reader.text("MinSyncDestinations")
    if text is None:
        return None
    try:
        number = parse_count(text)
    except UnitError:
        names = [name.strip() for name in text.split(",")]
        known = [destination.name for destination in destinations]
        for name in names:
            if name not in known:
                reader.error(
                    f"{quoted(name)} is neither a number nor a destination",
                    did_you_mean(name, known) or "expected how many destinations stay sync",
                    tag="MinSyncDestinations",
                )
        return len(names)
    configured = sum(destination.sync_type == "sync" for destination in destinations)
    if number > configured:
        reader.warning(
            f"asks for {number} sync destinations and {configured} are configured: "
            "none will ever be downgraded",
            tag="MinSyncDestinations",
        )
    return number


def _indexing(tuning: ElementReader | None) -> bool:
    reader = tuning
    for tag in ("Admin", "Statistics", "Indexing"):
        reader = reader.child(tag) if reader else None
    return reader.flag("Enabled", default=False) if reader else False


def compile_externals(root: ElementReader) -> ExternalsSpec:
    """Compile the Externals section."""
    externals = root.child("Externals")
    paths = {}
    for tag in ("SSL", "Crypto", "Curl"):
        library = externals.child(tag) if externals else None
        paths[tag] = library.text("Library") if library else None
    return ExternalsSpec(paths["SSL"], paths["Crypto"], paths["Curl"])
