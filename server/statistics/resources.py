"""Every resource of the tree, with all its fields: the figures of host and instance.

Those of the host are in `server.statistics.host_resources`.

Times of day are texts in UTC, as in 20261123T041500.000000Z, unless described otherwise. Flags are
1 and 0. Hashes of names, which have 64 bits and no sign, are texts. Fields that the Monitoring
Guide does not have are marked; each answers a question of operators. Tables that AMPS does
not have begin with AMPERAGE_; a resource that never changes needs none.

Source: AMPS Monitoring Guide, Host Statistics; AMPS Instance Statistics; Table Reference.
"""

from __future__ import annotations

from typing import Final

from server.statistics.host_resources import (
    HOST,
    HOST_CPUS,
    HOST_DISKS,
    HOST_MEMORY,
    HOST_NETWORK,
)
from server.statistics.schema import (
    INTEGER,
    REAL,
    TEXT,
    Resource,
    cumulative,
    fixed,
    rate,
    running,
    snapshot,
)

INSTANCE: Final = Resource(
    "instance",
    "",
    "AMPERAGE_INSTANCE",
    (
        fixed("config_path", "the configuration file"),
        fixed("cwd", "the directory in which the server was started"),
        fixed("description", "the configuration's Description"),
        fixed("environment", "the configuration's Environment"),
        fixed("name", "the instance's name"),
        fixed("name_hash", "the instance's name as a number, as in bookmarks"),
        fixed("pid", "the process", INTEGER),
        snapshot("uptime", "how long the instance has been running, hh:mm:ss.uuuuuu", TEXT),
        fixed("user_id", "the user that the process runs as"),
        fixed("version", "the server's version"),
    ),
)

API: Final = Resource(
    "instance/api",
    "",
    "IGLOBALS",
    (snapshot("command_queue_depth", "commands that wait for their turn"),),
)

CERTIFICATES: Final = Resource(
    "instance/certificates",
    "certificate",
    "AMPERAGE_CERTIFICATES",
    (
        snapshot("expiry_timestamp", "when it expires, in seconds since 1970"),
        fixed("path", "the file"),
        fixed("used_by", "the transports, destinations and so on that present it"),
    ),
)

CLIENTS: Final = Resource(
    "instance/clients",
    "client",
    "ICLIENTS",
    (
        fixed("authenticated_id", "the user that the client has logged on as"),
        cumulative("bytes_in", "bytes received"),
        rate("bytes_in_per_sec", "bytes_in", "bytes received a second"),
        cumulative("bytes_out", "bytes sent"),
        rate("bytes_out_per_sec", "bytes_out", "bytes sent a second"),
        fixed("client_name", "the client's name"),
        fixed("client_name_hash", "the client's name as a number, as in bookmarks"),
        fixed("client_version", "the version that the client reports"),
        fixed("connect_time", "when the connection was made"),
        fixed("connection_name", "the connection's name"),
        fixed("correlation_id", "the correlation id of the logon"),
        cumulative("denied_reads", "reads refused by entitlement"),
        cumulative("denied_writes", "writes refused by entitlement"),
        cumulative("messages_in", "messages and commands received"),
        rate("messages_in_per_sec", "messages_in", "messages and commands received a second"),
        cumulative("messages_out", "messages and acks sent"),
        rate("messages_out_per_sec", "messages_out", "messages and acks sent a second"),
        cumulative("query_time", "microseconds spent on the client's queries"),
        snapshot("queue_depth_out", "messages that the client's socket does not take yet"),
        snapshot("queue_max_latency", "seconds that the oldest of these has waited", REAL),
        snapshot("queued_bytes_out", "bytes that the client's socket does not take yet"),
        fixed("remote_address", "the client's address and port"),
        snapshot("subscription_count", "the client's subscriptions"),
        snapshot("tcp_zero_window_advert", "1 if the client's TCP window is full"),
        fixed("transport", "the transport that it came through; not in AMPS"),
        snapshot("transport_rx_queue", "bytes in the socket's receive buffer"),
        snapshot("transport_tx_queue", "bytes in the socket's send buffer"),
    ),
)

CONFLATED_TOPICS: Final = Resource(
    "instance/conflated_topics",
    "conflated_topic",
    "ICONFLATEDTOPICS",
    (
        running("conflation_ratio", "updates of the underlying topic for each one passed on"),
        fixed("filter", "the filter"),
        fixed("interval", "the conflation interval"),
        fixed("message_type", "the message type"),
        fixed("pattern", "the expression for underlying topics, if it is one"),
        fixed("topic", "the topic"),
        fixed("topic_format", "how topics are named, if the underlying one is an expression"),
        cumulative("total_executions", "how often updates have been passed on"),
        cumulative("total_time", "microseconds spent on that"),
        fixed("underlying_topic", "the topic that is conflated"),
    ),
)

