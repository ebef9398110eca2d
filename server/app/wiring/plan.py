"""The runtime graph that a configuration describes, printable before anything starts.

Nodes are the parts of an instance; an edge connects a part to one that it feeds or serves. Nodes
are in start order: the dependencies of a node precede it. That follows from the order of kinds
below and, within the stores, from the rule that topics are declared before they are used (AMPS
User Guide, Configuring Views in a SOW).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from config_schema.configuration_text import shown
from config_schema.problems import Location
from config_schema.spec import (
    ConflatedTopicSpec,
    InstanceSpec,
    ModuleUse,
    QueueSpec,
    SowSpec,
    TopicRef,
    TopicSpec,
    TransportSpec,
    ViewSpec,
)


class NodeKind(Enum):
    """The kind of a node; members are in start order."""

    LOG_TARGET = "log target"
    MODULE = "module"
    MESSAGE_TYPE = "message type"
    FUNCTION = "function"
    JOURNAL = "transaction log"
    TOPIC = "SOW topic"
    CONFLATED_TOPIC = "conflated topic"
    VIEW = "view"
    QUEUE = "queue"
    DESTINATION = "replication destination"
    ACTION = "action"
    ADMIN = "admin interface"
    TRANSPORT = "transport"


_STORES: Final = (NodeKind.TOPIC, NodeKind.CONFLATED_TOPIC, NodeKind.VIEW, NodeKind.QUEUE)
_START_RANK: Final = {
    kind: list(NodeKind).index(NodeKind.TOPIC if kind in _STORES else kind) for kind in NodeKind
}
"""Stores share one rank: they keep the order of the configuration file."""


@dataclass(frozen=True, slots=True)
class PlanNode:
    """One part of an instance.

    Attributes:
        kind: its kind.
        name: its name, unique within its kind.
        detail: a few words that distinguish it from others of its kind.
        location: its location in the configuration.
        topic: its topic; None if it is not a topic.
    """

    kind: NodeKind
    name: str
    detail: str
    location: Location
    topic: TopicRef | None = None


@dataclass(frozen=True, slots=True)
class PlanEdge:
    """`source` feeds or serves `target`; `label` describes how."""

    source: PlanNode
    target: PlanNode
    label: str


@dataclass(frozen=True, slots=True)
class Plan:
    """An instance before it runs.

    Attributes:
        instance: its name.
        nodes: its parts, in start order.
        edges: the connections between them.
    """

    instance: str
    nodes: tuple[PlanNode, ...]
    edges: tuple[PlanEdge, ...]


def plan_runtime(spec: InstanceSpec, secrets: Collection[str] = ()) -> Plan:
    """Return the runtime graph of an instance.

    Args:
        spec: its description.
        secrets: the values of secret variables in it, to be redacted.
    """
    nodes = sorted(_nodes(spec), key=lambda node: _START_RANK[node.kind])
    shown_nodes = {
        id(node): replace(node, name=shown(node.name, secrets), detail=shown(node.detail, secrets))
        for node in nodes
    }
    edges = [
        replace(edge, source=shown_nodes[id(edge.source)], target=shown_nodes[id(edge.target)])
        for edge in _edges(spec, nodes)
    ]
    return Plan(spec.name, tuple(shown_nodes.values()), tuple(edges))


def as_text(plan: Plan) -> str:
    """Return the plan as text: a line per part in start order, with its incoming edges below."""
    lines = [f"instance {plan.instance}: {len(plan.nodes)} parts, in start order"]
    for number, node in enumerate(plan.nodes, 1):
        lines.append(f"{number:4}. {_described(node)}")
        lines += [
            f"        {edge.label} {edge.source.kind.value} {edge.source.name}"
            for edge in plan.edges
            if edge.target is node
        ]
    return "\n".join(lines)


def _described(node: PlanNode) -> str:
    detail = f" ({node.detail})" if node.detail else ""
    return f"{node.kind.value} {node.name}{detail}  {node.location}"


def as_graphviz(plan: Plan) -> str:
    """Return the plan in the language of Graphviz's `dot`."""
    ids = {id(node): f"n{number}" for number, node in enumerate(plan.nodes)}
    lines = [f"digraph {_quoted(plan.instance)} {{", "  rankdir=LR;", "  node [shape=box];"]
    lines += [
        f"  {ids[id(node)]} [label={_quoted(node.kind.value, node.name)}];" for node in plan.nodes
    ]
    lines += [
        f"  {ids[id(edge.source)]} -> {ids[id(edge.target)]} [label={_quoted(edge.label)}];"
        for edge in plan.edges
    ]
    return "\n".join([*lines, "}"])


def as_data(plan: Plan) -> dict[str, object]:
    """Return the plan for JSON: edges name nodes by their numbers, in start order."""
    ids = {id(node): number for number, node in enumerate(plan.nodes)}
    return {
        "instance": plan.instance,
        "nodes": [
            {
                "kind": node.kind.value,
                "name": node.name if node.topic is None else node.topic.name,
                "message_type": "" if node.topic is None else node.topic.message_type,
                "detail": node.detail,
                "location": str(node.location),
            }
            for node in plan.nodes
        ],
        "edges": [
            {"source": ids[id(edge.source)], "target": ids[id(edge.target)], "label": edge.label}
            for edge in plan.edges
        ],
    }


def _quoted(*lines: str) -> str:
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(escaped) + '"'


