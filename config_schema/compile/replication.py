"""Replication destinations.

Source: AMPS User Guide, Configuring Outgoing Replication Destinations and Replication Configuration
Validation.
"""

import re
from collections.abc import Collection, Sequence
from typing import Final, Literal, get_args

from config_schema.catalogue import ExpressionKind, ModuleKind
from config_schema.compile.modules import compile_use
from config_schema.compile.reader import INTERVAL, ElementReader, did_you_mean
from config_schema.compile.scope import Scope, SowDefinition
from config_schema.compile.transports import TLS_ELEMENTS, compile_tls
from config_schema.spec import (
    DestinationSpec,
    KnownBy,
    ModuleUse,
    OutgoingTransportSpec,
    ReplicatedTopicSpec,
    TlsSpec,
    TopicRef,
)
from config_schema.units import quoted

SyncType = Literal["sync", "async"]
OutgoingType = Literal["amps-replication", "amps-replication-secure"]

SYNC_TYPES: Final[tuple[SyncType, ...]] = get_args(SyncType)
OUTGOING_TYPES: Final[tuple[OutgoingType, ...]] = get_args(OutgoingType)
VALIDATION_CHECKS: Final = (
    "txlog",
    "replicate",
    "sow",
    "cascade",
    "queue",
    "keys",
    "replicate_filter",
    "queue_passthrough",
    "queue_underlying",
)
MANDATORY_CHECKS: Final = ("queue", "queue_underlying")


def compile_replication(root: ElementReader, scope: Scope) -> tuple[DestinationSpec, ...]:
    """Compile the Replication section."""
    destinations: dict[str, DestinationSpec] = {}
    authenticator = _authenticator(root, scope)
    for reader in root.section_children("Replication", "Destination"):
        spec = _destination(reader, scope, destinations, authenticator)
        if spec.name in destinations:
            reader.error(
                f"there is already a destination named {quoted(spec.name)} at "
                f"{destinations[spec.name].location}",
                tag="Name",
            )
        if not root.has("TransactionLog"):
            reader.error(
                "replicates from the transaction log, and there is none",
                "add a TransactionLog that records the topics of the destination",
            )
        destinations.setdefault(spec.name, spec)
    if not destinations:
        root.warn_no_effect(("Authenticator",), "it is for connections to replication destinations")
    return tuple(destinations.values())


def _destination(
    reader: ElementReader, scope: Scope, others: Collection[str], authenticator: ModuleUse | None
) -> DestinationSpec:
    topics = tuple(_topic(topic, scope) for topic in reader.children("Topic"))
    if not topics:
        reader.warning("has no Topic, so nothing is replicated to it")
    _check_queues(reader, topics, scope)
    transports = tuple(
        _transport(child, scope, authenticator) for child in reader.children("Transport")
    )
    _check_reachable(reader, transports, scope)
    name = reader.text("Name") or _made_name(reader, transports, others)
    has_address = any(transport.addresses for transport in transports)
    known_by: KnownBy = "name" if reader.text("Name") or not has_address else "address"
    return DestinationSpec(
        name=name,
        group=reader.text("Group") or name,
        sync_type=reader.choice("SyncType", SYNC_TYPES, "async"),
        pass_through=tuple(p.checked_pattern() for p in reader.children("PassThrough") if p.value),
        topics=topics,
        transports=transports,
        compression=_compression(reader),
        ack_conflation_interval=reader.quantity("AckConflationInterval", INTERVAL, "1s"),
        location=reader.location,
        known_by="group" if reader.text("Group") else known_by,
    )


def _made_name(
    reader: ElementReader, transports: Sequence[OutgoingTransportSpec], others: Collection[str]
) -> str:
    """Return a name for a destination without a Name, as in the documentation's examples."""
    names = [reader.text("Group")]
    names += [str(address) for transport in transports for address in transport.addresses]
    given_names = [name for name in names if name]
    return next(
        (name for name in given_names if name not in others), (given_names or ["destination"])[0]
    )


def _topic(reader: ElementReader, scope: Scope) -> ReplicatedTopicSpec:
    name = reader.required("Name")
    message_type = scope.message_type(reader)
    if scope.is_pattern(name):
        reader.pattern("Name")
    elif name and not _is_queue(name, message_type, scope):
        _require_journal(reader, name, message_type, scope)
    return ReplicatedTopicSpec(
        name=name,
        message_type=message_type,
        filter=reader.expression("Filter", ExpressionKind.STABLE_FILTER),
        exclude_validation=_excluded(reader),
        location=reader.location,
    )


def _is_queue(name: str, message_type: str, scope: Scope) -> bool:
    topic = scope.find_stored(TopicRef(name, message_type))
    return topic is not None and topic.kind.endswith("Queue")


def _require_journal(reader: ElementReader, name: str, message_type: str, scope: Scope) -> None:
    known = message_type in scope.message_types
    if known and scope.journaled and not scope.is_journaled(name, message_type):
        names = [ref.name for ref in scope.journaled if ref.message_type == message_type]
        reader.error(
            f"topic {quoted(name)} of type {quoted(message_type)} is not in the transaction log, "
            "from which it would be replicated",
            did_you_mean(name, names)
            or "add it to TransactionLog as a Topic with this Name and MessageType",
            tag="Name",
        )