CPU: Final = Resource(
    "instance/cpu",
    "",
    "ICPUS",
    (
        snapshot("system_percent", "share of a processor's time used in the kernel", REAL),
        snapshot("total_percent", "share of a processor's time used", REAL),
        snapshot("user_percent", "share of a processor's time used in the program", REAL),
    ),
)

LATENCIES: Final = Resource(
    "instance/latencies",
    "latency",
    "AMPERAGE_LATENCIES",
    (
        fixed("about", "what it is"),
        cumulative("count", "how many have been measured"),
        snapshot("mean", "microseconds, of those since the last sample", REAL),
        snapshot("percentile_99", "microseconds that 99 of 100 of these stayed within", REAL),
        cumulative("total", "microseconds of all of them"),
    ),
)

LIFETIMES: Final = Resource(
    "instance/lifetimes",
    "lifetime",
    "ILIFETIMES",
    (
        fixed("event", "started or shutdown"),
        fixed("timestamp", "when"),
        fixed("version", "the server's version"),
    ),
)

_LOGGER: Final = (
    cumulative("bytes_written", "bytes written"),
    fixed("exclude_errors", "entries that are left out"),
    fixed("include_errors", "entries that are written whatever their level"),
    fixed("log_levels", "the levels that are written"),
)

CONSOLE_LOGGERS: Final = Resource(
    "instance/logging/console",
    "console",
    "ICONSOLE_LOGGERS",
    (*_LOGGER, fixed("target", "stdout or stderr")),
)

FILE_LOGGERS: Final = Resource(
    "instance/logging/file",
    "file",
    "IFILE_LOGGERS",
    (
        *_LOGGER,
        fixed("file_name", "the file"),
        fixed("file_name_mask", "how files are named"),
        snapshot("file_system_free_percent", "share of its file system that is free", REAL),
        fixed("rotation", "1 if full files are followed by others", INTEGER),
        fixed("rotation_threshold", "bytes with which a file is full", INTEGER),
    ),
)

SYSLOG_LOGGERS: Final = Resource(
    "instance/logging/syslog",
    "syslog",
    "ISYSLOG_LOGGERS",
    (
        *_LOGGER,
        fixed("facility", "the facility's number", INTEGER),
        fixed("ident", "under which name entries are written"),
        fixed("logopt", "the options, as bits", INTEGER),
    ),
)

MEMORY: Final = Resource(
    "instance/memory",
    "",
    "IMEMORY",
    (
        snapshot("rss", "bytes of the process that are in memory"),
        snapshot("vmsize", "bytes of the process's address space"),
    ),
)

CACHES: Final = Resource(
    "instance/memory/caches",
    "cache",
    "IMEMORY_CACHES",
    (
        cumulative("allocations", "entries ever made"),
        snapshot("bytes", "bytes it takes"),
        fixed("description", "what it is"),
        snapshot("efficiency", "share of requests that it could answer", REAL),
        snapshot("entries", "entries in it"),
        cumulative("evictions", "entries that have been dropped"),
        cumulative("fetches", "requests"),
        cumulative("overflow_bytes", "bytes kept for slow consumers"),
    ),
)

PAGINATIONS: Final = Resource(
    "instance/memory/paginations",
    "pagination",
    "IPAGINATIONS",
    (
        snapshot("memory_bytes", "bytes of the result set"),
        fixed("message_type", "the message type"),
        snapshot("subscription_count", "subscriptions that share it"),
        fixed("topic", "the topic"),
    ),
)

MESSAGE_TYPES: Final = Resource(
    "instance/message_types",
    "message_type",
    "",
    (
        fixed("module", "the module"),
        fixed("name", "the message type"),
        fixed("options", "the module's options"),
        fixed("type", "always empty; for programs of older versions"),
    ),
)

