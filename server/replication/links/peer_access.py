"""Decides to which log entries and topics another instance is entitled.

It may receive entries of the log that have been sent to it or by it. It may send messages about
topics that are replicated between it and this instance: a destination of this instance sends them
to it, or its user may replicate them to here. All messages between instances beside the log are
limited to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from server.replication.core.routes import hops
from server.storage.journal import JournalTopic

if TYPE_CHECKING:
    from server.replication.links.admission import LinkAdmission
    from server.replication.links.replication_state import ReplicationDestination

_SEPARATOR: Final = "/"


class PeerAccess:
    """Entitlement of other instances, by the topics that are replicated.

    Args:
        destinations: those of this instance, by name.
    """

    def __init__(self, destinations: Mapping[str, ReplicationDestination]) -> None:
        self._destinations: Final = destinations

    def may_receive(
        self,
        peer: str,
        admissions: Iterable[LinkAdmission | None],
        topic: JournalTopic,
        path: str,
        body: bytes | None,
    ) -> bool:
        """Return whether an instance may receive an entry of the log.

        Args:
            peer: its name.
            admissions: the transports of the links with it, None for links that this instance has
                made.
            topic: the entry's topic.
            path: the instances that the entry has passed through.
            body: the part of its body that would be sent; None where no filter can be evaluated.
        """
        for destination in self._connected_destinations(peer):
            filters = destination.sender.filters_for(topic, path)
            if filters is None:
                continue
            if not filters or (
                body is not None and any(route_filter(topic, [body])[0] for route_filter in filters)
            ):
                return True
        has_passed_through = any(hop.name == peer for hop in hops(path))
        return has_passed_through and _may_replicate(admissions, topic)

    def is_topic_shared(
        self, peer: str, admissions: Iterable[LinkAdmission | None], topic: JournalTopic
    ) -> bool:
        """Return whether a topic is replicated between an instance and this one."""
        return any(
            destination.sender.may_send_topic(topic)
            for destination in self._connected_destinations(peer)
        ) or _may_replicate(admissions, topic)

    def _connected_destinations(self, peer: str) -> Iterator[ReplicationDestination]:
        for destination in self._destinations.values():
            if destination.is_connected and destination.sender.is_peer(peer):
                yield destination


def queue_of(subject: str) -> JournalTopic | None:
    """Return the queue of a message, by the message's subject; None if it concerns no queue.

    Such a subject is message type, name and domain of the queue, with slashes between them.
    """
    message_type, slash, rest = subject.partition(_SEPARATOR)
    return JournalTopic(message_type, rest.rpartition(_SEPARATOR)[0]) if slash else None


def _may_replicate(admissions: Iterable[LinkAdmission | None], topic: JournalTopic) -> bool:
    return any(admission is None or admission.may_replicate(topic) for admission in admissions)
