"""The consequences of configuration changes: a sentence and a concern for each element.

Sentences that do not depend on values are in the tables below; a function makes those that depend
on the rest of the configuration, such as whether the transaction log has a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from config_schema.compile.transports import TLS_ELEMENTS
from config_schema.regex import matches
from config_schema.schema import ROOT
from config_schema.spec import (
    DestinationSpec,
    JournaledTopicSpec,
    QueueSpec,
    TopicSpec,
    TransactionLogSpec,
    TransportSpec,
)

if TYPE_CHECKING:
    from config_schema.settings import SettingChange, SettingsEntry
    from config_schema.spec import InstanceSpec


class ImpactArea(StrEnum):
    """The data, systems or people that a change concerns, the gravest first."""

    DATA = "data"
    """Records or messages are not found any more, or are delivered again."""
    SECURITY = "security"
    """Users have more or fewer permissions, or their traffic is more or less protected."""
    PEERS = "peers"
    """Instances that replicate to this one or from it."""
    CLIENTS = "clients"
    """Clients notice the change."""
    OPERATION = "operation"
    """The operators of the instance."""


@dataclass(frozen=True, slots=True)
class ChangeCase:
    """A change, with the old and the new instance."""

    change: SettingChange
    old: InstanceSpec
    new: InstanceSpec

    @property
    def before(self) -> str:
        """The old value; empty if there was none."""
        return self.change.old.text if self.change.old else ""

    @property
    def after(self) -> str:
        """The new value; empty if there is none."""
        return self.change.new.text if self.change.new else ""


ImpactText = str | Callable[[ChangeCase], str]
ImpactRule = tuple[ImpactArea, ImpactText]


# Sentences that depend on the rest of the configuration


def _rebuilt(topic: TopicSpec, instance: InstanceSpec) -> bool:
    """Return whether a topic's records are rebuilt from the transaction log, as far as it goes."""
    return instance.is_journaled(topic.message_type, topic.name)


def _topic_of(case: ChangeCase) -> tuple[TopicSpec, TopicSpec]:
    before = case.change.before.part if case.change.before else None
    after = case.change.after.part if case.change.after else None
    if not isinstance(before, TopicSpec) or not isinstance(after, TopicSpec):
        raise TypeError("a setting of a Topic belongs to one on both sides")
    return before, after


def _refusal(case: ChangeCase, check: str) -> str:
    """Return the effect on incoming replication links; empty if there can be none."""
    if not any(transport.is_replication for transport in case.new.transports):
        return ""
    unless = "" if check == "queue" else ", unless they exclude that"
    return f" Instances that replicate it here fail the validation {check}{unless}."


def _topic_added(case: ChangeCase) -> str:
    topic = case.change.after.part if case.change.after else None
    if not isinstance(topic, TopicSpec):
        return ""
    recorded = f"its messages in the transaction log, from {_point(topic)}"
    if topic.file_name is None:
        return (
            f"It begins with {recorded}, at every start."
            if _rebuilt(topic, case.new)
            else "It is empty after every start."
        )
    otherwise = f"with {recorded}" if _rebuilt(topic, case.new) else "with nothing"
    return f"It begins with the content of {topic.file_name}, if that exists, or else {otherwise}."


def _point(topic: TopicSpec) -> str:
    if isinstance(topic.recovery_point, int):
        return "its RecoveryPoint on"
    return {"epoch": "its beginning on", "now": "now on"}[topic.recovery_point]


def _topic_removed(case: ChangeCase) -> str:
    topic = case.change.before.part if case.change.before else None
    if not isinstance(topic, TopicSpec):
        return ""
    file = f"its file {topic.file_name} stays and is not read" if topic.file_name else ""
    effect = "Its records are gone for clients: queries find nothing, deltas cannot be merged"
    still_works = _pattern_note(topic, case.new) or " Subscribers still get messages."
    return f"{effect}{'; ' if file else ''}{file}.{still_works}{_refusal(case, 'sow')}"


