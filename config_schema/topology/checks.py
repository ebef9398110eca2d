"""One link: the topics that a source sends to a destination, checked against the receiving
instance.

Each check is a function that is named as in ExcludeValidation. It takes one Topic of the
Destination, and reports each requirement of that Topic that the instance at the other end does
not meet. `queue` and `queue_underlying` cannot be excluded.

Source: AMPS User Guide, Replication Configuration Validation, Configuration for Queue Replication.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from config_schema.problems import Location, Problem, Severity
from config_schema.regex import matches
from config_schema.selection import PatternIntersection
from config_schema.topology.description import (
    Destination,
    InstanceDescription,
    SowDescription,
)
from config_schema.topology.findings import TopologyFinding
from config_schema.topology.link import DestinationTopic, TopologyLink
from config_schema.topology.routes import meets
from config_schema.units import quoted

_MAX_NAMED: Final = 3
"""Of many topics with the same finding, these are named and the others counted."""


def check_link(
    source: InstanceDescription,
    destination: Destination,
    downstream: InstanceDescription,
    return_destinations: Sequence[Destination] | None = None,
) -> list[TopologyFinding]:
    """Validate the replication of an instance against the receiving instance.

    Args:
        source: the instance that sends.
        destination: its Destination.
        downstream: the instance that the Destination leads to.
        return_destinations: its destinations that lead to the source. By default those for the
            Group of the source: any instance of a group may be the one connected.

    Returns:
        The findings, in the order of the Destination's topics.
    """
    if return_destinations is None:
        return_destinations = [
            candidate for candidate in downstream.destinations if candidate.is_for(source)
        ]
    link = TopologyLink(source, downstream, return_destinations)
    findings: list[TopologyFinding] = []
    for topic in destination.topics:
        sent = DestinationTopic(link, topic)
        for name, check in _CHECKS.items():
            if name in _MANDATORY or name not in topic.excluded:
                findings += check(sent)
    return findings


def refusal(destination: Destination, downstream: InstanceDescription) -> TopologyFinding | None:
    """Report that an instance does not belong to a Destination: its Group differs."""
    if destination.is_for(downstream):
        return None
    message = (
        f"leads to {_instance(downstream)}, whose Group is {quoted(downstream.group)}: "
        f"expected {quoted(destination.group)}, and connections to any other are refused"
    )
    hint = f"set the Group of this Destination to {downstream.group}, or that of the instance to "
    problem = Problem(
        destination.location,
        Severity.ERROR,
        "Destination/Group",
        message,
        hint + destination.group,
    )
    return TopologyFinding("group", problem, downstream.location)


def _missing_return(sent: DestinationTopic, subject: str) -> TopologyFinding:
    """Report that no Destination leads back from the receiving instance."""
    source, downstream = sent.link.source, sent.link.downstream
    mismatch = next(
        (candidate for candidate in downstream.destinations if _leads_to(candidate, source)),
        None,
    )
    if mismatch is None:
        location, mismatch_text = downstream.location, ""
        hint = f"add one there, with the Group {source.group}"
    else:
        location = mismatch.location
        mismatch_text = (
            f" ({quoted(mismatch.name)} at {location} is for the Group {quoted(mismatch.group)})"
        )
        hint = f"set its Group to {source.group}"
    message = (
        f"{subject}, which has no Destination that leads back to {quoted(source.name)}"
        f"{mismatch_text}: messages published there are not replicated here"
    )
    return _finding(sent, "replicate", location, message, hint)


def _leads_to(destination: Destination, instance: InstanceDescription) -> bool:
    """Return true if a destination would lead to an instance, if that had its Group."""
    listener = instance.listens
    return destination.name == instance.name or (
        listener is not None and any(meets(address, listener) for address in destination.addresses)
    )


def _finding(
    sent: DestinationTopic, check: str, other: Location, message: str, hint: str
) -> TopologyFinding:
    mandatory = check in _MANDATORY
    advice = f"{hint}; {check} cannot be excluded" if mandatory else hint
    problem = Problem(
        sent.topic.location,
        Severity.ERROR,
        "Destination/Topic",
        f"{check}: {message}",
        advice if mandatory else f"{hint}, or exclude {check} here",
    )
    return TopologyFinding(check, problem, other)


def _txlog(sent: DestinationTopic) -> Iterator[TopologyFinding]:
    downstream = sent.link.downstream
    lacking = [
        part for part in sent.recorded_topics if not sent.link.downstream_logged.covers(part)
    ]
    if not lacking:
        return
    log = downstream.log_location
    lack = (
        "has no transaction log" if log is None else f"does not record {_pronoun(lacking)} ({log})"
    )
    yield _finding(
        sent,
        "txlog",
        log or downstream.location,
        f"{_parts(lacking)} {_is(lacking)} replicated to {_instance(downstream)}, which {lack}",
        f"add {_pronoun(lacking)} to the TransactionLog there",
    )


def _replicate(sent: DestinationTopic) -> Iterator[TopologyFinding]:
    return_destinations = sent.link.return_destinations
    downstream = sent.link.downstream
    sources = [*sent.recorded_topics, *((queue.selection,) for queue in sent.shared_queues)]
    lacking = list(
        dict.fromkeys(part for part in sources if not sent.link.returned_topics.covers(part))
    )
    if not lacking:
        return
    subject = f"{_parts(lacking)} {_is(lacking)} replicated to {_instance(downstream)}"
    if not return_destinations:
        yield _missing_return(sent, subject)
        return
    yield _finding(
        sent,
        "replicate",
        return_destinations[0].location,
        f"{subject}, and not replicated back by its Destination"
        f" {quoted(return_destinations[0].name)} "
        f"({return_destinations[0].location})",
        f"add {_pronoun(lacking)} to that Destination as a Topic",
    )


def _sow(sent: DestinationTopic) -> Iterator[TopologyFinding]:
    for topic in sent.record_topics:
        if sent.link.find_downstream_records(topic) is not None:
            continue
        definition = sent.link.find_downstream_topic(topic)
        instance = sent.link.downstream
        difference = (
            f"{_instance(instance)} keeps no records of it"
            if definition is None
            else f"a {definition.kind} in {quoted(instance.name)} ({definition.location})"
        )
        yield _finding(
            sent,
            "sow",
            instance.location if definition is None else definition.location,
            f"{_topic(topic)} is a Topic of SOW here ({topic.location}), and {difference}",
            "define it as a Topic in SOW there too",
        )


def _keys(sent: DestinationTopic) -> Iterator[TopologyFinding]:
    for topic in sent.record_topics:
        definition = sent.link.find_downstream_records(topic)
        if definition is not None and definition.identity != topic.identity:
            yield _finding(
                sent,
                "keys",
                definition.location,
                f"records of {_topic(topic)} have {_identity(topic)} here ({topic.location}), "
                f"and {_identity(definition)} in {quoted(sent.link.downstream.name)} "
                f"({definition.location}): one message would be different records",
                "give both the same, in the same order",
            )


def _cascade(sent: DestinationTopic) -> Iterator[TopologyFinding]:
    instance = sent.link.downstream
    for destination, topic in sent.onward_topics():
        waived = sorted(topic.excluded - sent.topic.excluded)
        if waived:
            yield _finding(
                sent,
                "cascade",
                topic.location,
                f"{quoted(sent.topic.selection.name)} is replicated to {_instance(instance)} with "
                f"the validation {', '.join(waived)}, which that instance excludes where it "
                f"replicates it to {quoted(destination.name)} ({topic.location})",
                f"take {', '.join(waived)} from the ExcludeValidation there",
            )


def _replicate_filter(sent: DestinationTopic) -> Iterator[TopologyFinding]:
    sent_filter = sent.topic.filter
    if sent_filter is None:
        return
    for destination, topic in sent.onward_topics():
        if destination in sent.link.return_destinations and topic.filter != sent_filter:
            filter_text = (
                "no Filter" if topic.filter is None else f"the Filter {quoted(topic.filter)}"
            )
            yield _finding(
                sent,
                "replicate_filter",
                topic.location,
                f"{quoted(sent.topic.selection.name)} is replicated to "
                f"{_instance(sent.link.downstream)} with the Filter {quoted(sent_filter)}, "
                f"and comes back with {filter_text} ({topic.location})",
                "use the same Filter there",
            )


def _queue(sent: DestinationTopic) -> Iterator[TopologyFinding]:
    instance = sent.link.downstream
    for queue in sent.shared_queues:
        definition = sent.link.find_downstream_topic(queue)
        if definition is not None and definition.kind == queue.kind:
            continue
        difference = (
            f"{_instance(instance)} has no queue of this name"
            if definition is None
            else f"a {definition.kind} in {quoted(instance.name)} ({definition.location})"
        )
        yield _finding(
            sent,
            "queue",
            instance.location if definition is None else definition.location,
            f"{_topic(queue)} is a {queue.kind} here ({queue.location}), and {difference}",
            f"define it as a {queue.kind} there too, or replicate the underlying topic alone",
        )


def _queue_underlying(sent: DestinationTopic) -> Iterator[TopologyFinding]:
    for queue in sent.shared_queues:
        definition = sent.link.find_downstream_topic(queue)
        if definition is None or definition.kind != queue.kind:
            continue  # the check before reports this
        differing = [
            f"{element} {_value(mine)} here and {_value(theirs)} there"
            for element, mine, theirs in _definitions(queue, definition)
            if mine != theirs
        ]
        if differing:
            yield _finding(
                sent,
                "queue_underlying",
                definition.location,
                f"the {queue.kind} {_topic(queue)} has {', '.join(differing)} "
                f"({queue.location}, {definition.location}): it would have different messages",
                "define it alike on both sides",
            )


def _definitions(
    queue: SowDescription, definition: SowDescription
) -> Iterator[tuple[str, str | None, str | None]]:
    """Return the values that must be equal for two queues to be one."""
    yield "the UnderlyingTopic", queue.underlying_topic, definition.underlying_topic
    yield "the Filter", queue.filter, definition.filter
    if queue.domain == definition.domain:  # else they are two queues of one name
        yield "the InitialOwner", queue.initial_owner, definition.initial_owner


def _queue_passthrough(sent: DestinationTopic) -> Iterator[TopologyFinding]:
    source = sent.link.source
    group = source.group
    instance = sent.link.downstream
    for destination, replicated in sent.link.onward_destinations:
        if _leads_only_back(destination, sent.link):
            continue
        if any(matches(pattern, group) for pattern in destination.pass_through):
            continue
        taken = [queue for queue in sent.shared_queues if replicated.covers((queue.selection,))]
        if taken:
            yield _finding(
                sent,
                "queue_passthrough",
                destination.location,
                f"{_parts([(queue.selection,) for queue in taken])} "
                f"{'is a queue' if len(taken) == 1 else 'are queues'} that "
                f"{_instance(instance)} replicates to {quoted(destination.name)} without passing "
                f"through messages of the group {quoted(group)} ({destination.location})",
                f"add <PassThrough>{group}</PassThrough> to that Destination",
            )


def _leads_only_back(destination: Destination, link: TopologyLink) -> bool:
    """Return whether a destination of the other end leads to the source, and nowhere else.

    Of instances of one group, any may be meant by a destination of that group. It is the source if
    it is called so, or if it is the only one of the group and has the address of the source.
    """
    source = link.source
    if not destination.is_for(source):
        return False
    if source.group != link.downstream.group or destination.name == source.name:
        return True
    listener = source.listens
    return (
        len(link.return_destinations) == 1
        and len(destination.addresses) == 1
        and listener is not None
        and meets(destination.addresses[0], listener)
    )


_CHECKS: Final[dict[str, Callable[[DestinationTopic], Iterable[TopologyFinding]]]] = {
    "txlog": _txlog,
    "replicate": _replicate,
    "sow": _sow,
    "cascade": _cascade,
    "queue": _queue,
    "keys": _keys,
    "replicate_filter": _replicate_filter,
    "queue_passthrough": _queue_passthrough,
    "queue_underlying": _queue_underlying,
}
_MANDATORY: Final = ("queue", "queue_underlying")


def _instance(instance: InstanceDescription) -> str:
    return f"{quoted(instance.name)} ({instance.location})"


def _topic(topic: SowDescription) -> str:
    return f"{quoted(topic.name)} of type {quoted(topic.message_type)}"


def _identity(topic: SowDescription) -> str:
    parts = (f"the {element} {value}" for element, value in topic.identity)
    return " and ".join(parts) or "no Key"


def _value(text: str | None) -> str:
    return "(none)" if text is None else quoted(text)


def _parts(parts: Sequence[PatternIntersection]) -> str:
    """Name topics in a finding: 'a' and 2 more topics of type 'json'."""
    names = [" with ".join(quoted(pattern.name) for pattern in part) for part in parts]
    message_type = quoted(parts[0][0].message_type)
    more = len(names) - _MAX_NAMED
    listed = ", ".join(names[:_MAX_NAMED])
    if more > 0:
        listed += f" and {more} other{'s' if more > 1 else ''}"
    return f"{listed} of type {message_type}"


def _pronoun(parts: Sequence[PatternIntersection]) -> str:
    return "it" if len(parts) == 1 else "them"


def _is(parts: Sequence[PatternIntersection]) -> str:
    return "is" if len(parts) == 1 else "are"
