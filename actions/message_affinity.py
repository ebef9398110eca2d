"""The assignment of records to clients, each record to one client.

A record is assigned to the client that has the fewest, and stays there until it is dropped or the
client leaves. Records wait for a client while there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

RecordKey: TypeAlias = tuple[str, str]
"""A record: its topic and SOW key."""

AffinityOwner: TypeAlias = tuple[int, str]
"""A client: its number and name."""


@dataclass(frozen=True, slots=True)
class AffinityAssignment:
    """A record that is assigned to a client, or unassigned from it.

    Attributes:
        record: the record.
        client: the new or former owner.
        reason: the reason.
        is_assignment: true for an assignment, false for its end.
    """

    record: RecordKey
    client: AffinityOwner
    reason: str
    is_assignment: bool


class MessageAffinities:
    """The assignments, and the queues of changes to report."""

    def __init__(self) -> None:
        self._records: dict[AffinityOwner, dict[RecordKey, None]] = {}  # of each client, in order
        self._clients: dict[RecordKey, AffinityOwner] = {}  # of each record that has one
        self._to_assign: dict[RecordKey, str] = {}  # with the reason
        self._to_unassign: dict[RecordKey, AffinityAssignment] = {}

    def add_client(self, client: AffinityOwner) -> None:
        """Add a client that can own records; adding it again has no effect."""
        self._records.setdefault(client, {})

    def remove_client(self, client: AffinityOwner, reason: str) -> None:
        """Remove a client; its records are assigned to others."""
        for record in self._records.pop(client, {}):
            del self._clients[record]
            self._to_unassign[record] = AffinityAssignment(
                record, client, reason, is_assignment=False
            )
            self._to_assign[record] = reason

    def add_record(self, record: RecordKey, reason: str) -> None:
        """Queue a record for assignment, unless it is assigned or queued already."""
        if record not in self._clients and record not in self._to_assign:
            self._to_assign[record] = reason

    def remove_record(self, record: RecordKey, reason: str) -> AffinityAssignment | None:
        """Remove a record; return the change to report to its former owner, if any."""
        self._to_assign.pop(record, None)
        pending = self._to_unassign.pop(record, None)
        if pending is not None:
            return pending
        client = self._clients.pop(record, None)
        if client is None:
            return None
        del self._records[client][record]
        return AffinityAssignment(record, client, reason, is_assignment=False)

    def next_change(self) -> AffinityAssignment | None:
        """Return the next change to report; None if there is nothing for now."""
        if self._to_unassign:
            return self._to_unassign.pop(next(iter(self._to_unassign)))
        if not self._to_assign or not self._records:
            return None
        record = next(iter(self._to_assign))
        reason = self._to_assign.pop(record)
        client = min(self._records, key=lambda one: len(self._records[one]))
        self._records[client][record] = None
        self._clients[record] = client
        return AffinityAssignment(record, client, reason, is_assignment=True)
