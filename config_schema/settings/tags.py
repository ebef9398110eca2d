"""The element that each attribute of an instance's description comes from.

Attributes are named like elements, in snake case; the exceptions are listed here. A path such as
`Projection/Field` leads through elements that hold nothing else.
"""

from collections.abc import Mapping
from typing import Final

from config_schema.spec import (
    AdminSpec,
    ConflatedTopicSpec,
    DestinationSpec,
    ExternalsSpec,
    InstanceSpec,
    JournaledTopicSpec,
    LogTargetSpec,
    MessageTypeSpec,
    OutgoingTransportSpec,
    ProtocolSpec,
    QueueSpec,
    TlsSpec,
    TopicSpec,
    TransactionLogSpec,
    TransportSpec,
    TuningSpec,
    ViewSpec,
)

_INDEXES: Final = {"hash_indexes": "HashIndex", "name_has_regex_characters": ""}

_TAGS: Final[Mapping[type, Mapping[str, str]]] = {
    InstanceSpec: {
        "sow_stats_interval": "SOWStatsInterval",
        "modules": "Modules/Module",
        "message_types": "MessageTypes/MessageType",
        "user_defined_functions": "UserDefinedFunctions/Function",
        "protocols": "Protocols/Protocol",
        "transports": "Transports/Transport",
        "logging": "Logging/Target",
        "sow": "SOW",
        "replication": "Replication/Destination",
        "actions": "Actions/Action",
        "sql": "SQL",
    },
    TransportSpec: {
        "initial_state_enabled": "InitialState",
        "filters": "TransportFilter",
        "http_headers": "HTTPHeader",
    },
    TlsSpec: {
        "protocols": "SecureSocketProtocols",
        "ca_file": "CAFile",
        "ca_path": "CAPath",
    },
    ProtocolSpec: {
        "www_authenticate": "WWWAuthenticate",
        "http_headers": "HTTPHeader",
        "allowed_origins": "AccessControlAllowOrigin",
    },
    AdminSpec: {
        "www_authenticate": "WWWAuthenticate",
        "headers": "Header",
        "sql_transport": "SQLTransport",
        "sql_transport_inet_addr": "SQLTransportInetAddr",
    },
    LogTargetSpec: {},
    MessageTypeSpec: {"version_compliance": "AMPSVersionCompliance"},
    TopicSpec: {
        "keys": "Key",
        "expiration_enabled": "",  # goes with `expiration`
        "indexes": "Index",
        "preprocessing": "Preprocessing/Field",
        "enrichment": "Enrichment/Field",
        **_INDEXES,
    },
    ViewSpec: {
        "underlying": "UnderlyingTopic",
        "joins": "UnderlyingTopic/Join",
        "projection": "Projection/Field",
        "grouping": "Grouping/Field",
        "inline_conflation": "Conflation",
        **_INDEXES,
    },
    ConflatedTopicSpec: {
        "underlying": "UnderlyingTopic",
        "enrichment": "Enrichment/Field",
        **_INDEXES,
    },
    QueueSpec: {
        "kind": "",  # is the name of the entry's own element
        "underlying_is_regex": "",
        **_INDEXES,
    },
    TransactionLogSpec: {"o_direct": "O_DIRECT", "topics": "Topic"},
    JournaledTopicSpec: {"is_expression": ""},
    DestinationSpec: {
        "topics": "Topic",
        "transports": "Transport",
        "known_by": "",  # goes with `group`
    },
    OutgoingTransportSpec: {"addresses": "InetAddr"},
    TuningSpec: {
        "numa_enabled": "NUMA/Enabled",
        "min_sync_destinations": "Replication/MinSyncDestinations",
        "queue_delivery_flush_interval": "Queue/QueueDeliveryFlushInterval",
        "statistics_indexing_enabled": "Admin/Statistics/Indexing/Enabled",
        "topic_index_enabled": "TransactionLog/TopicIndex",
        "io_threads": "IOThreads",
    },
    ExternalsSpec: {"ssl": "SSL/Library", "crypto": "Crypto/Library", "curl": "Curl/Library"},
}


def tag_of(part: type, attribute: str) -> str:
    """Name the element that an attribute of a part of the description comes from.

    Returns:
        Its path within the part's element; "" where another attribute stands for the element.
    """
    own_tag = _TAGS.get(part, {}).get(attribute)
    return "".join(map(str.capitalize, attribute.split("_"))) if own_tag is None else own_tag
