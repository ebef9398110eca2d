"""The description of an instance for its replication peers; it contains no secrets.

The structs can be sent as they are, in MessagePack or JSON. Every part has its location, so that
either side can report the locations of both.
"""

from typing import Final, Literal

from msgspec import Struct

from config_schema.problems import Location
from config_schema.selection import TopicPattern
from config_schema.spec import (
    ActionSpec,
    AdminSpec,
    DestinationSpec,
    InetAddr,
    InstanceSpec,
    KnownBy,
    OutgoingTransportSpec,
    QueueSpec,
    ReplicatedTopicSpec,
    SowSpec,
    TopicSpec,
    ViewSpec,
    is_known,
)
from config_schema.units import parse_external_address

_OWN_OPTIONS: Final = ("FileName",)
"""Options of key generators in which two instances may differ."""

_DOWNGRADE: Final = "amps-action-do-downgrade-replication"

StoredKind = Literal["Topic", "View", "ConflatedTopic", "Queue", "LocalQueue", "GroupLocalQueue"]


class TransactionLogTopic(Struct, frozen=True):
    """A Topic of the TransactionLog."""

    selection: TopicPattern
    location: Location


class SowDescription(Struct, frozen=True):
    """A definition of the SOW section; `identity`: the elements that determine a Topic's record
    keys.

    `pattern` is set for a Topic that stores the records of all topics that it matches. The other
    fields are for queues: `domain` is the GroupLocalQueueDomain, by default the instance's Group.
    """

    kind: StoredKind
    name: str
    message_type: str
    location: Location
    pattern: str | None = None
    identity: tuple[tuple[str, str], ...] = ()
    underlying_topic: str = ""
    filter: str | None = None
    initial_owner: str | None = None
    domain: str = ""

    @property
    def is_shared_queue(self) -> bool:
        """True if the instances that replicate it share one queue."""
        return self.kind in ("Queue", "GroupLocalQueue")

    @property
    def selection(self) -> TopicPattern:
        """The topic of this name, which is never an expression."""
        return TopicPattern(self.name, self.message_type, is_expression=False)


class ReplicatedTopic(Struct, frozen=True):
    """A Topic of a Destination."""

    selection: TopicPattern
    filter: str | None
    excluded: frozenset[str]
    location: Location


class PeerAddress(Struct, frozen=True):
    """An address to connect to, or, without a `host`, a port to listen on at every address."""

    host: str | None
    port: int
    is_secure: bool
    location: Location

    def __str__(self) -> str:
        """Return the address as the configuration writes it."""
        if self.host is None:
            return str(self.port)
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class AdminAddress(Struct, frozen=True):
    """The address of an admin interface; without a `host`, every address of its machine.

    `external` is the address for other machines, if configured: a host, perhaps a port and a path.
    `is_secure`: that address is accessed over TLS.
    """

    host: str | None
    port: int
    is_secure: bool
    external: str = ""


class Destination(Struct, frozen=True):
    """A replication Destination. With no `addresses` it waits for the other instance to connect."""

    name: str
    group: str
    is_sync: bool
    pass_through: tuple[str, ...]
    topics: tuple[ReplicatedTopic, ...]
    addresses: tuple[PeerAddress, ...]
    location: Location
    known_by: KnownBy = "group"

    def is_for(self, instance: "InstanceDescription") -> bool:
        """Return true if it leads to an instance."""
        return is_known(self.known_by, self.group, instance.name, instance.group)


class InstanceDescription(Struct, frozen=True):
    """One instance; `listens`: its replication address, `admin`: its admin interface.

    Either is None if there is none.
    """

    name: str
    group: str
    location: Location
    listens: PeerAddress | None
    log_location: Location | None
    logged: tuple[TransactionLogTopic, ...]
    stored: tuple[SowDescription, ...]
    destinations: tuple[Destination, ...]
    downgrades: bool
    admin: AdminAddress | None = None

    @property
    def replicates(self) -> bool:
        """True if it takes any part in replication."""
        return self.listens is not None or bool(self.destinations)