def _excluded(reader: ElementReader) -> frozenset[str]:
    checks = [word.lower() for word in reader.words("ExcludeValidation")]
    for check in checks:
        if check not in VALIDATION_CHECKS:
            reader.refuse_word("ExcludeValidation", check, "a validation check", VALIDATION_CHECKS)
        elif check in MANDATORY_CHECKS:
            reader.error(
                f"the check {quoted(check)} cannot be excluded: "
                "a queue only works if both instances define it alike",
                tag="ExcludeValidation",
            )
    return frozenset(checks)


def _check_queues(
    reader: ElementReader, topics: Sequence[ReplicatedTopicSpec], scope: Scope
) -> None:
    for queue in (topic for topic in scope.stored.values() if topic.kind.endswith("Queue")):
        selecting = [topic for topic in topics if _selects(topic, queue, scope)]
        if not selecting:
            continue
        if queue.kind == "LocalQueue":
            _report_local_queue(reader, selecting[0], queue)
            continue
        source = queue.node.value("UnderlyingTopic") or queue.ref.name
        if not any(_carries(topic, source, queue, scope) for topic in topics):
            reader.report.error(
                selecting[0],
                "Topic/Name",
                f"the queue {quoted(queue.ref.name)} is replicated, "
                f"but its underlying topic {quoted(source)} is not",
                f"add a Topic named {source} of type {queue.ref.message_type}",
            )


def _selects(topic: ReplicatedTopicSpec, queue: SowDefinition, scope: Scope) -> bool:
    return topic.message_type == queue.ref.message_type and (
        topic.name == queue.ref.name or scope.matches(topic.name, queue.ref.name)
    )


def _carries(topic: ReplicatedTopicSpec, source: str, queue: SowDefinition, scope: Scope) -> bool:
    """Return true if `topic` replicates the messages of a queue's underlying topic."""
    if topic.message_type != queue.ref.message_type:
        return False
    if topic.name == source or scope.matches(topic.name, source):
        return True
    return scope.is_pattern(source)  # its topics are not known beforehand


def _report_local_queue(
    reader: ElementReader, topic: ReplicatedTopicSpec, queue: SowDefinition
) -> None:
    message = f"{quoted(queue.ref.name)} is a LocalQueue, which cannot be replicated"
    if topic.name == queue.ref.name:
        reader.report.error(
            topic, "Topic/Name", message, "make it a Queue, or replicate its underlying topic"
        )
    else:
        reader.report.warning(
            topic, "Topic/Name", f"{quoted(topic.name)} matches it, but {message}"
        )


def _authenticator(reader: ElementReader, scope: Scope) -> ModuleUse | None:
    """Compile the Authenticator of the instance, or of a transport of a destination."""
    return compile_use(reader.child("Authenticator"), ModuleKind.AUTHENTICATOR, scope)


def _transport(
    reader: ElementReader, scope: Scope, authenticator: ModuleUse | None
) -> OutgoingTransportSpec:
    kind = reader.choice("Type", OUTGOING_TYPES, "amps-replication")
    addresses = (child.own_address() for child in reader.children("InetAddr") if child.value)
    return OutgoingTransportSpec(
        name=reader.text("Name") or kind,
        type=kind,
        addresses=tuple(address for address in addresses if address is not None),
        authenticator=_authenticator(reader, scope) or authenticator,
        tls=_outgoing_tls(reader, kind),
        location=reader.location,
    )


def _outgoing_tls(reader: ElementReader, kind: OutgoingType) -> TlsSpec | None:
    given_names = [tag for tag in TLS_ELEMENTS if reader.text(tag)]
    if kind == "amps-replication" and not given_names:
        return None
    pair = ("Certificate", "PrivateKey")
    absent = [tag for tag in pair if tag not in given_names]
    if len(absent) == 1:
        reader.error("is missing: Certificate and PrivateKey go together", tag=absent[0])
    return compile_tls(reader)


def _check_reachable(
    reader: ElementReader, transports: Sequence[OutgoingTransportSpec], scope: Scope
) -> None:
    """Check that a destination without an address can be reached over an incoming connection."""
    if any(transport.has("InetAddr") for transport in reader.children("Transport")):
        return
    incoming = [transport for transport in scope.transports.values() if transport.is_replication]
    if not incoming:
        reader.error(
            "has no InetAddr, so the other instance would have to connect here, "
            "but no transport takes replication",
            "add an InetAddr to its Transport, or a Transport of type amps-replication",
        )
        return
    incoming_tls = [transport.tls for transport in incoming]
    if not transports or any(
        _is_enough(transport.tls, tls) for transport in transports for tls in incoming_tls
    ):
        return
    required_tls = transports[0].tls
    verifies = required_tls is not None and required_tls.verify_client
    names = ", ".join(transport.name for transport in incoming)
    reader.warning(
        f"has no InetAddr, so the other instance has to connect here, where {names} at "
        f"{incoming[0].location} does not {'verify certificates' if verifies else 'encrypt'}, as "
        "this Transport would: nothing is replicated to it",
        f"give {names} {'VerifyClient and CAFile' if verifies else 'a Certificate'}, "
        "or add an InetAddr here",
        tag="Transport",
    )


def _is_enough(required: TlsSpec | None, accepted: TlsSpec | None) -> bool:
    """Return true if an accepted connection is as secure as one to the destination would be."""
    if required is None:
        return True
    return accepted is not None and (accepted.verify_client or not required.verify_client)


def _compression(reader: ElementReader) -> str | None:
    inner = (child.text("Compression") for child in reader.children("Transport"))
    text = reader.text("Compression") or next(filter(None, inner), None)
    return (
        None if text is None or re.fullmatch("none|disabled|false", text, re.IGNORECASE) else text
    )
