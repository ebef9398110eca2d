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
        neighbours: its links.
        clock: timers.

    Attributes:
        mesh: the reports of all instances.
    """

    def __init__(self, replication: ReplicationState, neighbours: PeerLinks, clock: Clock) -> None:
        self.mesh: Final = Mesh(replication.instance, replication.nonce)
        self._replication: Final = replication
        self._neighbours: Final = neighbours
        self._clock: Final = clock
        self._met: dict[str, Neighbour] = {}  # in the order in which they were last seen
        neighbours.listen(SUBJECT, self._hear)
        self._cancel = clock.call_later(_TICK_SECONDS, self._tick)

    def close(self) -> None:
        """Stop sending reports."""
        self._cancel()

    @property
    def now(self) -> ElapsedMicroseconds:
        """Microseconds of the clock by which the mesh measures the age of reports."""
        return self._replication.elapsed

    def _tick(self) -> None:
        self._cancel = self._clock.call_later(_TICK_SECONDS, self._tick)
        mesh, now = self.mesh, self.now
        mesh.forget(now)
        if mesh.is_due(now):
            mesh.renew(self.report(), now)
            words = mesh.have()
            for name, peer in self._neighbours.peers.items():
                if not peer.is_stranger:
                    self._say(name, words)

    def _hear(self, peer: str, body: bytes) -> None:
        peers = self._neighbours.peers
        known = {name for name, one in peers.items() if not one.is_stranger}
        if peer in known:
            self._say(peer, self.mesh.receive(peer, body, self.now, known))

    def _say(self, peer: str, words: list[bytes]) -> None:
        for word in words:
            self._neighbours.say(peer, SUBJECT, word)

    # The report of this instance.

    def report(self) -> MeshReport:
        """Return the current report of this instance."""
        replication = self._replication
        now = replication.elapsed
        waiting = {one.destination: one.since for one in replication.waiting()}
        links = [
            self._link(own, max(now - waiting.get(name, now), 0) // _MICROSECONDS)
            for name, own in replication.destinations.items()
        ]
        peers = self._neighbours.peers.values()
        return report_of(replication.description, self._meet(peers), links)

    def _meet(self, peers: Iterable[LinkPeer]) -> list[Neighbour]:
        """Return the instances linked now, followed by those that were linked before."""
        now = {one.name: _neighbour(one) for one in peers}
        before = {
            name: replace(one, is_connected=False)
            for name, one in self._met.items()
            if name not in now
        }
        while before and len(now) + len(before) > MAX_LINKS:
            del before[next(iter(before))]
        self._met = before | now
        return [*now.values(), *before.values()]

    def _link(self, own: ReplicationDestination, seconds: int) -> LinkReport:
        replication, spec = self._replication, own.spec
        behind = max(replication.last_txid - own.sender.reached, 0)
        return LinkReport(
            destination=_shown(spec.name),
            peer=own.way.peer,
            group=_shown(own.way.group),
            sync_type=spec.sync_type,
            is_waited_for=spec.name in replication.acknowledgement.waited_for,
            state=_state(own),
            since=(own.connected_at if own.is_connected else own.disconnected_at) or 0,
            messages_behind=behind,
            bytes_behind=replication.bytes_behind(own.sender.reached) if behind else 0,
            seconds_behind=seconds,
            messages_out=own.sender.sent,
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
    address, scheme = peer.admin
    return Neighbour(
        peer.name, peer.description.group, address, scheme == "https", is_connected=True
    )


def _state(own: ReplicationDestination) -> str:
    if not own.is_connected:
        return NOT_CONNECTED
    if own.sender.state is not SenderState.SENDING:
        return BEGINNING
    return REPLICATING if own.sender.resynchronized else CATCHING_UP


def _waits_for(own: ReplicationDestination) -> str:
    """Return the reason why a destination does not get further; empty if there is none."""
    sender = own.sender
    if not own.is_connected:
        has_address = any(transport.addresses for transport in own.spec.transports)
        whom = "a connection" if has_address else "the other instance to connect"
        return f"{whom}: {own.trouble}" if own.trouble else whom
    if sender.state is not SenderState.SENDING:
        return f"{own.way.peer} to say where to go on"
    if sender.blocked:
        return f"entry {sender.blocked} of the log, which cannot be read"
    if sender.bytes_under_way:
        return f"an acknowledgement of {sender.bytes_under_way} bytes"
    if sender.settled < sender.reached:
        return f"instances behind {own.way.peer}"
    return ""


def _shown(text: str) -> str:
    """Return a text of the configuration or a log, cut to the maximum length in a report."""
    return text[:MAX_REPORT_TEXT_LENGTH]
