"""What the admin interface has to say for the audit trail: said on the engine's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.topics.audit import Party

if TYPE_CHECKING:
    from server.admin.engine_side import EngineSide
    from server.topics.audit import Audit

TRANSPORT: Final = "amps-admin"
"""What the admin interface is called where transports are named."""


class Trail:
    """Takes note of those who come to the admin interface.

    Args:
        audit: the trail of the instance.
        module: the name of the module that decides on logons; empty if there is none.
        engine_side: where things are said.
    """

    def __init__(self, audit: Audit, module: str, engine_side: EngineSide) -> None:
        self._audit = audit
        self._module = module
        self._engine_side = engine_side

    def logged_on(self, user: str, address: str, reason: str) -> None:
        """Somebody has shown credentials for the first time."""
        party = self._party(user, address)
        self._engine_side.tell(lambda: self._audit.logged_on(party, reason))

    def logon_refused(self, user: str, address: str, reason: str) -> None:
        """Somebody has shown credentials that are not accepted."""
        party = self._party(user, address)
        self._engine_side.tell(lambda: self._audit.logon_refused(party, reason))

    def refused(self, user: str, address: str, path: str, rule: str) -> None:
        """Somebody must not see a path, or have done what it stands for."""
        party = self._party(user, address)
        self._engine_side.tell(lambda: self._audit.refused(party, "see", path, rule))

    def acted(self, user: str, address: str, path: str) -> None:
        """Somebody has something done."""
        party = self._party(user, address)
        self._engine_side.tell(lambda: self._audit.acted(party, path, ""))

    def _party(self, user: str, address: str) -> Party:
        return Party(user, address, TRANSPORT, module=self._module)
