"""The description of one whole instance."""

from dataclasses import dataclass

from config_schema.problems import Location
from config_schema.spec.actions import ActionSpec
from config_schema.spec.common import InetAddr, ModuleUse, SlowClientLimits, TlsSpec
from config_schema.spec.journal import DestinationSpec, TransactionLogSpec
from config_schema.spec.logs import LogTargetSpec
from config_schema.spec.modules import FunctionSpec, MessageTypeSpec, ModuleSpec
from config_schema.spec.sow import SowSpec
from config_schema.spec.transports import ProtocolSpec, TransportSpec


@dataclass(frozen=True, slots=True)
class OpenTelemetrySpec:
    """The element OpenTelemetry of the Admin section.

    `endpoint` is the URL of a collector; `traces` exports spans of sampled messages to it.
    """

    endpoint: str
    traces: bool
    location: Location


@dataclass(frozen=True, slots=True)
class AdminSpec:
    """The Admin section: the HTTP interface (none without `inet_addr`) and statistics collection.

    `file_name` is ":memory:" unless statistics are kept in a file. `interval` in nanoseconds.
    `galvanometer` enables the console. `backup_directory` is that of backups that administrators
    request. Source: AMPS User Guide, Configuring Monitoring.
    """

    inet_addr: InetAddr | None
    file_name: str
    interval: int
    www_authenticate: str
    authentication: ModuleUse | None
    entitlement: ModuleUse | None
    anonymous_paths: str | None
    headers: tuple[str, ...]
    external_inet_addr: str | None
    access_control_allow_origin: str | None
    session_options: str
    sql_transport: str | None
    sql_transport_inet_addr: str | None
    galvanometer: bool
    backup_directory: str
    open_telemetry: OpenTelemetrySpec | None
    tls: TlsSpec | None
    location: Location


@dataclass(frozen=True, slots=True)
class TuningSpec:
    """The Tuning section; the interval is nanoseconds, `io_threads` is None for the default."""

    numa_enabled: bool
    min_sync_destinations: int | None
    queue_delivery_flush_interval: int
    statistics_indexing_enabled: bool
    topic_index_enabled: bool
    io_threads: int | None


@dataclass(frozen=True, slots=True)
class SqlSpec:
    """The SQL section: limits of queries. Sizes are bytes, times are nanoseconds."""

    max_memory: int
    max_threads: int
    statement_timeout: int | None
    slow_query: int | None


@dataclass(frozen=True, slots=True)
class ExternalsSpec:
    """The Externals section: shared libraries to load instead of the ones found by name."""

    ssl: str | None
    crypto: str | None
    curl: str | None


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """The content of a configuration, resolved and checked.

    Intervals are nanoseconds, sizes bytes. `sow` keeps the file's order, which decides precedence
    among overlapping patterns. Source: AMPS User Guide, Instance-Level Configuration.
    """

    name: str
    group: str
    process_name: str | None
    description: str | None
    environment: str | None
    mini_dump_directory: str | None
    mini_dump_file_mask: int
    sow_stats_interval: int | None
    regex_topic_support: bool
    config_validation: bool
    limits: SlowClientLimits
    authentication: ModuleUse | None
    entitlement: ModuleUse | None
    modules: tuple[ModuleSpec, ...]
    message_types: tuple[MessageTypeSpec, ...]
    user_defined_functions: tuple[FunctionSpec, ...]
    protocols: tuple[ProtocolSpec, ...]
    transports: tuple[TransportSpec, ...]
    logging: tuple[LogTargetSpec, ...]
    sow: tuple[SowSpec, ...]
    transaction_log: TransactionLogSpec | None
    replication: tuple[DestinationSpec, ...]
    actions: tuple[ActionSpec, ...]
    admin: AdminSpec | None
    tuning: TuningSpec
    sql: SqlSpec
    externals: ExternalsSpec
    location: Location

    def is_journaled(self, message_type: str, name: str) -> bool:
        """Return true if the messages published to a topic are in the transaction log."""
        log = self.transaction_log
        return log is not None and any(topic.covers(message_type, name) for topic in log.topics)
