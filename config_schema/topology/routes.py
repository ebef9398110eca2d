"""The instances that a destination leads to, as far as the configurations determine them.

An address is matched with the replication transports of the others, by port and, where both name
one, by host. Hosts that run one instance each often have the same port on all of them, and a
transport need not name its host: then the Name of the instance, as the name of the destination or
of the host, and the Group decide. An address may also be mapped to another port outside of the
configuration: then a destination with the Name of an instance leads to it.
"""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from config_schema.topology.description import Destination, InstanceDescription, PeerAddress

_EVERY_ADDRESS: Final = (None, "0.0.0.0", "::")  # noqa: S104 - compared with, not bound to
_THIS_MACHINE: Final = ("localhost", "127.0.0.1", "::1")


class ReplicationRoute(Struct, frozen=True):
    """The end points of a destination.

    `instances` are those that it may connect to: several, if it has several addresses, or if
    they cannot be distinguished. `unmatched` are the addresses that no instance listens at.
    """

    source: InstanceDescription
    destination: Destination
    instances: tuple[InstanceDescription, ...]
    unmatched: tuple[PeerAddress, ...]


def find_route(
    source: InstanceDescription, destination: Destination, others: Sequence[InstanceDescription]
) -> ReplicationRoute:
    """Find the instances that a destination leads to.

    Args:
        source: the instance that it is a destination of.
        destination: the destination.
        others: the instances that it may lead to, without the source.
    """
    instances: dict[str, InstanceDescription] = {}
    unmatched = []
    for address in destination.addresses:
        listening = [
            instance for instance in others if instance.listens and meets(address, instance.listens)
        ]
        candidates = _select_by_host(address, destination, listening)
        instances.update((str(instance.location), instance) for instance in candidates)
        if not candidates:
            unmatched.append(address)
    if not instances:
        named = [instance for instance in others if instance.name == destination.name]
        if not destination.addresses:
            named = named or [
                instance for instance in others if _connects(instance, source, destination)
            ]
        instances.update((str(instance.location), instance) for instance in named)
    return ReplicationRoute(source, destination, tuple(instances.values()), tuple(unmatched))


def meets(address: PeerAddress, listens: PeerAddress) -> bool:
    """Return true if a connection to `address` may arrive at an instance's listener."""
    if address.port != listens.port:
        return False
    if listens.host in _EVERY_ADDRESS:
        return True
    return _host(address) == _host(listens)


def _host(address: PeerAddress) -> str:
    host = (address.host or "localhost").lower().rstrip(".")
    return "localhost" if host in _THIS_MACHINE else host


def _select_by_host(
    address: PeerAddress, destination: Destination, listening: Sequence[InstanceDescription]
) -> Sequence[InstanceDescription]:
    """Choose among the instances that listen at the same port, by the strongest criterion first."""
    host = _host(address)
    criteria: tuple[Callable[[InstanceDescription], bool], ...] = (
        lambda instance: (
            instance.listens is not None and instance.listens.host not in _EVERY_ADDRESS
        ),
        lambda instance: instance.name.lower() in (host, host.partition(".")[0]),
        lambda instance: len(destination.addresses) == 1 and instance.name == destination.name,
        destination.is_for,
    )
    for criterion in criteria:
        if len(listening) > 1:
            listening = [instance for instance in listening if criterion(instance)] or listening
    return listening


def _connects(
    other: InstanceDescription, source: InstanceDescription, destination: Destination
) -> bool:
    """Return true if `other` may be the expected peer: of that Group, with a destination for us."""
    return destination.is_for(other) and any(
        back.is_for(source) and back.addresses for back in other.destinations
    )