PROCESSORS: Final = Resource(
    "instance/processors",
    "processor",
    "IPROCESSORS",
    (
        cumulative("denied_reads", "reads refused by entitlement"),
        cumulative("denied_writes", "writes refused by entitlement"),
        fixed("description", "what it processes"),
        snapshot("last_active", "milliseconds since it was last active"),
        cumulative("matches_found", "messages delivered"),
        rate("matches_found_per_sec", "matches_found", "messages delivered a second"),
        cumulative("matches_found_bytes", "bytes of messages delivered"),
        rate("matches_found_bytes_per_sec", "matches_found_bytes", "bytes delivered a second"),
        cumulative("messages_received", "messages received"),
        rate("messages_received_per_sec", "messages_received", "messages received a second"),
        cumulative("messages_received_bytes", "bytes of messages received"),
        rate(
            "messages_received_bytes_per_sec", "messages_received_bytes", "bytes received a second"
        ),
        cumulative(
            "throttle_count", "how often a task had to wait for the engine's next time slice"
        ),
    ),
)

QUERIES: Final = Resource(
    "instance/queries",
    "",
    "AMPERAGE_QUERIES",
    (snapshot("queued_queries", "queries that have not been completed"),),
)

QUEUES: Final = Resource(
    "instance/queues",
    "queue",
    "IQUEUES",
    (
        cumulative("acknowledged", "messages acknowledged; not in AMPS"),
        rate("acknowledged_per_sec", "acknowledged", "the same a second; not in AMPS"),
        snapshot("age_of_oldest_lease", "seconds since the oldest lease began", REAL),
        snapshot("backlog", "messages that are leased"),
        snapshot("consumers", "subscriptions that consume it; not in AMPS"),
        snapshot("deferred_ack_count", "acks that came before their messages"),
        cumulative("enqueued", "messages that entered the queue; not in AMPS"),
        rate("enqueued_per_sec", "enqueued", "the same a second; not in AMPS"),
        cumulative("expired_leases", "leases that have timed out"),
        snapshot("inactive_message_count", "messages beyond the queue's depth"),
        fixed("max_backlog", "the queue's MaxBacklog", INTEGER),
        fixed("message_type", "the message type"),
        snapshot("owned", "messages that this instance owns"),
        snapshot("proxied_transfer", "1 if it delivers messages that an unreachable instance owns"),
        snapshot("queue_depth", "messages that have not been acknowledged"),
        snapshot("seconds_behind", "age of the oldest of these", REAL),
        fixed("target_queue_depth", "the queue's TargetQueueDepth", INTEGER),
        fixed("topic", "the queue"),
        cumulative("transferred_in", "messages taken over from other instances"),
        cumulative("transferred_out", "messages handed to other instances"),
    ),
)

REPLICATION: Final = Resource(
    "instance/replication",
    "destination",
    "IREPLICATIONS",
    (
        fixed("authenticated_id", "the user that this instance logs on as there"),
        cumulative("bytes_out", "bytes sent"),
        rate("bytes_out_per_sec", "bytes_out", "bytes sent a second"),
        fixed("client_name", "the name of this direction, the same at both ends"),
        fixed("client_type", "destination"),
        snapshot("connect_time", "when the connection was made", TEXT),
        snapshot("destination_admin_addr", "the destination's admin interface", TEXT),
        snapshot("destination_group_name", "the destination's group", TEXT),
        snapshot("destination_name", "the destination's name", TEXT),
        cumulative("disconnect_count", "how often the connection has ended"),
        snapshot("disconnect_time", "time of the last disconnect", TEXT),
        snapshot("is_connected", "1 if there is a connection"),
        cumulative("messages_out", "messages sent"),
        rate("messages_out_per_sec", "messages_out", "messages sent a second"),
        fixed("name", "the Destination's name"),
        fixed("pass_through", "1 if messages that came by replication are passed on"),
        snapshot("replication_type", "sync or async", TEXT),
        snapshot("seconds_behind", "how far the destination is behind; below 1, it is 0"),
    ),
)

SOW: Final = Resource(
    "instance/sow",
    "topic",
    "ISOW",
    (
        cumulative("delete_count", "records deleted"),
        rate("deletes_per_sec", "delete_count", "records deleted a second"),
        fixed("device", "the device that its file is on"),
        fixed("historical_granularity", "how exact history is"),
        fixed("historical_window", "how long history is kept"),
        cumulative("insert_count", "records inserted"),
        rate("inserts_per_sec", "insert_count", "records inserted a second"),
        snapshot("memory_bytes", "bytes of memory of records and indexes"),
        fixed("message_type", "the message type"),
        snapshot("mmaps", "memory maps of its file"),
        fixed("path", "its file"),
        cumulative("query_count", "queries"),
        rate("queries_per_sec", "query_count", "queries a second"),
        fixed("record_size", "bytes of a record's slot", INTEGER),
        snapshot("resident_percent", "share of its file that is in memory", REAL),
        snapshot("slab_count", "slabs"),
        fixed("slab_size", "bytes of a slab", INTEGER),
        snapshot("stored_bytes", "bytes of records"),
        fixed("topic", "the topic"),
        cumulative("update_count", "records updated"),
        rate("updates_per_sec", "update_count", "records updated a second"),
        snapshot("valid_keys", "records"),
    ),
)

