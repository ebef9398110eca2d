"""Peer messages (`PeerMessage`), sent over links and other instances, and the reachability of
instances.

Recorded entries travel with the log. Beside it, instances exchange messages that are worth nothing
later, such as a request: peer messages. One for an instance at the other end of a link is sent
there; others are sent to all neighbours that they have not passed through, and each instance
forwards a message once. Messages can get lost, and arrive at most once.

An instance is reachable if there is a link to it, or if a message of it has arrived lately. The
reachability of others is probed on request, by a message that is answered.

For integrators: call `add_peer` and `remove_peer` when a link with an instance comes up or goes
down; pass `PeerMessage` frames to `receive_message`; call `make_probes` about once a second. Send
the messages that these and `route_message` return over the links named, or drop them where there is
no room.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import count
from typing import Final, NamedTuple

from server.replication.core.frames import PeerMessage

REACHABLE_PERIOD_US: Final = 5_000_000
"""Microseconds for which an instance counts as reachable after one of its messages."""
PROBE_TIMEOUT_US: Final = 2_000_000
"""Microseconds after which an instance that does not answer counts as unreachable."""

MAX_HOPS: Final = 32
MAX_PEER_MESSAGE_SIZE: Final = 1 << 16
"""Maximum bytes of a peer message."""

_MAX_SEEN_MESSAGES: Final = 16_384
_MAX_INSTANCES: Final = 1_024
_PROBE_INTERVAL_US: Final = 1_000_000
_PROBE_SUBJECT: Final = ""
"""The subject of the messages that probe instances."""
_PROBE, _PROBE_RESPONSE = b"?", b"!"


class RoutedMessage(NamedTuple):
    """A message, and the next instance on its way.

    Attributes:
        peer: the name of the instance at the other end of a link.
        message: the frame.
    """

    peer: str
    message: PeerMessage


class RoutingResult(NamedTuple):
    """The result of receiving a message.

    Attributes:
        messages: messages to send.
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
        neighbours: the names of the instances with which there are links.
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
        """Record that a link with an instance is up."""
        self.neighbours.add(peer)

    def remove_peer(self, peer: str) -> None:
        """Record that the link with an instance is down."""
        self.neighbours.discard(peer)
        self._contact_times_us.pop(peer, None)

    # messages

    def route_message(self, to: str, subject: str, body: bytes) -> list[RoutedMessage]:
        """Return the routed messages that carry a message to an instance.

        Args:
            to: its name.
            subject: its subject, not empty.
            body: its content, no more than `MAX_PEER_MESSAGE_SIZE` bytes.
        """
        return self._forward(PeerMessage(to, [self._instance], next(self._numbers), subject, body))

    def receive_message(self, message: PeerMessage, peer: str, now: int) -> RoutingResult:
        """Process a message that has arrived over a link.

        Args:
            message: the frame.
            peer: the name of the instance at the other end of that link.
            now: microseconds since the Unix epoch.

        Returns:
            The messages to forward. The sender is set for a message to this instance, or to one
            that is unreachable: this instance may act in its place.
        """
        path = message.path
        if (
            not 0 < len(path) <= MAX_HOPS
            or path[-1] != peer
            or self._instance in path
            or len(message.body) > MAX_PEER_MESSAGE_SIZE
            or not self._is_new(path[0], message.number)
        ):
            return RoutingResult([])
        self._record_contact(path[0], now)
        if message.to != self._instance:
            forwarded = PeerMessage(
                message.to, [*path, self._instance], message.number, message.subject, message.body
            )
            is_lost = message.subject and self.is_reachable(message.to, now) is False
            return RoutingResult(self._forward(forwarded), path[0] if is_lost else "")
        if message.subject != _PROBE_SUBJECT:
            return RoutingResult([], path[0])
        if message.body == _PROBE:
            return RoutingResult(self._route_probe(path[0], _PROBE_RESPONSE))
        return RoutingResult([])

    def _is_new(self, sender: str, number: int) -> bool:
        key = sender, number
        if key in self._seen_messages:
            return False
        self._seen_messages[key] = None
        if len(self._seen_messages) > _MAX_SEEN_MESSAGES:
            self._seen_messages.popitem(last=False)
        return True

    def _forward(self, message: PeerMessage) -> list[RoutedMessage]:
        if message.to in self.neighbours:
            return [RoutedMessage(message.to, message)]
        return [
            RoutedMessage(peer, message)
            for peer in sorted(self.neighbours.difference(message.path))
        ]

    # reachability

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
        probe_start_us = self._probe_starts_us.setdefault(name, now)
        if len(self._probe_starts_us) > _MAX_INSTANCES:
            self._end_probe(next(iter(self._probe_starts_us)))
        return False if now - probe_start_us >= PROBE_TIMEOUT_US else None

    def make_probes(self, now: int) -> list[RoutedMessage]:
        """Return the messages that probe instances of unknown reachability."""
        messages: list[RoutedMessage] = []
        for name in self._probe_starts_us:
            if now - self._probe_times_us.get(name, -_PROBE_INTERVAL_US) >= _PROBE_INTERVAL_US:
                self._probe_times_us[name] = now
                messages += self._route_probe(name, _PROBE)
        return messages

    def _record_contact(self, name: str, now: int) -> None:
        self._end_probe(name)
        self._contact_times_us.pop(name, None)
        self._contact_times_us[name] = now
        if len(self._contact_times_us) > _MAX_INSTANCES:
            self._contact_times_us.popitem(last=False)

    def _end_probe(self, name: str) -> None:
        self._probe_starts_us.pop(name, None)
        self._probe_times_us.pop(name, None)

    def _route_probe(self, to: str, body: bytes) -> list[RoutedMessage]:
        return self._forward(PeerMessage(to, [self._instance], next(self._numbers), "", body))
