"""Decides which entries another instance may be told, and about which topics it may speak.

It is told of entries of the log that it has been sent or has sent, and has a say in topics that are
replicated between it and this instance: that one of the destinations of this instance sends to it,
or that its user may replicate to here. All messages between instances beside the log are limited
to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from server.journal import Topic
from server.replication.routes import hops

if TYPE_CHECKING:
    from server.links.gate import Gate
    from server.links.replication import OwnDestination

_SEPARATOR: Final = "/"


class PeerAccess:
    """Decides by the topics that are replicated.

    Args:
        destinations: those of this instance, by name.
    """

    def __init__(self, destinations: Mapping[str, OwnDestination]) -> None:
        self._destinations: Final = destinations

    def may_have(
        self, peer: str, gates: Iterable[Gate | None], topic: Topic, path: str, body: bytes | None
    ) -> bool:
        """Return whether an instance may be told of an entry of the log.

        Args:
            peer: its name.
            gates: of the links with it, None for those that this instance has made.
            topic: the entry's topic.
            path: the instances that the entry has been through.
            body: its body, as far as that is told; None where a filter cannot be asked.
        """
        for own in self._sent_to(peer):
            filters = own.sender.filters(topic, path)
            if filters is None:
                continue
            if not filters or (body is not None and any(one(topic, [body])[0] for one in filters)):
                return True
        has_had_it = any(hop.name == peer for hop in hops(path))
        return has_had_it and _may_replicate(gates, topic)

    def takes_part(self, peer: str, gates: Iterable[Gate | None], topic: Topic) -> bool:
        """Return whether a topic is replicated between an instance and this one."""
        return any(own.sender.concerns(topic) for own in self._sent_to(peer)) or _may_replicate(
            gates, topic
        )

    def _sent_to(self, peer: str) -> Iterator[OwnDestination]:
        for own in self._destinations.values():
            if own.is_connected and own.sender.leads_to(peer):
                yield own


def queue_of(subject: str) -> Topic | None:
    """Return the queue that a word is about; None if it is about none.

    Such a subject is message type, name and domain of the queue, with slashes between them.
    """
    message_type, slash, rest = subject.partition(_SEPARATOR)
    return Topic(message_type, rest.rpartition(_SEPARATOR)[0]) if slash else None


def _may_replicate(gates: Iterable[Gate | None], topic: Topic) -> bool:
    return any(gate is None or gate.may_replicate(topic) for gate in gates)