SQL: Final = Resource(
    "instance/sql",
    "",
    "AMPERAGE_SQL",
    (
        cumulative("bytes_out", "bytes of results"),
        cumulative("cancelled", "statements cancelled by clients or by timeouts"),
        cumulative("execution_time", "microseconds of executing statements"),
        cumulative("failed", "statements that failed, and were refused when prepared"),
        cumulative("memory_limit_hits", "statements that failed because of a limit of memory"),
        cumulative("rows_out", "rows of results"),
        snapshot("running", "statements in progress"),
        cumulative("slow", "statements that took longer than SlowQuery"),
        cumulative("statements", "statements that have begun"),
    ),
)

SQL_ERRORS: Final = Resource(
    "instance/sql/errors",
    "error",
    "AMPERAGE_SQL_ERRORS",
    (
        fixed("about", "what errors of this class are"),
        cumulative("count", "statements that ended with an error of this class"),
    ),
)

STATISTICS: Final = Resource(
    "instance/statistics",
    "",
    "ISTATISTICS",
    (
        snapshot("disk_per_sample", "bytes by which the last sample made the database larger"),
        fixed("file_name", "the database"),
        snapshot("file_size", "bytes of the database"),
        fixed("interval", "milliseconds between samples", INTEGER),
        snapshot("memory_used", "bytes of memory of the database"),
        cumulative("queries", "queries answered from the database"),
        snapshot("time_per_sample", "microseconds that the last sample took"),
        cumulative("total_commit_time", "microseconds spent on writing samples"),
        cumulative("total_samples", "samples taken"),
        cumulative("total_time", "microseconds spent on samples, writing included"),
    ),
)

SUBSCRIPTIONS: Final = Resource(
    "instance/subscriptions",
    "subscription",
    "ISUBSCRIPTIONS",
    (
        snapshot("backlog", "messages of queues that are leased to it"),
        fixed("bookmark", "the bookmark that the client gave"),
        fixed("client_id", "the client's id in clients"),
        snapshot("cursor_id", "the replay that serves it", TEXT),
        fixed("entitlement_filter", "the filter that entitlement adds"),
        fixed("filter", "the filter"),
        fixed("message_type", "the message type"),
        fixed("options", "the options"),
        fixed("pagination_id", "the result set in memory/paginations"),
        snapshot("seconds_behind", "age of the last message replayed to it", REAL),
        fixed("sub_id", "the subscription's own id"),
        fixed("topic", "the topic or expression"),
    ),
)

TRANSACTION_LOG: Final = Resource(
    "instance/transaction_log",
    "",
    "ITRANSACTION_LOG",
    (
        snapshot("max_timestamp", "when the newest entry was recorded", TEXT),
        snapshot("min_timestamp", "when the oldest entry was recorded", TEXT),
    ),
)

JOURNALS: Final = Resource(
    "instance/transaction_log/journals",
    "journal",
    "AMPERAGE_JOURNALS",
    (
        fixed("file_name", "the file"),
        snapshot("held_by", "the parts that still need it, the first few of them", TEXT),
        snapshot("is_archived", "1 if it is in the archive"),
        snapshot("is_compressed", "1 if it is compressed"),
        snapshot("max_timestamp", "when its newest entry was recorded", TEXT),
        snapshot("min_timestamp", "when its oldest entry was recorded", TEXT),
        snapshot("size", "bytes, decompressed"),
    ),
)

_HISTOGRAM: Final = (
    snapshot("histogram", "how many fall into which range", TEXT),
    snapshot("maximum", "the largest"),
    snapshot("minimum", "the smallest"),
)

WRITE_LATENCY: Final = Resource(
    "instance/transaction_log/write_latency", "", "ITRANSACTION_WRITE_LATENCY", _HISTOGRAM
)

WRITE_SIZE: Final = Resource(
    "instance/transaction_log/write_size", "", "ITRANSACTION_WRITE_SIZE", _HISTOGRAM
)

