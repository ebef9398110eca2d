"""Which client has which record, where each record belongs to one client.

Plain bookkeeping: a record goes to the client that has the fewest, and stays there until it is
dropped or the client leaves. Records that nobody can have wait for a client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Key: TypeAlias = tuple[str, str]
"""A record: its topic and SOW key."""

Client: TypeAlias = tuple[int, str]
"""A client: its number and name."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A record that now has a client, or has one no more.

    Attributes:
        record: the record.
        client: whose it is, or was.
        reason: why.
        begins: whether it is the client's from now on.
    """

    record: Key
    client: Client
    reason: str
    begins: bool


class Affinities:
    """Records and clients."""

    def __init__(self) -> None:
        self._records: dict[Client, dict[Key, None]] = {}  # of each client, in order
        self._clients: dict[Key, Client] = {}  # of each record that has one
        self._to_assign: dict[Key, str] = {}  # and why
        self._to_unassign: dict[Key, Assignment] = {}

    def join(self, client: Client) -> None:
        """A client can have records; joining again does nothing."""
        self._records.setdefault(client, {})

    def leave(self, client: Client, reason: str) -> None:
        """A client can have no records any more: those that it has go to others."""
        for record in self._records.pop(client, {}):
            del self._clients[record]
            self._to_unassign[record] = Assignment(record, client, reason, begins=False)
            self._to_assign[record] = reason

    def add(self, record: Key, reason: str) -> None:
        """A record is to have a client, unless it has one, or waits for one."""
        if record not in self._clients and record not in self._to_assign:
            self._to_assign[record] = reason

    def drop(self, record: Key, reason: str) -> Assignment | None:
        """A record is to have no client any more; returns what whoever had it has to be told."""
        self._to_assign.pop(record, None)
        untold = self._to_unassign.pop(record, None)
        if untold is not None:
            return untold
        client = self._clients.pop(record, None)
        if client is None:
            return None
        del self._records[client][record]
        return Assignment(record, client, reason, begins=False)

    def next(self) -> Assignment | None:
        """The next thing to be told; None if there is nothing for now."""
        if self._to_unassign:
            return self._to_unassign.pop(next(iter(self._to_unassign)))
        if not self._to_assign or not self._records:
            return None
        record = next(iter(self._to_assign))
        reason = self._to_assign.pop(record)
        client = min(self._records, key=lambda one: len(self._records[one]))
        self._records[client][record] = None
        self._clients[record] = client
        return Assignment(record, client, reason, begins=True)
