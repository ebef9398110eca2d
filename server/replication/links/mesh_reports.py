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

if TYPE_CHECKING:
    from config_schema.topology import InstanceDescription
    from server.replication.links.context import PeerLinks
    from server.replication.links.registry import LinkPeer
    from server.replication.links.replication_state import ReplicationDestination, ReplicationState
    from server.util.clock import Clock, ElapsedMicroseconds

SUBJECT: Final = "mesh"

_TICK_SECONDS: Final = 1.0
_MICROSECONDS: Final = 1_000_000

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

    def __init__(self, replication: ReplicationState, links: PeerLinks, clock: Clock) -> None:
        self.mesh: Final = Mesh(replication.instance, replication.nonce)
        self._replication: Final = replication
        self._links: Final = links
        self._clock: Final = clock
        self._linked_instances: dict[
            str, Neighbour
        ] = {}  # in the order in which they were last seen
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
            words = mesh.make_offers()
            for name, peer in self._links.peers.items():
                if not peer.is_unverified_user:
                    self._send_messages(name, words)

    def _receive_message(self, peer: str, body: bytes) -> None:
        peers = self._links.peers
        known = {name for name, one in peers.items() if not one.is_unverified_user}
        if peer in known:
            self._send_messages(peer, self.mesh.receive_message(peer, body, self.now_us, known))

    def _send_messages(self, peer: str, words: list[bytes]) -> None:
        for word in words:
            self._links.send_message(peer, SUBJECT, word)

    # The report of this instance.

    def make_report(self) -> MeshReport:
        """Return the current report of this instance."""
        replication = self._replication
        now = replication.elapsed_us
        waiting = {one.destination: one.since_us for one in replication.destination_lags()}
        links = [
            self._make_link_report(own, max(now - waiting.get(name, now), 0) // _MICROSECONDS)
            for name, own in replication.destinations.items()
        ]
        peers = self._links.peers.values()
        return report_of(replication.description, self._update_linked(peers), links)

    def _update_linked(self, peers: Iterable[LinkPeer]) -> list[Neighbour]:
        """Return the instances linked now, followed by those that were linked before."""
        now = {one.name: _neighbour(one) for one in peers}
        before = {
            name: replace(one, is_connected=False)
            for name, one in self._linked_instances.items()
            if name not in now
        }
        while before and len(now) + len(before) > MAX_LINKS:
            del before[next(iter(before))]
        self._linked_instances = before | now
        return [*now.values(), *before.values()]

    def _make_link_report(self, own: ReplicationDestination, seconds: int) -> LinkReport:
        replication, spec = self._replication, own.spec
        behind = max(replication.last_txid - own.sender.reached_txid, 0)
        return LinkReport(
            destination=_shown(spec.name),
            peer=own.direction.peer,
            group=_shown(own.direction.group),
            sync_type=spec.sync_type,
            is_waited_for=spec.name in replication.ack_tracker.awaited_destinations,
            state=_state(own),
            since=(own.connected_at if own.is_connected else own.disconnected_at) or 0,
            messages_behind=behind,
            bytes_behind=replication.bytes_behind(own.sender.reached_txid) if behind else 0,
            seconds_behind=seconds,
            messages_out=own.sender.sent_entries,
            waits_for=_shown(_waits_for(own)),
        )


def report_of(
    description: InstanceDescription, neighbours: list[Neighbour], links: list[LinkReport]
) -> MeshReport:
    """Return the report of an instance.

    Args:
        description: its description.
        neighbours: the instances that it has links with.
        links: its destinations.
    """
    address, scheme = reported_admin_location(description)
    name, group = description.name, _shown(description.group)
    return MeshReport(name, 0, 0, group, address, scheme == "https", neighbours, links)


def _neighbour(peer: LinkPeer) -> Neighbour:
    address, scheme = peer.admin_location
    return Neighbour(
        peer.name, peer.description.group, address, scheme == "https", is_connected=True
    )


def _state(own: ReplicationDestination) -> str:
    if not own.is_connected:
        return NOT_CONNECTED
    if own.sender.state is not SenderState.SENDING:
        return BEGINNING
    return REPLICATING if own.sender.is_resynchronized else CATCHING_UP


def _waits_for(own: ReplicationDestination) -> str:
    """Return the reason why a destination does not get further; empty if there is none."""
    sender = own.sender
    if not own.is_connected:
        has_address = any(transport.addresses for transport in own.spec.transports)
        whom = "a connection" if has_address else "the other instance to connect"
        return f"{whom}: {own.link_problem}" if own.link_problem else whom
    if sender.state is not SenderState.SENDING:
        return f"{own.direction.peer} to say where to go on"
    if sender.blocked_txid:
        return f"entry {sender.blocked_txid} of the log, which cannot be read"
    if sender.bytes_in_flight:
        return f"an acknowledgement of {sender.bytes_in_flight} bytes"
    if sender.settled_txid < sender.reached_txid:
        return f"instances behind {own.direction.peer}"
    return ""


def _shown(text: str) -> str:
    """Return a text of the configuration or a log, cut to the maximum length in a report."""
    return text[:MAX_REPORT_TEXT_LENGTH]