TRANSPORTS: Final = Resource(
    "instance/transports",
    "transport",
    "ITRANSPORTS",
    (
        cumulative("bytes_in", "bytes received from clients; not in AMPS"),
        cumulative("bytes_out", "bytes sent to clients; not in AMPS"),
        snapshot("client_count", "clients that are connected; not in AMPS"),
        cumulative("connection_count", "connections of clients ever made; not in AMPS"),
        cumulative("denied_reads", "reads refused by entitlement; not in AMPS"),
        cumulative("denied_writes", "writes refused by entitlement; not in AMPS"),
        snapshot("is_enabled", "1 if it takes connections"),
        fixed("message_type", "the message type"),
        cumulative("messages_in", "messages and commands received; not in AMPS"),
        cumulative("messages_out", "messages and acks sent; not in AMPS"),
        fixed("name", "the transport"),
        fixed("options", "its options"),
        fixed("type", "its type"),
    ),
)

TUNING: Final = Resource(
    "instance/tuning",
    "",
    "",
    (fixed("NUMA", "enabled or disabled; it has no effect here"),),
)

VIEWS: Final = Resource(
    "instance/views",
    "view",
    "IVIEWS",
    (
        fixed("conflation", "the conflation of updates"),
        snapshot("conflation_ratio", "updates that came for each one made", REAL),
        fixed("grouping", "the fields of groups"),
        fixed("message_type", "the message type"),
        fixed("projection", "how fields are computed"),
        snapshot("queue_depth", "updates that have not been applied"),
        fixed("topic", "the view"),
        fixed("underlying_topic", "what it is made from"),
    ),
)

MESH_INSTANCES: Final = Resource(  # the mesh is not in the Monitoring Guide
    "mesh/instances",
    "instance",
    "",
    (
        snapshot("admin_addr", "where its admin interface is", TEXT),
        snapshot("admin_scheme", "http or https", TEXT),
        snapshot("group", "its group", TEXT),
        snapshot("has_reported", "1 if it has reported its state"),
        snapshot("is_reachable", "1 if links lead there"),
        snapshot("is_this", "1 if it is this one"),
        fixed("name", "its name"),
        snapshot("seconds_ago", "age of its last report"),
    ),
)

MESH_LINKS: Final = Resource(
    "mesh/links",
    "link",
    "",
    (
        snapshot("bytes_behind", "about how many bytes of the log the destination lacks"),
        snapshot("destination_group_name", "the destination's group", TEXT),
        snapshot("destination_name", "the instance that is there, or was last", TEXT),
        snapshot("is_connected", "1 if there is a connection"),
        snapshot("is_current", "1 if the source can be reached"),
        snapshot("messages_behind", "entries of the log that the destination has not stored"),
        cumulative("messages_out", "messages sent"),
        rate("messages_out_per_sec", "messages_out", "messages sent a second"),
        fixed("name", "the Destination's name"),
        snapshot("replication_type", "sync if publishers wait for it, else async", TEXT),
        snapshot("seconds_ago", "age of the source's report"),
        snapshot("seconds_behind", "how long what is not acknowledged has waited"),
        snapshot("since", "when it was connected, or no more, by the source's clock", TEXT),
        fixed("source_name", "the instance that sends"),
        snapshot("state", "not connected, beginning, catching up or replicating", TEXT),
        snapshot("sync_type", "sync or async, as it is configured", TEXT),
        snapshot("waits_for", "what keeps it from getting further", TEXT),
    ),
)

RESOURCES: Final = (
    HOST,
    HOST_CPUS,
    HOST_DISKS,
    HOST_MEMORY,
    HOST_NETWORK,
    INSTANCE,
    API,
    CERTIFICATES,
    CLIENTS,
    CONFLATED_TOPICS,
    CPU,
    LATENCIES,
    LIFETIMES,
    CONSOLE_LOGGERS,
    FILE_LOGGERS,
    SYSLOG_LOGGERS,
    MEMORY,
    CACHES,
    PAGINATIONS,
    MESSAGE_TYPES,
    PROCESSORS,
    QUERIES,
    QUEUES,
    REPLICATION,
    SOW,
    SQL,
    SQL_ERRORS,
    STATISTICS,
    SUBSCRIPTIONS,
    TRANSACTION_LOG,
    JOURNALS,
    WRITE_LATENCY,
    WRITE_SIZE,
    TRANSPORTS,
    TUNING,
    VIEWS,
    MESH_INSTANCES,
    MESH_LINKS,
)
"""In the order of the tree."""