def _pattern_note(topic: TopicSpec, instance: InstanceSpec) -> str:
    """Return a sentence about the Pattern that keeps the records of a removed topic, if any."""
    patterns = (
        pattern for pattern in instance.sow if isinstance(pattern, TopicSpec) and pattern.pattern
    )
    for pattern in patterns:
        if pattern.message_type == topic.message_type and matches(
            pattern.pattern or "", topic.name
        ):
            return f" What is published from then on is kept by the Pattern of {pattern.name}."
    return ""


def _kind_changed(_: ChangeCase) -> str:
    return "It is another topic under the same name: stored data of the old one are not used."


def _other_file(case: ChangeCase) -> str:
    before, after = _topic_of(case)
    if after.file_name is None or before.file_name is None:
        return ""  # covered by the change of Durability
    left = f"{before.file_name} stays and is not read any more. "
    begins = f"The topic begins with the content of {after.file_name}"
    if _rebuilt(after, case.new):
        content = f"from the transaction log, from {_point(after)}"
    else:
        content = "empty, since the transaction log does not have the topic"
    keep = "To keep the records, move the file while the server is down."
    return f"{left}{begins}; a file that does not exist is made {content}. {keep}"


def _other_keys(case: ChangeCase) -> str:
    _, after = _topic_of(case)
    refused = _refusal(case, "keys")
    if after.file_name is None:
        return f"Records get other SOW keys.{refused}"
    keep = (
        "Records that are stored get other SOW keys at the start. Of several that would have one "
        "key, the newest gets it, and the others are set aside under keys that no message has. "
        f"Remove {after.file_name} before the start"
    )
    if _rebuilt(after, case.new):
        rebuild = "to have all records made anew from the transaction log, as far as it goes back"
        return f"{keep} {rebuild}.{refused}"
    return f"{keep} to begin with no records.{refused}"


def _recorded(case: ChangeCase) -> str:
    if _is_recorded(case.change.after, case.old):
        return "It was recorded already, by another Topic."
    return "It is recorded from the start on; earlier messages cannot be replayed."


def _recording_ended(case: ChangeCase) -> str:
    if _is_recorded(case.change.before, case.new):
        return "It is still recorded, by another Topic."
    effect = "It is not recorded any more: new messages cannot be replayed, nor restored"
    return f"{effect} when the instance recovers.{_refusal(case, 'txlog')}"


def _is_recorded(entry: SettingsEntry | None, instance: InstanceSpec) -> bool:
    topic = entry.part if entry else None
    return isinstance(topic, JournaledTopicSpec) and instance.is_journaled(
        topic.message_type, topic.name
    )


def _other_expiration(case: ChangeCase) -> str:
    before, after = _topic_of(case)
    if not after.expiration_enabled:
        return "Nothing expires any more."
    if not before.expiration_enabled:
        return "Records that are stored have no end; they expire when they are published again."
    return "Records that are stored keep the end that they have."


def _queue_removed(case: ChangeCase) -> str:
    left = "Unacknowledged messages stay in the transaction log, and no consumer gets them."
    return f"{left}{_refusal(case, 'queue')}"


def _other_durability(case: ChangeCase) -> str:
    before, after = _topic_of(case)
    if after.file_name is None:
        source = (
            "are made from the transaction log at every start, as far as it goes back"
            if _rebuilt(after, case.new)
            else "are lost when the server stops, since the transaction log does not have the topic"
        )
        return f"Records {source}; {before.file_name} stays and is not read."
    return _topic_added(case)


def _queue_added(case: ChangeCase) -> str:
    queue = case.change.after.part if case.change.after else None
    if not isinstance(queue, QueueSpec):
        return ""
    if queue.recovery_point == "epoch":
        return (
            "It begins with all that the transaction log has of its topic, from the beginning: "
            "set RecoveryPoint to now if consumers are to get new messages only."
        )
    return f"It begins at its RecoveryPoint, {queue.recovery_point}."


def _directory(case: ChangeCase) -> str:
    return (
        f"The log goes on with what is in {case.after}, and if nothing is there it begins empty: "
        "there is nothing to replay, queues are empty, publishers and other instances are not "
        f"known. The files in {case.before} stay and are not read; move them while the server is "
        "down. Records in SOW files stay."
    )


