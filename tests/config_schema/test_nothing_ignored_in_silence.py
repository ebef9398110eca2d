"""What a configuration may say is acted on, or its author is told that it is not.

A new element of the schema fails here until somebody decides: it has an `effect` note, or it is
added to the sections below because the program acts on it.
"""

from config_schema import schema

ACTED_ON = (
    "Actions",
    "Admin",
    "Authentication",
    "Authenticator",
    "ClientMaxCapacity",
    "ClientMessageAgeLimit",
    "ConfigCycleDetectionThreshold",
    "ConfigIncludeCommentDefault",
    "ConfigValidation",
    "Description",
    "Entitlement",
    "Environment",
    "Group",
    "Logging",
    "MessageDiskLimit",
    "MessageDiskPath",
    "MessageMemoryLimit",
    "MessageTypes",
    "MiniDumpDirectory",
    "MiniDumpFileMask",
    "Modules",
    "Name",
    "ProcessName",
    "Protocols",
    "RegexTopicSupport",
    "Replication",
    "RequiredMinimumVersion",
    "SOW/ConflatedTopic",
    "SOW/GroupLocalQueue",
    "SOW/LocalQueue",
    "SOW/Queue",
    "SOW/Topic",
    "SOW/View",
    "SOWStatsInterval",
    "SuggestedMinimumVersion",
    "TransactionLog",
    "Transports",
    "SQL",
    "Tuning/Admin",
    "Tuning/IOThreads",
    "Tuning/Replication",
    "Tuning/TransactionLog",
    "UserDefinedFunctions",
)
"""Places whose content, apart from what is noted, the program uses."""

CONTAINERS = {doc.parent for doc in schema.elements().values()}
LEAVES = sorted(
    path.partition("/")[2]
    for path, doc in schema.elements().items()
    if path not in CONTAINERS and doc.effect is None
)


def covers(place: str, path: str) -> bool:
    return path == place or path.startswith(f"{place}/")


def test_an_element_is_acted_on_or_its_author_is_told() -> None:
    undecided = [path for path in LEAVES if not any(covers(place, path) for place in ACTED_ON)]
    assert undecided == [], "decide what becomes of these elements"


def test_what_is_acted_on_is_a_place_of_the_schema() -> None:
    assert {f"{schema.ROOT}/{place}" for place in ACTED_ON} <= set(schema.elements())
