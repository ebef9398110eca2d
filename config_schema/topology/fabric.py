"""Several instances at once: every link between them, and problems that no single link shows.

In AMPS no instance sees more than its neighbours. With the configurations of all of them, more is
detectable: two instances with one name, a destination that leads nowhere, messages that circulate
in one direction only.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations

from config_schema.problems import Location, Problem, Severity
from config_schema.topology.checks import check_link, refusal
from config_schema.topology.description import (
    Destination,
    InstanceDescription,
)
from config_schema.topology.findings import TopologyFinding
from config_schema.topology.routes import ReplicationRoute, find_route, meets
from config_schema.units import quoted


def check_topology(instances: Sequence[InstanceDescription]) -> list[TopologyFinding]:
    """Validate the configurations of several instances against each other.

    Args:
        instances: one description for each instance. They may include instances without any
            replication, which are ignored.

    Returns:
        The findings. Errors prevent instances from being connected, or from being run beside each
        other; warnings are about settings that can be intended, and seldom are.
    """
    if not any(instance.destinations for instance in instances):
        return []
    members = [instance for instance in instances if instance.replicates]
    routes = [
        find_route(instance, destination, [other for other in members if other is not instance])
        for instance in members
        for destination in instance.destinations
    ]
    findings = [*_same_names(members)]
    for route in routes:
        findings += _unmatched_addresses(route)
        for downstream in route.instances:
            findings += _link(
                route, downstream, _return_destinations(route.source, downstream, routes)
            )
    findings += _sync_pairs(routes)
    findings += _one_way_rings(routes)
    return findings


def _finding(
    check: str,
    severity: Severity,
    where: Location,
    element: str,
    other: Location,
    message: str,
    hint: str,
) -> TopologyFinding:
    return TopologyFinding(check, Problem(where, severity, element, message, hint), other)


def _same_names(members: Sequence[InstanceDescription]) -> Iterator[TopologyFinding]:
    for instance, namesake in combinations(members, 2):
        if instance.name == namesake.name:
            yield _finding(
                "name",
                Severity.ERROR,
                namesake.location,
                "AMPSConfig/Name",
                instance.location,
                f"{quoted(instance.name)} is also the name of the instance at {instance.location}: "
                "instances that replicate are identified by their names",
                "give each a Name of its own",
            )


def _unmatched_addresses(route: ReplicationRoute) -> Iterator[TopologyFinding]:
    """Report addresses that lead to none of the given configurations."""
    destination = route.destination
    for address in route.unmatched:
        instance = route.instances[0] if route.instances else None
        if instance is not None and instance.name == destination.name:
            location, listens = _listening(instance)
            yield _finding(
                "address",
                Severity.WARNING,
                address.location,
                "Transport/InetAddr",
                location,
                f"{address} is not where {quoted(instance.name)} takes replication, "
                f"which {listens} ({location})",
                "use the port of its transport of type amps-replication, unless it is mapped to "
                "this one",
            )
        else:
            yield _finding(
                "address",
                Severity.WARNING,
                address.location,
                "Transport/InetAddr",
                route.source.location,
                f"none of these configurations takes replication at {address}, where the "
                f"Destination {quoted(destination.name)} of {quoted(route.source.name)} leads: "
                "it has not been validated",
                "correct the address, or give the configuration of that instance too",
            )
    if not destination.addresses and not route.instances:
        yield _finding(
            "address",
            Severity.WARNING,
            destination.location,
            "Destination/Transport",
            route.source.location,
            f"the Destination {quoted(destination.name)} waits for an instance of the group "
            f"{quoted(destination.group)} to connect, and none of these configurations is of one "
            "that connects",
            "correct the Group, add an InetAddr, or give the configuration of that instance too",
        )


def _listening(instance: InstanceDescription) -> tuple[Location, str]:
    if instance.listens is None:
        return instance.location, "has no transport for it"
    return instance.listens.location, f"listens at {instance.listens}"


def _return_destinations(
    source: InstanceDescription, downstream: InstanceDescription, routes: Sequence[ReplicationRoute]
) -> list[Destination]:
    """Return the destinations that lead back; where one leads is unknown, its Group decides."""
    return [
        route.destination
        for route in routes
        if route.source is downstream
        and (
            any(instance is source for instance in route.instances)
            or (not route.instances and route.destination.is_for(source))
        )
    ]


def _link(
    route: ReplicationRoute, downstream: InstanceDescription, back: Sequence[Destination]
) -> Iterator[TopologyFinding]:
    refused = refusal(route.destination, downstream)
    if refused is not None:
        yield refused
        return  # the messages are for another instance
    if downstream.listens is None and not route.destination.addresses:
        yield _missing_listener(route, downstream)
    yield from _encryption(route.destination, downstream)
    yield from check_link(route.source, route.destination, downstream, back)


def _missing_listener(route: ReplicationRoute, downstream: InstanceDescription) -> TopologyFinding:
    return _finding(
        "link",
        Severity.ERROR,
        route.destination.location,
        "Destination/Transport",
        downstream.location,
        f"waits for {quoted(downstream.name)} ({downstream.location}) to connect, which has no "
        "transport for replication: it accepts no messages",
        "add a Transport of type amps-replication there",
    )


def _encryption(
    destination: Destination, downstream: InstanceDescription
) -> Iterator[TopologyFinding]:
    listens = downstream.listens
    for address in destination.addresses:
        if listens is None or not meets(address, listens):
            continue
        if address.is_secure != listens.is_secure:
            ours, theirs = (
                ("with TLS", "without") if address.is_secure else ("without TLS", "with it")
            )
            yield _finding(
                "encryption",
                Severity.ERROR,
                address.location,
                "Transport/Type",
                listens.location,
                f"connects {ours}, and {quoted(downstream.name)} listens {theirs} "
                f"({listens.location})",
                "make both amps-replication-secure, or both amps-replication",
            )


def _sync_pairs(routes: Sequence[ReplicationRoute]) -> Iterator[TopologyFinding]:
    """Report failover pairs with acknowledgements that guarantee less, or wait for ever."""
    routes_by_ends = {
        (forward.source.location, instance.location): forward
        for forward in routes
        for instance in forward.instances
    }
    for (source, downstream), forward in routes_by_ends.items():
        backward = routes_by_ends.get((downstream, source))
        if backward is None:
            continue
        finding = partial(
            _finding,
            "sync",
            Severity.WARNING,
            forward.destination.location,
            "Destination/SyncType",
            backward.destination.location,
        )
        if forward.source.group == backward.source.group and not forward.destination.is_sync:
            yield finding(
                f"async, and {quoted(backward.source.name)} ({backward.source.location}) is of "
                f"the same Group {quoted(forward.source.group)}, to which clients fail over: "
                "it may not have all acknowledged messages yet",
                "make it sync, or give the instances different Groups",
            )
        if (
            forward.destination.is_sync
            and backward.destination.is_sync
            and not forward.source.downgrades
        ):
            yield finding(
                f"sync both ways between {quoted(forward.source.name)} and "
                f"{quoted(backward.source.name)} ({backward.destination.location}): while that "
                "instance is down, publishers here are acknowledged nothing",
                "add an Action with amps-action-do-downgrade-replication, and one that upgrades",
            )


def _one_way_rings(routes: Sequence[ReplicationRoute]) -> Iterator[TopologyFinding]:
    """Report three or more instances that replicate in a circle without links back."""
    onward: dict[Location, list[InstanceDescription]] = {}
    for route in routes:
        onward.setdefault(route.source.location, []).extend(route.instances)
    seen: set[frozenset[Location]] = set()
    for route in routes:
        for downstream in route.instances:
            ring = _shortest_ring(route.source, downstream, onward)
            members = frozenset(instance.location for instance in ring)
            if members in seen or not _is_one_way(ring, onward):
                continue
            seen.add(members)
            yield _ring(route, ring)


def _shortest_ring(
    start: InstanceDescription,
    after: InstanceDescription,
    onward: dict[Location, list[InstanceDescription]],
) -> tuple[InstanceDescription, ...]:
    """Return the shortest path from `start` over `after` back to `start`; () if there is none."""
    paths: list[tuple[InstanceDescription, ...]] = [(start, after)]
    reached = {after.location}
    for path in paths:  # grows during the iteration
        for instance in onward.get(path[-1].location, ()):
            if instance is start:
                return path
            if instance.location not in reached:
                reached.add(instance.location)
                paths.append((*path, instance))
    return ()


def _is_one_way(
    ring: Sequence[InstanceDescription], onward: dict[Location, list[InstanceDescription]]
) -> bool:
    links = zip(ring, (*ring[1:], *ring[:1]), strict=True)
    return bool(ring) and not any(
        target is instance
        for instance, next_instance in links
        for target in onward[next_instance.location]
    )


def _ring(route: ReplicationRoute, ring: Sequence[InstanceDescription]) -> TopologyFinding:
    names = " -> ".join(instance.name for instance in (*ring, ring[0]))
    places = ", ".join(f"{quoted(instance.name)} at {instance.location}" for instance in ring[1:])
    return _finding(
        "ring",
        Severity.WARNING,
        route.destination.location,
        "Replication/Destination",
        ring[1].location,
        f"{names} replicate in a circle and not back ({places}): with one of them down, "
        "messages published at the next do not reach the one before",
        "add to each a Destination that leads back, all with a PassThrough",
    )
