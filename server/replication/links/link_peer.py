"""The instances with which this instance has links, as other modules see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from config_schema.topology import InstanceDescription
    from server.replication.links.admin_addresses import AdminLocation
    from server.replication.links.link import ReplicationLink


class LinkPeer(NamedTuple):
    """An instance with which this instance has a link.

    Attributes:
        name: its name.
        description: its configuration, as it has sent it.
        destination: the name of the destination that it is; None if nothing is sent there.
        sends: whether it sends to this instance.
        admin_location: the address of its admin interface.
        is_unverified_user: whether its user is authenticated, but not known to be the instance.
    """

    name: str
    description: InstanceDescription
    destination: str | None
    sends: bool
    admin_location: AdminLocation
    is_unverified_user: bool


def link_peer_of(name: str, links: Sequence[ReplicationLink]) -> LinkPeer:
    """Return the description of an instance with which this instance has links."""
    description = links[0].description
    assert description is not None  # noqa: S101 - these links are open
    destinations = (link.destination for link in links if link.destination is not None)
    sends = any(link.received_hello.sends for link in links)
    is_unverified_user = all(
        link.admission is not None and link.admission.is_unverified_user for link in links
    )
    return LinkPeer(
        name,
        description,
        next(destinations, None),
        sends,
        links[0].admin_location,
        is_unverified_user,
    )
