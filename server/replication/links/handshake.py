"""The handshake of two instances: finds the destination that the peer is, and validates both.

Each source validates its own direction: it knows its own Destination, and the other instance has
described its configuration. The instance that finds problems logs all of them; it sends the peer
the first one.

Source: AMPS User Guide, Replication Configuration Validation; Destination Server Failover.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from config_schema.regex import matches
from config_schema.selection import TopicPattern
from config_schema.topology import InstanceDescription, TopologyFinding, check_link
from config_schema.topology.routes import meets
from server.storage.journal import JournalTopic
from server.util.peer_struct import MSGPACK_ERRORS

if TYPE_CHECKING:
    from config_schema.topology.description import Destination, SowDescription
    from server.replication.core import Hello
    from server.replication.links.admission import LinkAdmission
    from server.replication.links.replication_state import ReplicationDestination


class PeerIntroduction(InstanceDescription, frozen=True):
    """The description of an instance that is sent when a link begins, with its runs.

    Source: docs/formats/replication.md, Hello.

    Attributes:
        runs: the first txid and the number of each run that has recorded entries of its log, and of
            the current run; empty if its version does not distinguish runs.
        read: by name of another instance, the position up to which its log has been received: the
            identity of the log, the txid, and the run that recorded the entry.
    """

    runs: tuple[tuple[int, int], ...] = ()
    read: dict[str, tuple[str, int, int]] = msgspec.field(default_factory=dict)


MAX_INSTANCE_NAME_LENGTH: Final = 255
"""Characters of the Name or Group of an instance."""

_MAX_SHOWN: Final = 40
_DECODER: Final = msgspec.msgpack.Decoder(PeerIntroduction)


class PeerDescriptionError(Exception):
    """A description that a peer has sent of itself is invalid; the text gives the reason."""


def read_description(hello: Hello) -> PeerIntroduction:
    """Return the configuration that an instance has sent with its `Hello`.

    Raises:
        PeerDescriptionError: there is none, or it is not of this instance; or its name cannot be
            recorded with each message.
    """
    if max(len(hello.instance), len(hello.group)) > MAX_INSTANCE_NAME_LENGTH:
        raise PeerDescriptionError(
            f"the Name or Group of {hello.instance[:_MAX_SHOWN]}... has more than"
            f" {MAX_INSTANCE_NAME_LENGTH} characters"
        )
    try:
        description = _DECODER.decode(hello.description)
    except MSGPACK_ERRORS as problem:
        raise PeerDescriptionError(
            f"the configuration summary of {hello.instance} cannot be read: {problem}"
        ) from problem
    if (description.name, description.group) != (hello.instance, hello.group):
        raise PeerDescriptionError(
            f"{hello.instance} of the group {hello.group} describes itself as "
            f"{description.name} of the group {description.group}"
        )
    return description


def without_paths(description: InstanceDescription) -> InstanceDescription:
    """Return a description as it is sent: the paths of its configuration files cut to names."""
    fields = msgspec.to_builtins(description)
    _strip_paths(fields)
    return msgspec.convert(fields, InstanceDescription)


def _strip_paths(value: object) -> None:
    if isinstance(value, dict):
        if value.keys() == {"file", "line"}:
            value["file"] = PurePath(value["file"]).name
        for item in value.values():
            _strip_paths(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _strip_paths(item)


def description_for_peer(
    own: PeerIntroduction,
    peer: InstanceDescription,
    destination: str | None,
    admission: LinkAdmission,
) -> bytes:
    """Return the description of this instance for an instance that has connected.

    It has the topics that the checks of the replication between the two need: topics that are sent
    to it, topics that it has named itself, and topics that its user may replicate.

    Args:
        own: the description of this instance, without paths.
        peer: that of the other one.
        destination: the Destination that the other one is; None if it is none.
        admission: the transport that has accepted the connection.
    """
    shared = _SharedTopics(own, peer, destination, admission)
    destinations = [
        replace(
            item,
            topics=tuple(each for each in item.topics if shared.includes(each.selection)),
            addresses=item.addresses if item.is_for(peer) else (),
        )
        for item in own.destinations
    ]
    description = replace(
        own,
        logged=tuple(item for item in own.logged if shared.includes(item.selection)),
        stored=tuple(filter(shared.includes_stored, own.stored)),
        destinations=tuple(item for item in destinations if item.topics),
        admin=None if admission.is_unverified_user else own.admin,
        read={name: position for name, position in own.read.items() if name == peer.name},
    )
    return msgspec.msgpack.encode(description)


class _SharedTopics:
    """Decides which topics are disclosed to a connected instance.

    Args:
        own: the description of this instance.
        peer: that of the other one.
        destination: the Destination that the other one is; None if it is none.
        admission: the transport that has accepted the connection.
    """

    def __init__(
        self,
        own: InstanceDescription,
        peer: InstanceDescription,
        destination: str | None,
        admission: LinkAdmission,
    ) -> None:
        self._sent_topics = {
            topic.selection
            for one in own.destinations
            if one.name == destination
            for topic in one.topics
        }
        self._sent_expressions = [topic for topic in self._sent_topics if topic.is_expression]
        self._peer_topics = {
            *(one.selection for one in peer.logged),
            *(one.selection for one in peer.stored),
            *(topic.selection for other in peer.destinations for topic in other.topics),
        }
        self._peer_expressions = [topic for topic in self._peer_topics if topic.is_expression]
        self._admission = admission

    def includes(self, selection: TopicPattern) -> bool:
        """Return whether the topic or topics of a selection are disclosed to the other instance.

        Names may be in the thousands, so they are looked up; expressions are few.
        """
        if selection in self._peer_topics or selection in self._sent_topics:
            return True
        if any(each.overlaps(selection) for each in self._sent_expressions):
            return True
        if selection.is_expression and any(
            map(selection.includes, (*self._peer_topics, *self._sent_topics))
        ):
            return True
        is_named_by_peer = any(each.overlaps(selection) for each in self._peer_expressions)
        topic = JournalTopic(selection.message_type, selection.name)
        return is_named_by_peer and self._admission.may_replicate(topic)

    def includes_stored(self, topic: SowDescription) -> bool:
        """Return whether a definition of the SOW section is disclosed to the other instance."""
        pattern = topic.pattern
        return self.includes(topic.selection) or (
            pattern is not None
            and any(
                matches(pattern, topic.name)
                for topic in self._peer_topics
                if not topic.is_expression
            )
        )


def destination_of(
    own: InstanceDescription,
    peer: InstanceDescription,
    destinations: Iterable[ReplicationDestination],
) -> str | None:
    """Return the name of the destination that a connected instance is; None if it is none.

    A candidate destination is for the instance, by its group if it has one. The rules are
    tried in this order: the destination is named after the instance; the instance was connected
    there before; the instance listens at one of the destination's addresses; the destination has
    no address, and so waits for any instance of its group.

    Args:
        own: the description of this instance.
        peer: the description of the other one.
        destinations: the destinations to choose from.
    """
    addresses = {destination.name: destination.addresses for destination in own.destinations}
    candidates = [
        destination
        for destination in destinations
        if destination.spec.is_for(peer.name, peer.group)
    ]
    listens = peer.listens
    for rule in (
        lambda destination: destination.spec.name == peer.name,
        lambda destination: (
            destination.sender.peer is not None and destination.sender.peer.name == peer.name
        ),
        lambda destination: (
            listens is not None
            and any(meets(at, listens) for at in addresses[destination.spec.name])
        ),
        lambda destination: not addresses[destination.spec.name],
    ):
        for destination in candidates:
            if rule(destination):
                return destination.spec.name
    return None


def validate(
    own: InstanceDescription, destination: str, peer: InstanceDescription
) -> Sequence[TopologyFinding]:
    """Return the validation errors that prevent replication to a destination."""
    findings = check_link(own, _find_destination(own, destination), peer)
    return [finding for finding in findings if finding.is_error]


def _find_destination(own: InstanceDescription, name: str) -> Destination:
    return next(destination for destination in own.destinations if destination.name == name)


def failed(findings: Sequence[TopologyFinding], source: str, destination: str) -> str:
    """Return the reason why two instances do not replicate, in one sentence."""
    first = findings[0].problem
    more = f", and {len(findings) - 1} more" if len(findings) > 1 else ""
    return (
        f"the configurations of {source} and {destination} do not fit together: {first}{more}; "
        f"the log of {source} has all of it"
    )
