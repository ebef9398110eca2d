"""The interface of a transport that admits instances, as links use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from config_schema.spec import DestinationSpec
    from server.replication.core import Hello
    from server.security.deferred import AnswerOrFuture
    from server.storage.journal import JournalTopic


class LinkAdmission(Protocol):
    """The transport that has accepted a connection, as the link over it uses it.

    An instance is *proven* if its user has been authenticated and its claimed name is verified: by
    its permissions, or because user and instance have the same name.
    """

    @property
    def is_unverified_user(self) -> bool:
        """True if the user is authenticated, but not known to be the instance."""

    @property
    def is_verified(self) -> bool:
        """True if the claimed name of the instance is verified."""

    def admit(self, hello: Hello) -> AnswerOrFuture[str | None]:
        """Return the reason not to admit an instance; None to admit it. May take a while."""

    def check_topic(self, topic: JournalTopic) -> str | None:
        """Return the reason not to record entries of a topic, which is audited; None if allowed."""

    def may_replicate(self, topic: JournalTopic) -> bool:
        """Return whether the user may replicate a topic to this instance."""

    def check_destination(self, destination: DestinationSpec) -> str | None:
        """Return the reason not to serve a destination over the connection; None if allowed."""

    def destination_warning(self, destination: DestinationSpec) -> str | None:
        """Return the reason to doubt that the peer is the destination served; None if it is."""

    def audit_refusal(self, action: str, resource: str, reason: str) -> None:
        """Write to the audit trail that the user is not entitled to an action."""