def _renamed(case: ChangeCase) -> str:
    log = case.new.transaction_log
    journals = (
        f" The journals in {log.journal_directory} are named after the instance: those of "
        f"{case.before} are not read, and the log of {case.after} begins empty; so does what "
        "queues, publishers and other instances are known by."
        if isinstance(log, TransactionLogSpec)
        else ""
    )
    peers = (
        f" Destinations of other instances that are for {case.before} refuse it."
        if replicates(case.new)
        else ""
    )
    return (
        f"Others take it for another instance: its name is in logs and statistics.{journals}{peers}"
    )


def _other_group(case: ChangeCase) -> str:
    if not replicates(case.new):
        return ""
    group = case.old.group
    return f"Destinations of other instances that are for the Group {group} refuse this instance."


def replicates(instance: InstanceSpec) -> bool:
    """Return whether an instance replicates to others, or they to it."""
    return bool(instance.replication) or any(
        transport.is_replication for transport in instance.transports
    )


def _transport_gone(case: ChangeCase) -> str:
    transport = case.change.before.part if case.change.before else None
    if not isinstance(transport, TransportSpec):
        return ""
    if transport.is_replication:
        return f"Instances that replicate to {_where(transport)} are refused the connection."
    return f"Clients that connect to {_where(transport)} are refused the connection."


def _transport_new(case: ChangeCase) -> str:
    transport = case.change.after.part if case.change.after else None
    if not isinstance(transport, TransportSpec):
        return ""
    clients = "Instances that replicate here" if transport.is_replication else "Clients"
    return f"{clients} can connect to {_where(transport)}."


def _address_changed(case: ChangeCase) -> str:
    transport = case.change.after.part if case.change.after else None
    replicates = isinstance(transport, TransportSpec) and transport.is_replication
    clients = "Instances that replicate here" if replicates else "Clients"
    return f"{clients} must connect to {case.after}; at {case.before} they are refused."


def _where(transport: TransportSpec) -> str:
    return str(transport.inet_addr or transport.file_name)


def _destination_new(case: ChangeCase) -> str:
    destination = case.change.after.part if case.change.after else None
    if not isinstance(destination, DestinationSpec):
        return ""
    wait = (
        " Until it has caught up, publishers wait for their acknowledgements."
        if destination.sync_type == "sync"
        else ""
    )
    gets = "It gets what the log has of its topics, from the beginning on, unless it has that"
    return f"{gets} already; no journal is removed before.{wait}"


CONCERNS: Final[Mapping[str, ImpactArea]] = {
    "Transports": ImpactArea.CLIENTS,
    "Protocols": ImpactArea.CLIENTS,
    "MessageTypes": ImpactArea.CLIENTS,
    "SOW": ImpactArea.CLIENTS,
    "Replication": ImpactArea.PEERS,
}
SECURITY: Final = (
    "Authentication",
    "Entitlement",
    "Authenticator",
    *TLS_ELEMENTS,
    "AnonymousPaths",
    "AccessControlAllowOrigin",
    "TrustedAdmin",
)
SECURITY_RULE: Final[ImpactRule] = (
    ImpactArea.SECURITY,
    "Logons or permissions change: ampServer --explain-access USER shows it.",
)
REORDERED: Final[ImpactRule] = (
    ImpactArea.OPERATION,
    "They are used in this order: the first that fits or can be reached comes first.",
)

_QUEUES: Final = ("SOW/Queue", "SOW/LocalQueue", "SOW/GroupLocalQueue")
_KEPT_KINDS: Final = ("SOW/Topic", "SOW/View", "SOW/ConflatedTopic", *_QUEUES)

