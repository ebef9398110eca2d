"""Entitlement modules: what a user who has logged on may do.

Source: AMPS User Guide, Entitlement Resource and Permission Types, Provided Entitlement Modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from config_schema.spec import ModuleUse


class Permission(Enum):
    """What somebody wants to do."""

    LOGON = "logon"
    REPLICATION_LOGON = "replicate to"
    READ_TOPIC = "read from"
    WRITE_TOPIC = "write to"
    READ_ADMIN = "see"


class Entitlement(Protocol):
    """One entitlement module, configured for an instance or a transport."""

    def allows(self, user: str, permission: Permission, resource: str) -> bool:
        """Whether a user may do something with a topic (the resource is empty for logons)."""


@dataclass(frozen=True, slots=True)
class FixedEntitlement:
    """Gives everybody the same answer."""

    answer: bool

    def allows(self, user: str, permission: Permission, resource: str) -> bool:  # noqa: ARG002 - the same for all
        """Whether a user may do something with a topic."""
        return self.answer


ENTITLEMENT_MODULES: Final[Mapping[str, Callable[[ModuleUse], Entitlement]]] = {
    "amps-default-entitlement-module": lambda _use: FixedEntitlement(True),
    "amps-default-no-entitlement-module": lambda _use: FixedEntitlement(False),
}
"""The modules that need no Modules entry, by the name that a configuration uses."""


def make_entitlement(use: ModuleUse | None) -> Entitlement:
    """Make the entitlement that a configuration asks for; without one, the default module."""
    return FixedEntitlement(True) if use is None else ENTITLEMENT_MODULES[use.module](use)