def _nodes(spec: InstanceSpec) -> Iterator[PlanNode]:
    for target in spec.logging:
        yield PlanNode(
            NodeKind.LOG_TARGET, target.file_name or target.protocol, "", target.location
        )
    for module in spec.modules:
        yield PlanNode(NodeKind.MODULE, module.name, module.library, module.location)
    for message_type in spec.message_types:
        yield PlanNode(
            NodeKind.MESSAGE_TYPE, message_type.name, message_type.module, message_type.location
        )
    for function in spec.user_defined_functions:
        yield PlanNode(NodeKind.FUNCTION, function.name, function.module, function.location)
    if spec.transaction_log is not None:
        journal = spec.transaction_log
        yield PlanNode(NodeKind.JOURNAL, journal.journal_directory, "", journal.location)
    for store in spec.sow:
        yield PlanNode(
            _kind_of(store), str(store.ref), _detail_of(store), store.location, topic=store.ref
        )
    for destination in spec.replication:
        yield PlanNode(
            NodeKind.DESTINATION, destination.name, destination.sync_type, destination.location
        )
    for action in spec.actions:
        name = ", ".join(trigger.module for trigger in action.triggers)
        steps = " then ".join(step.use.module for step in action.steps)
        yield PlanNode(NodeKind.ACTION, name, steps, action.location)
    if spec.admin is not None and spec.admin.inet_addr is not None:
        address = str(spec.admin.inet_addr)
        yield PlanNode(NodeKind.ADMIN, address, "", spec.admin.location)
    for transport in spec.transports:
        detail = _transport_detail(transport)
        yield PlanNode(NodeKind.TRANSPORT, transport.name, detail, transport.location)


def _kind_of(store: SowSpec) -> NodeKind:
    match store:
        case TopicSpec():
            return NodeKind.TOPIC
        case ViewSpec():
            return NodeKind.VIEW
        case QueueSpec():
            return NodeKind.QUEUE
        case ConflatedTopicSpec():
            return NodeKind.CONFLATED_TOPIC


def _detail_of(store: SowSpec) -> str:
    match store:
        case TopicSpec():
            return f"{store.durability}, {_key_of(store)}"
        case QueueSpec():
            return store.semantics
        case _:
            return ""


def _key_of(topic: TopicSpec) -> str:
    if topic.key_generator is not None:
        return f"key by {topic.key_generator.module}"
    return f"key {', '.join(topic.keys)}" if topic.keys else "publisher-provided key"


def _transport_detail(transport: TransportSpec) -> str:
    where = transport.inet_addr if transport.inet_addr is not None else transport.file_name
    disabled = "" if transport.initial_state_enabled else ", disabled at start"
    return f"{transport.protocol} over {transport.type} at {where}{disabled}"


def _edges(spec: InstanceSpec, nodes: Sequence[PlanNode]) -> Iterator[PlanEdge]:
    find = {(node.kind in _STORES or node.kind, node.name): node for node in nodes}
    for store in spec.sow:
        target = find[True, str(store.ref)]
        message_type = find.get((NodeKind.MESSAGE_TYPE, store.message_type))
        if message_type is not None:
            yield PlanEdge(message_type, target, "parsed by")
        for source in _underlying(store):
            underlying = find.get((True, str(source)))
            if underlying is not None and underlying is not target:  # a queue can have its own
                yield PlanEdge(underlying, target, "fed by")
        if spec.transaction_log is not None and spec.is_journaled(store.message_type, store.name):
            yield PlanEdge(
                find[NodeKind.JOURNAL, spec.transaction_log.journal_directory], target, "kept in"
            )
    for destination in spec.replication:
        if spec.transaction_log is not None:
            journal = find[NodeKind.JOURNAL, spec.transaction_log.journal_directory]
            yield PlanEdge(journal, find[NodeKind.DESTINATION, destination.name], "sent from")
    for transport in spec.transports:
        if (
            restriction := find.get((NodeKind.MESSAGE_TYPE, transport.message_type or ""))
        ) is not None:
            yield PlanEdge(restriction, find[NodeKind.TRANSPORT, transport.name], "speaks")
    yield from _edges_of_actions(spec, nodes)


def _edges_of_actions(spec: InstanceSpec, nodes: Sequence[PlanNode]) -> Iterator[PlanEdge]:
    stores = [node for node in nodes if node.topic is not None]
    actions = [node for node in nodes if node.kind is NodeKind.ACTION]
    for node, action in zip(actions, spec.actions, strict=True):
        for trigger in action.triggers:
            yield from (PlanEdge(store, node, "set off by") for store in _named(trigger, stores))
        for step in action.steps:
            yield from (PlanEdge(node, store, "acted on by") for store in _named(step.use, stores))


def _named(use: ModuleUse, stores: Iterable[PlanNode]) -> Iterator[PlanNode]:
    """Yield the topics that the options of an action's module name literally."""
    name, message_type = use.options.get("Topic"), use.options.get("MessageType")
    for store in stores:
        ref = store.topic
        if ref is not None and ref.name == name and message_type in (None, ref.message_type):
            yield store


def _underlying(store: SowSpec) -> Iterable[TopicRef]:
    match store:
        case ViewSpec():
            return store.underlying
        case ConflatedTopicSpec():
            return (store.underlying,)
        case QueueSpec():
            return (TopicRef(store.underlying_topic, store.message_type),)
        case TopicSpec():
            return ()
