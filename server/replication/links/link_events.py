"""Events of links, for the subscribers inside the server: the actions.

Source: AMPS User Guide, On Incoming Replication Connections; On Outgoing Replication Connections.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import NamedTuple, TypeAlias


class LinkEvent(Enum):
    """An event on which actions run; the value is from the name of the action's module."""

    CONNECT = "connect-replication"
    DISCONNECT = "disconnect-replication"
    RESYNC_COMPLETE = "replication-resync-complete"
    DOWNGRADE = "downgrade-replication"
    UPGRADE = "upgrade-replication"
    CONNECT_INCOMING = "connect-incoming-replication"
    DISCONNECT_INCOMING = "disconnect-incoming-replication"


class LinkDirection(NamedTuple):
    """One direction of a link, as operators know it.

    Attributes:
        client: the name that both ends use for it; see `link_name`.
        peer: name of the instance at the other end; empty if none has been connected.
        group: its group.
        address: of the other end, as `host:port`.
        transport: name of the transport, empty if it has none.
    """

    client: str
    peer: str
    group: str
    address: str
    transport: str


def link_name(
    source: str, destination: str, group: str, sync_type: str, transport_type: str
) -> str:
    """Return the name that both ends use for one direction of a link in the log.

    Args:
        source: name of the sending instance.
        destination: name of the receiving instance.
        group: group of that instance.
        sync_type: SyncType of the destination, as it is configured.
        transport_type: Type of the transport that makes the connection.
    """
    return f"{source}!{destination}@{group}!{sync_type}!{transport_type}"


LinkWatcher: TypeAlias = Callable[[LinkDirection], None]


class LinkEvents:
    """The watchers of each event."""

    def __init__(self) -> None:
        self._watchers: dict[LinkEvent, list[LinkWatcher]] = {}

    def watch(self, event: LinkEvent, watcher: LinkWatcher) -> Callable[[], None]:
        """Register a callback for an event, and return a function that ends that."""
        watchers = self._watchers.setdefault(event, [])
        watchers.append(watcher)
        return partial(watchers.remove, watcher)

    def notify(self, event: LinkEvent, direction: LinkDirection) -> None:
        """Notify the watchers of an event."""
        for watcher in tuple(self._watchers.get(event, ())):
            watcher(direction)
