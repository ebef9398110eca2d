"""Exchanges reports of the mesh with other instances: over the links, as messages.

See `server.replication.core.mesh`, which decides which reports go to which peer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from server.replication.core.mesh import (
    MAX_LINKS,
    MAX_REPORT_TEXT_LENGTH,
    LinkReport,
    Mesh,
    MeshReport,
    Neighbour,
)
from server.replication.core.sender import SenderState
from server.replication.links.admin_addresses import reported_admin_location
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from config_schema.topology import InstanceDescription
    from server.replication.links.link_peer import LinkPeer
    from server.replication.links.registry import LinkRegistry
    from server.replication.links.replication_state import ReplicationDestination, ReplicationState
    from server.util.clock import Clock, ElapsedMicroseconds

SUBJECT: Final = "mesh"

_TICK_SECONDS: Final = 1.0

NOT_CONNECTED: Final = "not connected"
BEGINNING: Final = "beginning"
CATCHING_UP: Final = "catching up"
REPLICATING: Final = "replicating"


class MeshReporter:
    """Sends reports of this instance to other ones, and receives theirs.

    Args:
        replication: the replication state.
        links: its links.
        clock: timers.

    Attributes:
        mesh: the reports of all instances.
    """

    def __init__(self, replication: ReplicationState, links: LinkRegistry, clock: Clock) -> None:
        self.mesh: Final = Mesh(replication.instance, replication.nonce)
        self._replication: Final = replication
        self._links: Final = links
        self._clock: Final = clock
        # in the order in which they were last linked
        self._linked_instances: dict[str, Neighbour] = {}
        links.register_handler(SUBJECT, self._receive_message)
        self._cancel_timer = clock.call_later(_TICK_SECONDS, self._tick)

    def close(self) -> None:
        """Stop sending reports."""
        self._cancel_timer()

    @property
    def now_us(self) -> ElapsedMicroseconds:
        """Microseconds of the clock by which the mesh measures the age of reports."""
        return self._replication.elapsed_us

    def _tick(self) -> None:
        self._cancel_timer = self._clock.call_later(_TICK_SECONDS, self._tick)
        mesh, now_us = self.mesh, self.now_us
        mesh.remove_expired(now_us)
        if mesh.is_report_due(now_us):
            mesh.replace_own_report(self.make_report(), now_us)
            messages = mesh.make_offers()
            for name, peer in self._links.peers.items():
                if not peer.is_unverified_user:
                    self._send_messages(name, messages)

    def _receive_message(self, peer: str, body: bytes) -> None:
        peers = self._links.peers
        admitted = {name for name, link_peer in peers.items() if not link_peer.is_unverified_user}
        if peer in admitted:
            self._send_messages(peer, self.mesh.receive_message(peer, body, self.now_us, admitted))

    def _send_messages(self, peer: str, messages: list[bytes]) -> None:
        for message in messages:
            self._links.send_message(peer, SUBJECT, message)

    # the report of this instance

    def make_report(self) -> MeshReport:
        """Return the current report of this instance."""
        replication = self._replication
        now = replication.elapsed_us
        lag_times_us = {lag.destination: lag.since_us for lag in replication.destination_lags()}
        links = [
            self._make_link_report(
                destination, max(now - lag_times_us.get(name, now), 0) // MICROSECONDS_PER_SECOND
            )
            for name, destination in replication.destinations.items()
        ]
        peers = self._links.peers.values()
        return report_of(replication.description, self._update_linked(peers), links)

    def _update_linked(self, peers: Iterable[LinkPeer]) -> list[Neighbour]:
        """Return the instances linked now, followed by the instances linked before."""
        linked = {peer.name: _make_neighbour(peer) for peer in peers}
        earlier = {
            name: replace(neighbour, is_connected=False)
            for name, neighbour in self._linked_instances.items()
            if name not in linked
        }
        while earlier and len(linked) + len(earlier) > MAX_LINKS:
            del earlier[next(iter(earlier))]
        self._linked_instances = earlier | linked
        return [*linked.values(), *earlier.values()]

    def _make_link_report(self, destination: ReplicationDestination, seconds: int) -> LinkReport:
        replication, spec = self._replication, destination.spec
        behind = max(replication.last_txid - destination.sender.reached_txid, 0)
        return LinkReport(
            destination=_truncate_text(spec.name),
            peer=destination.direction.peer,
            group=_truncate_text(destination.direction.group),
            sync_type=spec.sync_type,
            is_waited_for=spec.name in replication.ack_tracker.awaited_destinations,
            state=_state(destination),
            since=(
                destination.connected_at
                if destination.is_connected
                else destination.disconnected_at
            )
            or 0,
            messages_behind=behind,
            bytes_behind=replication.bytes_behind(destination.sender.reached_txid) if behind else 0,
            seconds_behind=seconds,
            messages_out=destination.sender.sent_entries,
            waits_for=_truncate_text(_wait_reason(destination)),
        )


def report_of(
    description: InstanceDescription, neighbours: list[Neighbour], links: list[LinkReport]
) -> MeshReport:
    """Return the report of an instance.

    Args:
        description: its description.
        neighbours: the instances with which it has links, or had.
        links: its destinations.
    """
    address, scheme = reported_admin_location(description)
    name, group = description.name, _truncate_text(description.group)
    return MeshReport(name, 0, 0, group, address, scheme == "https", neighbours, links)


def _make_neighbour(peer: LinkPeer) -> Neighbour:
    address, scheme = peer.admin_location
    return Neighbour(
        peer.name, peer.description.group, address, scheme == "https", is_connected=True
    )


def _state(destination: ReplicationDestination) -> str:
    if not destination.is_connected:
        return NOT_CONNECTED
    if destination.sender.state is not SenderState.SENDING:
        return BEGINNING
    return REPLICATING if destination.sender.is_resynchronized else CATCHING_UP


def _wait_reason(destination: ReplicationDestination) -> str:
    """Return the reason why a destination makes no progress; empty if there is none."""
    sender = destination.sender
    if not destination.is_connected:
        has_address = any(transport.addresses for transport in destination.spec.transports)
        cause = "a connection" if has_address else "the other instance to connect"
        return f"{cause}: {destination.link_problem}" if destination.link_problem else cause
    if sender.state is not SenderState.SENDING:
        return f"{destination.direction.peer} to send its position"
    if sender.blocked_txid:
        return f"entry {sender.blocked_txid} of the log, which cannot be read"
    if sender.bytes_in_flight:
        return f"an acknowledgement of {sender.bytes_in_flight} bytes"
    if sender.settled_txid < sender.reached_txid:
        return f"instances behind {destination.direction.peer}"
    return ""


def _truncate_text(text: str) -> str:
    """Return a text of the configuration or a log, cut to the maximum length in a report."""
    return text[:MAX_REPORT_TEXT_LENGTH]
