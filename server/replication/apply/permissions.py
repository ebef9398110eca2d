"""Permissions for entries of other instances, as set by the transports to which they connect.

For an instance to which this one itself connects, according to its configuration, nothing is
checked.

Source: AMPS User Guide, Entitlement Resource and Permission Types; Permissions Document Format,
replicated-topics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from server.storage.journal.format.entry import NO_TOPIC

if TYPE_CHECKING:
    from server.replication.core import BatchColumns
    from server.storage.journal import JournalTopic

TopicPermissionCheck: TypeAlias = "Callable[[JournalTopic], str | None]"
"""Returns the reason why a topic must not be recorded; None if it may be."""


class ApplyPermissions:
    """The permission checks of received entries, by the name of the instance that sent them."""

    def __init__(self) -> None:
        self._checks: dict[str, TopicPermissionCheck] = {}

    def set_check(self, source: str, check: TopicPermissionCheck | None) -> None:
        """Set the permission check of an instance, whose entries arrive from now on.

        Args:
            source: its name.
            check: decides which topics may be recorded; None for all.
        """
        if check is None:
            self._checks.pop(source, None)
        else:
            self._checks[source] = check

    def refusal_reason(self, source: str, topic: JournalTopic) -> str | None:
        """Return why an instance's entries for a topic must not be recorded; None if they may be.

        Notes about numbers of publishers have no topic, and are always accepted.
        """
        check = self._checks.get(source)
        return None if check is None or topic == NO_TOPIC else check(topic)

    def allows_all(self, source: str, entries: BatchColumns) -> bool:
        """Return whether all entries may be recorded."""
        return source not in self._checks or not any(
            self.refusal_reason(source, name.topic) for name in entries.used_properties().values()
        )