ENTRIES: Final[Mapping[tuple[str, str], ImpactRule]] = {
    ("added", "SOW/Topic"): (ImpactArea.CLIENTS, _topic_added),
    ("removed", "SOW/Topic"): (ImpactArea.DATA, _topic_removed),
    **{("changed", kind): (ImpactArea.DATA, _kind_changed) for kind in _KEPT_KINDS},
    **{("added", kind): (ImpactArea.CLIENTS, _queue_added) for kind in _QUEUES},
    **{("removed", kind): (ImpactArea.DATA, _queue_removed) for kind in _QUEUES},
    ("added", "SOW/View"): (ImpactArea.CLIENTS, "It is computed from its topics at the start."),
    ("removed", "SOW/View"): (ImpactArea.CLIENTS, "Clients find nothing under its name."),
    ("removed", "SOW/ConflatedTopic"): (ImpactArea.CLIENTS, "Clients find nothing under its name."),
    ("added", "TransactionLog"): (
        ImpactArea.CLIENTS,
        "Its topics are recorded from the start on; earlier messages cannot be replayed.",
    ),
    ("removed", "TransactionLog"): (
        ImpactArea.DATA,
        "Nothing is recorded any more, so that nothing can be replayed. The files stay.",
    ),
    ("added", "TransactionLog/Topic"): (ImpactArea.CLIENTS, _recorded),
    ("removed", "TransactionLog/Topic"): (ImpactArea.DATA, _recording_ended),
    ("added", "Transports/Transport"): (ImpactArea.CLIENTS, _transport_new),
    ("removed", "Transports/Transport"): (ImpactArea.CLIENTS, _transport_gone),
    ("added", "Replication/Destination"): (ImpactArea.PEERS, _destination_new),
    ("removed", "Replication/Destination"): (
        ImpactArea.PEERS,
        "Nothing is sent to it any more, and no journal is kept for it.",
    ),
    ("added", "Replication/Destination/Topic"): (
        ImpactArea.PEERS,
        "It is sent from the start of the log on, except for messages that the destination has.",
    ),
    ("removed", "Replication/Destination/Topic"): (
        ImpactArea.PEERS,
        "It is not sent any more; messages that the destination has stay there.",
    ),
    ("added", "Admin"): (ImpactArea.OPERATION, "There is an admin interface, and statistics."),
    ("removed", "Admin"): (
        ImpactArea.OPERATION,
        "There is no admin interface any more: monitoring of the instance gets no answer.",
    ),
    ("added", "SOW/Topic/History"): (ImpactArea.CLIENTS, "Past states are kept from the start on."),
    ("removed", "SOW/Topic/History"): (ImpactArea.DATA, "Past states cannot be queried any more."),
    ("removed", "Logging/Target"): (ImpactArea.OPERATION, "Nothing is written there any more."),
    ("removed", "Actions/Action"): (ImpactArea.OPERATION, "It does not run any more."),
    ("added", "Actions/Action"): (ImpactArea.OPERATION, "It runs from the start on."),
}

_KEYS: Final[ImpactRule] = (ImpactArea.DATA, _other_keys)
_AT_START: Final[ImpactRule] = (
    ImpactArea.OPERATION,
    "It is built at the start; queries find the same as before.",
)
_NEW_MESSAGES_ONLY: Final[ImpactRule] = (
    ImpactArea.CLIENTS,
    "It is for messages from the start on; records that are stored stay as they are.",
)
_NEW_FILES: Final[ImpactRule] = (
    ImpactArea.OPERATION,
    "A file that exists keeps its own; it applies to newly created files.",
)
_RECONNECT: Final[ImpactRule] = (ImpactArea.CLIENTS, _address_changed)
_VIEW: Final[ImpactRule] = (
    ImpactArea.CLIENTS,
    "The view is computed again at the start; its subscribers get other messages.",
)

_QUEUE_SETTINGS: Final[Mapping[str, ImpactRule]] = {
    "RecoveryPoint": (
        ImpactArea.DATA,
        "The queue begins again there: acknowledged messages may be delivered again.",
    ),
    "UnderlyingTopic": (
        ImpactArea.DATA,
        "The queue takes its messages from elsewhere; remaining ones of {old} are not delivered.",
    ),
    "Semantics": (
        ImpactArea.DATA,
        "It decides whether a message that is not acknowledged is delivered again.",
    ),
    "Filter": (ImpactArea.CLIENTS, "It decides which messages are in the queue."),
}

