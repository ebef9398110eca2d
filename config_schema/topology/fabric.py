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
from config_schema.topology.routes import ReplicationRoute, meets, route
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
    if not any(one.destinations for one in instances):
        return []
    members = [one for one in instances if one.replicates]
    routes = [
        route(one, destination, [other for other in members if other is not one])
        for one in members
        for destination in one.destinations
    ]
    found = [*_same_names(members)]
    for way in routes:
        found += _astray(way)
        for downstream in way.instances:
            found += _link(way, downstream, _back(way.source, downstream, routes))
    found += _sync_pairs(routes)
    found += _one_way_rings(routes)
    return found


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
    for one, another in combinations(members, 2):
        if one.name == another.name:
            yield _finding(
                "name",
                Severity.ERROR,
                another.location,
                "AMPSConfig/Name",
                one.location,
                f"{quoted(one.name)} is also the name of the instance at {one.location}: "
                "instances that replicate are told apart by their names",
                "give each a Name of its own",
            )


def _astray(way: ReplicationRoute) -> Iterator[TopologyFinding]:
    """Report addresses that lead to none of the given configurations."""
    destination = way.destination
    for address in way.unmatched:
        meant = way.instances[0] if way.instances else None
        if meant is not None and meant.name == destination.name:
            place, listens = _listening(meant)
            yield _finding(
                "address",
                Severity.WARNING,
                address.location,
                "Transport/InetAddr",
                place,
                f"{address} is not where {quoted(meant.name)} takes replication, "
                f"which {listens} ({place})",
                "use the port of its transport of type amps-replication, unless it is mapped to "
                "this one",
            )
        else:
            yield _finding(
                "address",
                Severity.WARNING,
                address.location,
                "Transport/InetAddr",
                way.source.location,
                f"none of these configurations takes replication at {address}, where the "
                f"Destination {quoted(destination.name)} of {quoted(way.source.name)} leads: "
                "it has not been validated",
                "correct the address, or give the configuration of that instance too",
            )
    if not destination.addresses and not way.instances:
        yield _finding(
            "address",
            Severity.WARNING,
            destination.location,
            "Destination/Transport",
            way.source.location,
            f"the Destination {quoted(destination.name)} waits for an instance of the group "
            f"{quoted(destination.group)} to connect, and none of these configurations is for one "
            "that does",
            "correct the Group, add an InetAddr, or give the configuration of that instance too",
        )


def _listening(instance: InstanceDescription) -> tuple[Location, str]:
    if instance.listens is None:
        return instance.location, "has no transport for it"
    return instance.listens.location, f"listens at {instance.listens}"


def _back(
    source: InstanceDescription, downstream: InstanceDescription, routes: Sequence[ReplicationRoute]
) -> list[Destination]:
    """Return the destinations that lead back; where one leads is unknown, its Group decides."""
    return [
        way.destination
        for way in routes
        if way.source is downstream
        and (
            any(one is source for one in way.instances)
            or (not way.instances and way.destination.is_for(source))
        )
    ]


def _link(
    way: ReplicationRoute, downstream: InstanceDescription, back: Sequence[Destination]
) -> Iterator[TopologyFinding]:
    refused = refusal(way.destination, downstream)
    if refused is not None:
        yield refused
        return  # the messages are for another instance
    if downstream.listens is None and not way.destination.addresses:
        yield _taking_nothing(way, downstream)
    yield from _encryption(way.destination, downstream)
    yield from check_link(way.source, way.destination, downstream, back)


def _taking_nothing(way: ReplicationRoute, downstream: InstanceDescription) -> TopologyFinding:
    return _finding(
        "link",
        Severity.ERROR,
        way.destination.location,
        "Destination/Transport",
        downstream.location,
        f"waits for {quoted(downstream.name)} ({downstream.location}) to connect, which has no "
        "transport for replication: it takes nothing, on whichever connection",
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
    ways = {(way.source.location, one.location): way for way in routes for one in way.instances}
    for (source, downstream), way in ways.items():
        back = ways.get((downstream, source))
        if back is None:
            continue
        finding = partial(
            _finding,
            "sync",
            Severity.WARNING,
            way.destination.location,
            "Destination/SyncType",
            back.destination.location,
        )
        if way.source.group == back.source.group and not way.destination.is_sync:
            yield finding(
                f"async, and {quoted(back.source.name)} ({back.source.location}) is of the same "
                f"Group {quoted(way.source.group)}, to which clients fail over: what has been "
                "acknowledged to them may not be there yet",
                "make it sync, or give the instances different Groups",
            )
        if way.destination.is_sync and back.destination.is_sync and not way.source.downgrades:
            yield finding(
                f"sync both ways between {quoted(way.source.name)} and "
                f"{quoted(back.source.name)} ({back.destination.location}): while that instance "
                "is down, publishers here are acknowledged nothing",
                "add an Action with amps-action-do-downgrade-replication, and one that upgrades",
            )


def _one_way_rings(routes: Sequence[ReplicationRoute]) -> Iterator[TopologyFinding]:
    """Report three or more instances that replicate in a circle without links back."""
    onward: dict[Location, list[InstanceDescription]] = {}
    for way in routes:
        onward.setdefault(way.source.location, []).extend(way.instances)
    seen: set[frozenset[Location]] = set()
    for way in routes:
        for downstream in way.instances:
            ring = _shortest_ring(way.source, downstream, onward)
            members = frozenset(one.location for one in ring)
            if members in seen or not _is_one_way(ring, onward):
                continue
            seen.add(members)
            yield _ring(way, ring)


def _shortest_ring(
    start: InstanceDescription,
    after: InstanceDescription,
    onward: dict[Location, list[InstanceDescription]],
) -> tuple[InstanceDescription, ...]:
    """Return the shortest path from `start` over `after` back to `start`; () if there is none."""
    paths: list[tuple[InstanceDescription, ...]] = [(start, after)]
    reached = {after.location}
    for path in paths:  # grows during the iteration
        for one in onward.get(path[-1].location, ()):
            if one is start:
                return path
            if one.location not in reached:
                reached.add(one.location)
                paths.append((*path, one))
    return ()


def _is_one_way(
    ring: Sequence[InstanceDescription], onward: dict[Location, list[InstanceDescription]]
) -> bool:
    links = zip(ring, (*ring[1:], *ring[:1]), strict=True)
    return bool(ring) and not any(
        back is one for one, another in links for back in onward[another.location]
    )


def _ring(way: ReplicationRoute, ring: Sequence[InstanceDescription]) -> TopologyFinding:
    names = " -> ".join(one.name for one in (*ring, ring[0]))
    places = ", ".join(f"{quoted(one.name)} at {one.location}" for one in ring[1:])
    return _finding(
        "ring",
        Severity.WARNING,
        way.destination.location,
        "Replication/Destination",
        ring[1].location,
        f"{names} replicate in a circle and not back ({places}): with one of them down, what is "
        "published at the next does not reach the one before",
        "add to each a Destination that leads back, all with a PassThrough",
    )
