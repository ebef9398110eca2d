"""Permissions of a user: a permit for each operation on a resource.

A limited permit has the messages (`filter`) and the fields (`select`) that it covers.

Source: AMPS User Guide, Entitlement Resource and Permission Types; Content Filtered Entitlements;
Entitlement Select Lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from server.expressions.tree import Expr
    from server.message_types.select_list import FieldSelection


class Permission(Enum):
    """An operation that needs a permit."""

    LOGON = "log on"
    REPLICATION_LOGON = "replicate to"
    READ_TOPIC = "read from"
    WRITE_TOPIC = "write to"
    REPLICATE_TOPIC = "replicate to topic"
    READ_ADMIN = "see"


@dataclass(frozen=True, slots=True)
class Permit:
    """The decision on an operation.

    Attributes:
        is_allowed: whether the operation is allowed.
        filter: the filter that messages must match; None for all messages.
        filter_text: its source text.
        select: the fields that are visible; None for all.
        select_text: its source text.
        rule: the rule that decided, for people.
        is_undecided: whether it is refused because a match with a rule cannot be decided.
    """

    is_allowed: bool
    filter: Expr | None = None
    filter_text: str = ""
    select: FieldSelection | None = None
    select_text: str = ""
    rule: str = ""
    is_undecided: bool = False

    @property
    def is_limited(self) -> bool:
        """True if it covers only some messages, or some of their fields."""
        return self.filter is not None or self.select is not None


UNLIMITED: Final = Permit(True)


def undecided(pattern: str, where: str = "") -> Permit:
    """Return the permit where matching a rule with a resource takes too many steps.

    It is a refusal, since the rule might be one, and clients choose the names of resources.

    Args:
        pattern: the rule's regular expression.
        where: the location of the rule.
    """
    prefix = f"{where}: " if where else ""
    problem = f"it takes too many steps to tell whether {pattern} matches"
    return Permit(False, rule=f"{prefix}{problem}", is_undecided=True)


class Permissions(Protocol):
    """The permissions of a user on a connection."""

    def get_permit(self, permission: Permission, resource: str) -> Permit:
        """Return the permit for an operation.

        Args:
            permission: the operation.
            resource: the topic, or the path of the admin interface; empty for logons.
        """

    def allows_instance(self, name: str) -> bool | None:
        """Return whether the user is the instance of a name; None if no rule lists the instances.

        Args:
            name: the Name of an instance that logs on as the user.
        """

    def release(self) -> None:
        """Release the permissions at the end of the connection."""


@dataclass(frozen=True, slots=True)
class ConstantPermissions:
    """Returns the same permit for every operation."""

    decision: Permit

    def get_permit(self, permission: Permission, resource: str) -> Permit:  # noqa: ARG002 - the same for all
        """See `Permissions`."""
        return self.decision

    def allows_instance(self, name: str) -> bool | None:  # noqa: ARG002 - no rule lists instances
        """See `Permissions`."""
        return None

    def release(self) -> None:
        """See `Permissions`."""


UNKNOWN_USER_PERMIT: Final = Permit(False, rule="no logon has stored permissions of the user")
"""The permit while the permissions of a user are unknown: a new logon may provide them."""

ALL_PERMISSIONS: Final = ConstantPermissions(UNLIMITED)
NO_PERMISSIONS: Final = ConstantPermissions(Permit(False))