def describe(spec: InstanceSpec) -> InstanceDescription:
    """Return the description of an instance for its replication peers."""
    regex = spec.regex_topic_support
    log = spec.transaction_log
    return InstanceDescription(
        name=spec.name,
        group=spec.group,
        location=spec.location,
        listens=_listens(spec),
        log_location=log.location if log else None,
        logged=tuple(
            TransactionLogTopic(
                TopicPattern.from_name(topic.name, topic.message_type, regex_topics=regex),
                topic.location,
            )
            for topic in (log.topics if log else ())
        ),
        stored=tuple(_stored(sow, spec.group) for sow in spec.sow),
        destinations=tuple(
            _destination(destination_spec, regex) for destination_spec in spec.replication
        ),
        downgrades=any(map(_downgrades, spec.actions)),
        admin=None if spec.admin is None else _admin(spec.admin),
    )


def _listens(spec: InstanceSpec) -> PeerAddress | None:
    for transport in spec.transports:
        if transport.is_replication and transport.inet_addr is not None:
            return _address(transport.inet_addr, transport.type == "amps-replication-secure")
    return None


def _admin(spec: AdminSpec) -> AdminAddress | None:
    if spec.inet_addr is None:
        return None
    address, is_secure = spec.inet_addr, spec.tls is not None
    if spec.external_inet_addr is None:
        return AdminAddress(address.host, address.port, is_secure)
    scheme, where = parse_external_address(spec.external_inet_addr)
    return AdminAddress(
        address.host, address.port, scheme == "https" if scheme else is_secure, where
    )


def _address(address: InetAddr, is_secure: bool) -> PeerAddress:
    return PeerAddress(address.host, address.port, is_secure, address.location)


def _stored(sow: SowSpec, group: str) -> SowDescription:
    if isinstance(sow, QueueSpec):
        return SowDescription(
            sow.kind,
            sow.name,
            sow.message_type,
            sow.location,
            underlying_topic=sow.underlying_topic,
            filter=sow.filter,
            initial_owner=sow.initial_owner,
            domain=sow.group_local_queue_domain or group,
        )
    if isinstance(sow, TopicSpec):
        identity = _identity(sow)
        return SowDescription(
            "Topic", sow.name, sow.message_type, sow.location, sow.pattern, identity
        )
    kind: StoredKind = "View" if isinstance(sow, ViewSpec) else "ConflatedTopic"
    return SowDescription(kind, sow.name, sow.message_type, sow.location)


def _identity(topic: TopicSpec) -> tuple[tuple[str, str], ...]:
    """Return the elements that distinguish records, and all others that affect their keys."""
    parts = [("Key", key) for key in topic.keys]
    if topic.key_domain != topic.name:
        parts.append(("KeyDomain", topic.key_domain))
    generator = topic.key_generator
    if generator is not None:
        parts.append(("KeyGenerator", generator.module))
        options = ((option.name, option.value) for option in generator.options)
        parts += [option for option in options if option[0] not in _OWN_OPTIONS]
    return tuple(parts)


def _destination(spec: DestinationSpec, regex_topics: bool) -> Destination:
    return Destination(
        name=spec.name,
        group=spec.group,
        is_sync=spec.sync_type == "sync",
        pass_through=spec.pass_through,
        topics=tuple(_replicated(topic, regex_topics) for topic in spec.topics),
        addresses=tuple(
            _address(address, _is_secure(transport))
            for transport in spec.transports
            for address in transport.addresses
        ),
        location=spec.location,
        known_by=spec.known_by,
    )


def _is_secure(transport: OutgoingTransportSpec) -> bool:
    return transport.type == "amps-replication-secure" or transport.tls is not None


def _replicated(spec: ReplicatedTopicSpec, regex_topics: bool) -> ReplicatedTopic:
    return ReplicatedTopic(
        TopicPattern.from_name(spec.name, spec.message_type, regex_topics=regex_topics),
        spec.filter,
        spec.exclude_validation,
        spec.location,
    )


def _downgrades(action: ActionSpec) -> bool:
    return any(step.use.module == _DOWNGRADE for step in action.steps)
