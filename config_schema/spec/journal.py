"""The transaction log, and the replication of its messages."""

from dataclasses import dataclass
from typing import Literal

from config_schema.problems import Location
from config_schema.regex import matches
from config_schema.spec.common import InetAddr, ModuleUse, TlsSpec


@dataclass(frozen=True, slots=True)
class JournaledTopicSpec:
    """A Topic of the TransactionLog: a name, or a regular expression, and one message type."""

    name: str
    is_expression: bool
    message_type: str
    location: Location

    def covers(self, message_type: str, name: str) -> bool:
        """Return true if it records the messages published to a topic.

        A name selects only itself, even if it would match others as an expression.
        Source: AMPS User Guide, Configuring a Transaction Log: topics that match exactly.
        """
        return self.message_type == message_type and (
            name == self.name or (self.is_expression and matches(self.name, name))
        )


@dataclass(frozen=True, slots=True)
class TransactionLogSpec:
    """The TransactionLog. Sizes are bytes, intervals nanoseconds; None: computed at start / kept.

    Source: AMPS User Guide, Configuring a Transaction Log.
    """

    journal_directory: str
    journal_archive_directory: str | None
    preallocated_journal_files: int
    journal_size: int
    topics: tuple[JournaledTopicSpec, ...]
    flush_interval: int
    o_direct: bool
    inactive_client_ack_expiration: int | None
    compressed_journal_cache_memory_limit: int | None
    location: Location


@dataclass(frozen=True, slots=True)
class ReplicatedTopicSpec:
    """A Topic of a Destination; `exclude_validation` names the checks that are waived for it."""

    name: str
    message_type: str
    filter: str | None
    exclude_validation: frozenset[str]
    location: Location


@dataclass(frozen=True, slots=True)
class OutgoingTransportSpec:
    """A Transport of a Destination: addresses in order of preference.

    All of them are tried before the next Transport; several Transports serve failover servers that
    need different credentials. Without an address the instance waits for the peer to connect.
    """

    name: str
    type: Literal["amps-replication", "amps-replication-secure"]
    addresses: tuple[InetAddr, ...]
    authenticator: ModuleUse | None
    tls: TlsSpec | None
    location: Location


KnownBy = Literal["group", "name", "address"]
"""The key by which a Destination recognizes its instance: by its Group; without one, by the
Destination's Name; with neither, by its address.
"""


def is_known(known_by: KnownBy, group_name: str, name: str, group: str) -> bool:
    """Return true if a Destination is for an instance.

    Args:
        known_by: the key that identifies the instance.
        group_name: the Group of the Destination, or its substitute.
        name: the name of the instance.
        group: the group of the instance.
    """
    return (
        known_by == "address" or group == group_name or (known_by == "name" and name == group_name)
    )


@dataclass(frozen=True, slots=True)
class DestinationSpec:
    """A replication Destination.

    `group` is the group that the destination must belong to; without one, the Name. `pass_through`
    are regular expressions over the groups that messages came from. `ack_conflation_interval` in
    nanoseconds.
    Source: AMPS User Guide, Configuring Replication.
    """

    name: str
    group: str
    sync_type: Literal["sync", "async"]
    pass_through: tuple[str, ...]
    topics: tuple[ReplicatedTopicSpec, ...]
    transports: tuple[OutgoingTransportSpec, ...]
    compression: str | None
    ack_conflation_interval: int
    location: Location
    known_by: KnownBy = "group"

    def is_for(self, name: str, group: str) -> bool:
        """Return true if it is for an instance of this name and group."""
        return is_known(self.known_by, self.group, name, group)
