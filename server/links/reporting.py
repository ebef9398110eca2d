"""What this instance tells the mesh of itself, and what the others tell: over its links, as words.

See `server.replication.mesh`, which decides what is said to whom.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from server.links.admin_addresses import said
from server.replication.mesh import LONGEST, MOST_LINKS, LinkReport, Mesh, Neighbour, Report
from server.replication.sender import State

if TYPE_CHECKING:
    from config_schema.together import InstanceDescription
    from server.base.clock import Clock, ElapsedMicroseconds
    from server.links.links import Peer
    from server.links.replication import OwnDestination, Replication
    from server.links.surroundings import Neighbours

SUBJECT: Final = "mesh"

_TICK_SECONDS: Final = 1.0
_MICROSECONDS: Final = 1_000_000

NOT_CONNECTED: Final = "not connected"
BEGINNING: Final = "beginning"
CATCHING_UP: Final = "catching up"
REPLICATING: Final = "replicating"


class Reporting:
    """Tells other instances of this one, and hears of them.

    Args:
        replication: what the instance has of replication.
        neighbours: its links.
        clock: timers.

    Attributes:
        mesh: what is known of all instances.
    """

    def __init__(self, replication: Replication, neighbours: Neighbours, clock: Clock) -> None:
        self.mesh: Final = Mesh(replication.instance, replication.nonce)
        self._replication: Final = replication
        self._neighbours: Final = neighbours
        self._clock: Final = clock
        self._met: dict[str, Neighbour] = {}  # in the order in which they were seen last
        neighbours.listen(SUBJECT, self._hear)
        self._cancel = clock.call_later(_TICK_SECONDS, self._tick)

    def close(self) -> None:
        """Tell nobody anything more."""
        self._cancel()

    @property
    def now(self) -> ElapsedMicroseconds:
        """Microseconds of the clock by which the mesh tells how old reports are."""
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

    # What there is to tell.

    def report(self) -> Report:
        """This instance, as it is at the moment."""
        replication = self._replication
        now = replication.elapsed
        waiting = {one.destination: one.since for one in replication.waiting()}
        links = [
            self._link(own, max(now - waiting.get(name, now), 0) // _MICROSECONDS)
            for name, own in replication.destinations.items()
        ]
        peers = self._neighbours.peers.values()
        return report_of(replication.description, self._meet(peers), links)

    def _meet(self, peers: Iterable[Peer]) -> list[Neighbour]:
        """Those that there are links with, and behind them those that there were links with."""
        now = {one.name: _neighbour(one) for one in peers}
        before = {
            name: replace(one, is_connected=False)
            for name, one in self._met.items()
            if name not in now
        }
        while before and len(now) + len(before) > MOST_LINKS:
            del before[next(iter(before))]
        self._met = before | now
        return [*now.values(), *before.values()]

    def _link(self, own: OwnDestination, seconds: int) -> LinkReport:
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
) -> Report:
    """What an instance says of itself.

    Args:
        description: what it is like.
        neighbours: whom it has links with.
        links: its destinations.
    """
    address, scheme = said(description)
    name, group = description.name, _shown(description.group)
    return Report(name, 0, 0, group, address, scheme == "https", neighbours, links)


def _neighbour(peer: Peer) -> Neighbour:
    address, scheme = peer.admin
    return Neighbour(
        peer.name, peer.description.group, address, scheme == "https", is_connected=True
    )


def _state(own: OwnDestination) -> str:
    if not own.is_connected:
        return NOT_CONNECTED
    if own.sender.state is not State.SENDING:
        return BEGINNING
    return REPLICATING if own.sender.resynchronized else CATCHING_UP


def _waits_for(own: OwnDestination) -> str:
    """What keeps a destination from getting further."""
    sender = own.sender
    if not own.is_connected:
        has_address = any(transport.addresses for transport in own.spec.transports)
        whom = "a connection" if has_address else "the other instance to connect"
        return f"{whom}: {own.trouble}" if own.trouble else whom
    if sender.state is not State.SENDING:
        return f"{own.way.peer} to say where to go on"
    if sender.blocked:
        return f"entry {sender.blocked} of the log, which cannot be read"
    if sender.bytes_under_way:
        return f"an acknowledgement of {sender.bytes_under_way} bytes"
    if sender.settled < sender.reached:
        return f"instances behind {own.way.peer}"
    return ""


def _shown(text: str) -> str:
    """A text of the configuration or a log, as long as a report may have one."""
    return text[:LONGEST]