SETTINGS: Final[Mapping[str, Mapping[str, ImpactRule]]] = {
    ROOT: {
        "Name": (ImpactArea.DATA, _renamed),
        "Group": (ImpactArea.PEERS, _other_group),
        "ConfigValidation": (ImpactArea.OPERATION, "It determines the checks before the start."),
        "RegexTopicSupport": (
            ImpactArea.CLIENTS,
            "It decides whether names of topics are taken for regular expressions everywhere.",
        ),
        "ClientMessageAgeLimit": (ImpactArea.CLIENTS, "Slow clients are disconnected after that."),
        "MessageDiskPath": (ImpactArea.OPERATION, "Make sure that there is room."),
    },
    "SOW/Topic": {
        "FileName": (ImpactArea.DATA, _other_file),
        "Durability": (ImpactArea.DATA, _other_durability),
        "Key": _KEYS,
        "KeyDomain": _KEYS,
        "KeyGenerator": _KEYS,
        "RecoveryPoint": (
            ImpactArea.OPERATION,
            "It counts only where the topic has no records yet.",
        ),
        "Expiration": (ImpactArea.DATA, _other_expiration),
        "SlabSize": _NEW_FILES,
        "InitialSlabCount": _NEW_FILES,
        "HashIndex": _AT_START,
        "Index": _AT_START,
        "Preprocessing/Field": _NEW_MESSAGES_ONLY,
        "Enrichment/Field": _NEW_MESSAGES_ONLY,
        "Pattern": (
            ImpactArea.DATA,
            "Topics that it no longer matches have no records any more.",
        ),
    },
    "SOW/Topic/History": {
        "Window": (ImpactArea.DATA, "Past states that are older are dropped."),
    },
    "SOW/View": {
        "UnderlyingTopic": _VIEW,
        "UnderlyingTopic/Join": _VIEW,
        "Projection/Field": _VIEW,
        "Grouping/Field": _VIEW,
        "Filter": _VIEW,
        "HashIndex": _AT_START,
    },
    "SOW/ConflatedTopic": {
        "HashIndex": _AT_START,
    },
    **dict.fromkeys(_QUEUES, _QUEUE_SETTINGS),
    "TransactionLog": {
        "JournalDirectory": (ImpactArea.DATA, _directory),
        "JournalArchiveDirectory": (
            ImpactArea.DATA,
            "Journals in {old} are not read any more; move them while the server is down.",
        ),
        "JournalSize": (ImpactArea.OPERATION, "It is for the files that are made from then on."),
        "FlushInterval": (
            ImpactArea.OPERATION,
            "It is how long a publisher may wait for the acknowledgement.",
        ),
        "InactiveClientAckExpiration": (
            ImpactArea.DATA,
            "A publisher that is forgotten may have its messages recorded twice.",
        ),
    },
    "Transports/Transport": {
        "InetAddr": _RECONNECT,
        "FileName": _RECONNECT,
        "Type": (ImpactArea.CLIENTS, "Clients must connect in the new way."),
        "Protocol": (ImpactArea.CLIENTS, "Clients must speak {new}; clients of {old} are refused."),
        "MessageType": (
            ImpactArea.CLIENTS,
            "It decides which message types clients may use there.",
        ),
        "TransportFilter": (ImpactArea.CLIENTS, ""),
    },
    "Admin": {
        "InetAddr": (
            ImpactArea.OPERATION,
            "The console and monitoring must use {new}.",
        ),
        "FileName": (
            ImpactArea.OPERATION,
            "Statistics of the past stay in {old}, and go on in {new}.",
        ),
    },
    "Replication/Destination": {
        "SyncType": (
            ImpactArea.PEERS,
            "With sync, publishers get acks only for messages that the destination has, too.",
        ),
        "Group": (
            ImpactArea.PEERS,
            "Only an instance of this Group is accepted there: the link to any other is refused.",
        ),
        "PassThrough": (
            ImpactArea.PEERS,
            "It decides which messages of other instances are passed on.",
        ),
    },
    "Replication/Destination/Topic": {
        "Filter": (
            ImpactArea.PEERS,
            "It decides which messages are sent from then on, and the destination validates it.",
        ),
        "ExcludeValidation": (
            ImpactArea.PEERS,
            "A check that is no longer excluded refuses the link if it fails.",
        ),
    },
    "Replication/Destination/Transport": {
        "InetAddr": (ImpactArea.PEERS, "The link is made to {new} instead of {old}."),
        "Type": (ImpactArea.PEERS, "Both ends must use it."),
    },
    "Logging/Target": {
        "FileName": (ImpactArea.OPERATION, "Lines go to {new}; {old} stays as it is."),
    },
}
