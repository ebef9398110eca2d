"""The features of the configuration language, and the sections on how this server differs.

Every element of the configuration language is part of one feature (a test checks that). A place is
the path of an element, and includes everything inside it; with `=`, only these values. The
longest place that fits decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from config_schema.compile.transports import TLS_ELEMENTS


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature that a configuration may use.

    Attributes:
        name: description of the feature.
        element_paths: elements of the configuration that use it.
        section: of docs/compatibility.md, on the differences; empty if it is the same here.
        is_supported: False if this server lacks it.
    """

    name: str
    element_paths: tuple[str, ...]
    section: str = ""
    is_supported: bool = True


_LEGACY: Final = "fix|nvfix|xml|soap"
_TEXT_TYPES: Final = "json|xml|fix|nvfix|composite-local|composite-global"
_BINARY_TYPES: Final = "bson|bflat|msgpack|protobuf|struct"
_TYPED: Final = (
    "MessageTypes/MessageType/Module",
    "Transports/Transport/MessageType",
    "SOW/Topic/MessageType",
    "SOW/View/MessageType",
    "SOW/ConflatedTopic/MessageType",
    "SOW/Queue/MessageType",
    "SOW/LocalQueue/MessageType",
    "SOW/GroupLocalQueue/MessageType",
    "TransactionLog/Topic/MessageType",
)
_QUEUES: Final = ("SOW/Queue", "SOW/LocalQueue", "SOW/GroupLocalQueue")
_SLOW: Final = (
    "MessageMemoryLimit",
    "MessageDiskLimit",
    "MessageDiskPath",
    "ClientMessageAgeLimit",
    "ClientMaxCapacity",
)


def _paths_in(parents: tuple[str, ...], *names: str) -> tuple[str, ...]:
    return tuple(f"{parent}/{name}" for parent in parents for name in names)


FEATURES: Final = (
    Feature("the instance's name and description", ("Name", "Group", "ProcessName", "Description")),
    Feature("the instance's environment", ("Environment",)),
    Feature(
        "how the configuration is read",
        (
            "SuggestedMinimumVersion",
            "RequiredMinimumVersion",
            "ConfigIncludeCommentDefault",
            "ConfigCycleDetectionThreshold",
            "ConfigValidation",
        ),
        "Reading a configuration",
    ),
    Feature("topics as regular expressions", ("RegexTopicSupport",), "Commands"),
    Feature("statistics as messages", ("SOWStatsInterval",), "Commands"),
    Feature(
        "limits of slow clients",
        (*_SLOW, *_paths_in(("Transports/Transport",), *_SLOW)),
        "Commands",
    ),
    Feature(
        "authentication",
        ("Authentication", "Transports/Transport/Authentication", "Admin/Authentication"),
        "Actions",
    ),
    Feature(
        "entitlement",
        ("Entitlement", "Transports/Transport/Entitlement", "Admin/Entitlement"),
        "Actions",
    ),
    Feature("minidumps", ("MiniDumpDirectory", "MiniDumpFileMask"), "Actions"),
    Feature("the admin interface", ("Admin",), "The admin interface"),
    Feature(
        "the statistics database",
        ("Admin/FileName", "Admin/Interval", "Tuning/Admin"),
        "The statistics database",
    ),
    Feature("modules that are loaded (see 3)", ("Modules",)),
    Feature("functions of one's own (see 3)", ("UserDefinedFunctions",)),
    Feature("message types with settings", ("MessageTypes",)),
    Feature(
        "text message types",
        tuple(f"{place}={_TEXT_TYPES}" for place in _TYPED),
        "Text message types, composites and paths",
    ),
    Feature(
        "binary message types",
        tuple(f"{place}={_BINARY_TYPES}" for place in _TYPED),
        "Binary message types",
    ),
    Feature("protocols with settings", ("Protocols",), "Transports"),
    Feature("transports", ("Transports",)),
    Feature("websockets", ("Transports/Transport/Protocol=websocket",), "Transports"),
    Feature(
        "legacy protocols",
        (f"Transports/Transport/Protocol={_LEGACY}", f"Protocols/Protocol/Module={_LEGACY}"),
        "Legacy protocols",
    ),
    Feature(
        "the protocol fix-session",
        ("Transports/Transport/Protocol=fix-session", "Protocols/Protocol/Module=fix-session"),
        "Legacy protocols",
        is_supported=False,
    ),
    Feature(
        "TLS",
        (
            "Transports/Transport/Type=tcps",
            *_paths_in(("Transports/Transport", "Admin"), *TLS_ELEMENTS),
        ),
        "Transports",
    ),
    Feature("transport filters", ("Transports/Transport/TransportFilter",), "Transports"),
    Feature(
        "replication",
        ("Replication", "Tuning/Replication", "Authenticator"),
        "Links between instances",
    ),
    Feature(
        "transports for replication",
        ("Transports/Transport/Type=amps-replication|amps-replication-secure",),
        "Links between instances",
    ),
    Feature("logs", ("Logging",), "The server log"),
    Feature("topics with records", ("SOW",), "The State of the World"),
    Feature("conflated topics", ("SOW/ConflatedTopic",), "Queries and subscriptions of records"),
    Feature("history of records", ("SOW/Topic/History",), "Queries and subscriptions of records"),
    Feature("views", ("SOW/View",), "Views"),
    Feature("queues", (*_QUEUES, "Tuning/Queue"), "Queues"),
    Feature(
        "filters and expressions",
        (
            *_paths_in(("SOW/Topic",), "Preprocessing", "Enrichment"),
            *_paths_in(("SOW/ConflatedTopic",), "Filter", "Enrichment"),
            *_paths_in(("SOW/View",), "Filter", "Projection", "Grouping"),
            *_paths_in(_QUEUES, "Filter", "Priority", "BarrierExpression"),
            "Replication/Destination/Topic/Filter",
        ),
        "Expressions",
    ),
    Feature(
        "the transaction log", ("TransactionLog", "Tuning/TransactionLog"), "The transaction log"
    ),
    Feature("actions", ("Actions",), "Actions"),
    Feature("queries in SQL", ("SQL", "Transports/Transport/Protocol=postgresql|flight-sql")),
    Feature("tuning", ("Tuning",)),
    Feature("libraries of the system", ("Externals",)),
)


@cache
def _features_by_path() -> dict[str, list[tuple[frozenset[str], Feature]]]:
    """Return the features of each path with the values that each requires; an empty set: any."""
    features: dict[str, list[tuple[frozenset[str], Feature]]] = {}
    for feature in FEATURES:
        for element_path in feature.element_paths:
            path, _, values = element_path.partition("=")
            expected = frozenset(values.split("|")) if values else frozenset[str]()
            features.setdefault(path, []).append((expected, feature))
    return features


def features_of(path: str, value: str) -> Iterator[Feature]:
    """Yield the features of an element: those of its own value, and the one of the longest place.

    Args:
        path: path of the element, below the root, in canonical names.
        value: its text.
    """
    features = _features_by_path()
    for expected, feature in features.get(path, ()):
        if value.lower() in expected:
            yield feature
    while path:
        for expected, feature in features.get(path, ()):
            if not expected:
                yield feature
                return
        path = path.rpartition("/")[0]
