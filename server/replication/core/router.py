"""Peer messages (`PeerMessage`), sent over links and other instances, and the reachability of
instances.

Recorded entries travel with the log. Beside it, instances exchange messages that are worth nothing
later, such as a question: peer messages. One for an instance at the other end of a link is sent
there; others are sent to all neighbours that they have not passed through, and each instance
forwards a message once. Messages can get lost, and arrive at most once.

An instance is reachable if there is a link to it, or if a message of it has arrived lately. The
reachability of others is probed on request, by a message that is answered.

For integrators: call `connected` and `disconnected` when a link with an instance comes up or goes
down; pass `PeerMessage` frames to `receive`; call `step` about once a second. Send the parcels that
these and `send` return over the links named, or drop them where there is no room.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import count
from typing import Final, NamedTuple

from server.replication.core.frames import PeerMessage

REACHABLE_PERIOD_US: Final = 5_000_000
"""Microseconds for which an instance counts as reachable after a message of it."""
PROBE_TIMEOUT_US: Final = 2_000_000
"""Microseconds after which an instance that does not answer counts as unreachable."""

MAX_HOPS: Final = 32
MAX_PEER_MESSAGE_SIZE: Final = 1 << 16
"""Maximum bytes of a peer message."""

_MAX_REMEMBERED: Final = 16_384
_MAX_WANTED: Final = 1_024
_ASK_AGAIN: Final = 1_000_000
_WHETHER_THERE: Final = ""
"""The subject of the messages that probe instances."""
_ARE_YOU, _I_AM = b"?", b"!"


class RoutedMessage(NamedTuple):
    """A message, and the next instance to send it to.

    Attributes:
        peer: the name of the instance at the other end of a link.
        message: the frame.
    """

    peer: str
    message: PeerMessage


class RoutingResult(NamedTuple):
    """The result of receiving a message.

    Attributes:
        messages: parcels to send.
        sender: the sender of a message for the caller; empty if there is none.
    """

    messages: list[RoutedMessage]
    sender: str = ""


class MeshRouter:
    """Sends, forwards and receives the peer messages of one instance.

    Args:
        instance: its name.
        first: the number of its first message: higher than all numbers of an earlier run.

    Attributes:
        neighbours: the names of the instances that there are links with.
    """

    def __init__(self, instance: str, first: int = 1) -> None:
        self.neighbours: set[str] = set()
        self._instance: Final = instance
        self._numbers = count(first)
        self._seen_messages: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._contact_times_us: OrderedDict[str, int] = OrderedDict()
        self._probe_starts_us: dict[str, int] = {}  # when the probing of an instance began
        self._probe_times_us: dict[str, int] = {}

    def add_peer(self, peer: str) -> None:
        """Note that a link with an instance is up."""
        self.neighbours.add(peer)

    def remove_peer(self, peer: str) -> None:
        """Note that the link with an instance is down."""
        self.neighbours.discard(peer)
        self._contact_times_us.pop(peer, None)

    # Messages.

    def route_message(self, to: str, subject: str, body: bytes) -> list[RoutedMessage]:
        """Return the parcels that carry a message to an instance.

        Args:
            to: its name.
            subject: its subject, not empty.
            body: its content, no more than `MAX_PEER_MESSAGE_SIZE` bytes.
        """
        return self._forward(PeerMessage(to, [self._instance], next(self._numbers), subject, body))

    def receive_message(self, word: PeerMessage, peer: str, now: int) -> RoutingResult:
        """Process a message that has arrived over a link.

        Args:
            word: the frame.
            peer: the name of the instance at the other end of that link.
            now: microseconds since the Unix epoch.

        Returns:
            The parcels to send on. The sender is set for a message to this instance, or to one that
            is unreachable: this instance may act in its place.
        """
        path = word.path
        if (
            not 0 < len(path) <= MAX_HOPS
            or path[-1] != peer
            or self._instance in path
            or len(word.body) > MAX_PEER_MESSAGE_SIZE
            or not self._is_new(path[0], word.number)
        ):
            return RoutingResult([])
        self._record_contact(path[0], now)
        if word.to != self._instance:
            onward = PeerMessage(
                word.to, [*path, self._instance], word.number, word.subject, word.body
            )
            is_lost = word.subject and self.is_reachable(word.to, now) is False
            return RoutingResult(self._forward(onward), path[0] if is_lost else "")
        if word.subject != _WHETHER_THERE:
            return RoutingResult([], path[0])
        if word.body == _ARE_YOU:
            return RoutingResult(self._route_probe(path[0], _I_AM))
        return RoutingResult([])

    def _is_new(self, sender: str, number: int) -> bool:
        key = sender, number
        if key in self._seen_messages:
            return False
        self._seen_messages[key] = None
        if len(self._seen_messages) > _MAX_REMEMBERED:
            self._seen_messages.popitem(last=False)
        return True

    def _forward(self, word: PeerMessage) -> list[RoutedMessage]:
        if word.to in self.neighbours:
            return [RoutedMessage(word.to, word)]
        return [RoutedMessage(peer, word) for peer in sorted(self.neighbours.difference(word.path))]

    # Reachability.

    def is_reachable(self, name: str, now: int) -> bool | None:
        """Return whether an instance can be reached; None if that is not known.

        Args:
            name: its name.
            now: microseconds since the Unix epoch.
        """
        if (
            name in self.neighbours
            or now - self._contact_times_us.get(name, -REACHABLE_PERIOD_US) < REACHABLE_PERIOD_US
        ):
            return True
        if not self.neighbours:
            return False
        since = self._probe_starts_us.setdefault(name, now)
        if len(self._probe_starts_us) > _MAX_WANTED:
            self._end_probe(next(iter(self._probe_starts_us)))
        return False if now - since >= PROBE_TIMEOUT_US else None

    def make_probes(self, now: int) -> list[RoutedMessage]:
        """Return the messages that probe instances of unknown reachability."""
        parcels: list[RoutedMessage] = []
        for name in self._probe_starts_us:
            if now - self._probe_times_us.get(name, -_ASK_AGAIN) >= _ASK_AGAIN:
                self._probe_times_us[name] = now
                parcels += self._route_probe(name, _ARE_YOU)
        return parcels

    def _record_contact(self, name: str, now: int) -> None:
        self._end_probe(name)
        self._contact_times_us.pop(name, None)
        self._contact_times_us[name] = now
        if len(self._contact_times_us) > _MAX_WANTED:
            self._contact_times_us.popitem(last=False)

    def _end_probe(self, name: str) -> None:
        self._probe_starts_us.pop(name, None)
        self._probe_times_us.pop(name, None)

    def _route_probe(self, to: str, body: bytes) -> list[RoutedMessage]:
        return self._forward(PeerMessage(to, [self._instance], next(self._numbers), "", body))
