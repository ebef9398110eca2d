"""The interface by which links ask a transport whether, and as what, an instance is let in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from config_schema.spec import DestinationSpec
    from server.journal import Topic
    from server.replication import Hello
    from server.security.later import Later


class Gate(Protocol):
    """The transport that a connection was accepted by, as the link over it sees it.

    An instance is *proven* if its user has been authenticated, and is the instance that it calls
    itself: by its permissions, or because user and instance have one name.
    """

    @property
    def is_stranger(self) -> bool:
        """Whether the user has been authenticated, and is not known to be the instance."""

    @property
    def is_proven(self) -> bool:
        """Whether the instance is the one that it calls itself."""

    def admit(self, hello: Hello) -> Later[str | None]:
        """Return why an instance is not let in; None if it is. That may take a while."""

    def judge(self, topic: Topic) -> str | None:
        """Return why nothing of a topic may be recorded; None if it may be. It is audited."""

    def may_replicate(self, topic: Topic) -> bool:
        """Return whether the user may replicate a topic to this instance."""

    def falls_short(self, destination: DestinationSpec) -> str | None:
        """Return why a destination must not be served over the connection; None if it may be."""

    def doubt(self, destination: DestinationSpec) -> str | None:
        """Return why the other end may not be the destination that is served; None if it is."""

    def refuse(self, action: str, resource: str, reason: str) -> None:
        """Write into the audit trail that the user must not do something."""
