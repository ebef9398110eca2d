"""What a user may do: a permit for each thing that somebody wants to do.

A permit that is limited says to which messages (`filter`) and which of their fields (`select`).

Source: AMPS User Guide, Entitlement Resource and Permission Types; Content Filtered Entitlements;
Entitlement Select Lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from server.expressions.tree import Expr
    from server.message_types.selection import Selection


class Permission(Enum):
    """What somebody wants to do."""

    LOGON = "log on"
    REPLICATION_LOGON = "replicate to"
    READ_TOPIC = "read from"
    WRITE_TOPIC = "write to"
    REPLICATE_TOPIC = "replicate to topic"
    READ_ADMIN = "see"


@dataclass(frozen=True, slots=True)
class Permit:
    """What is said to somebody who wants to do something.

    Attributes:
        allowed: whether they may.
        filter: what messages have to match; None for all.
        filter_text: the same as it was written.
        select: which of their fields may be seen; None for all.
        select_text: the same as it was written.
        rule: what says so, for people.
        is_undecided: whether it is refused since it cannot be told whether a rule is about it.
    """

    allowed: bool
    filter: Expr | None = None
    filter_text: str = ""
    select: Selection | None = None
    select_text: str = ""
    rule: str = ""
    is_undecided: bool = False

    @property
    def is_limited(self) -> bool:
        """Whether it is for some messages only, or some of their fields."""
        return self.filter is not None or self.select is not None


UNLIMITED: Final = Permit(True)


def undecided(pattern: str, where: str = "") -> Permit:
    """What is said if it takes too many steps to tell whether a rule is about a resource.

    The rule might have refused it, so it is refused: names are for clients to choose.

    Args:
        pattern: the rule's regular expression.
        where: where it is written.
    """
    place = f"{where}: " if where else ""
    problem = f"it takes too many steps to tell whether {pattern} matches"
    return Permit(False, rule=f"{place}{problem}", is_undecided=True)


class Permissions(Protocol):
    """What a user may do on a connection."""

    def permit(self, permission: Permission, resource: str) -> Permit:
        """What is said to the user.

        Args:
            permission: what they want to do.
            resource: the topic, or the path of the admin interface; empty for logons.
        """

    def is_instance(self, name: str) -> bool | None:
        """Return whether the user is the instance of a name; None if nothing says which it is.

        Args:
            name: the Name of an instance that logs on as the user.
        """

    def leave(self) -> None:
        """The connection has ended."""


@dataclass(frozen=True, slots=True)
class Same:
    """Says the same to everything."""

    answer: Permit

    def permit(self, permission: Permission, resource: str) -> Permit:  # noqa: ARG002 - the same for all
        """See `Permissions`."""
        return self.answer

    def is_instance(self, name: str) -> bool | None:  # noqa: ARG002 - nothing is said of any
        """See `Permissions`."""
        return None

    def leave(self) -> None:
        """See `Permissions`."""


STRANGER: Final = Permit(False, rule="no logon has said what the user may do")
"""What is said to somebody who may have more to say: they have to log on, or to do it again."""

EVERYTHING: Final = Same(UNLIMITED)
NOTHING: Final = Same(Permit(False))
