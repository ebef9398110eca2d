"""Audit records of the admin interface, written on the engine's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.topics.system.audit import AuditActor

if TYPE_CHECKING:
    from server.admin.engine_calls import EngineCalls
    from server.topics.system.audit import Audit

TRANSPORT: Final = "amps-admin"
"""The name of the admin interface where transports are named."""


class AdminAudit:
    """Records requesters of the admin interface, and their actions.

    Args:
        audit: the audit trail of the instance.
        module: the name of the authentication module; empty if there is none.
        engine_calls: runs calls on the engine's thread.
    """

    def __init__(self, audit: Audit, module: str, engine_calls: EngineCalls) -> None:
        self._audit = audit
        self._module = module
        self._engine_calls = engine_calls

    def record_logon(self, user: str, address: str, reason: str) -> None:
        """Record a requester's first logon."""
        actor = self._actor(user, address)
        self._engine_calls.post(lambda: self._audit.report_logon(actor, reason))

    def record_logon_refusal(self, user: str, address: str, reason: str) -> None:
        """Record that a requester's credentials were not accepted."""
        actor = self._actor(user, address)
        self._engine_calls.post(lambda: self._audit.report_refused_logon(actor, reason))

    def record_refusal(self, user: str, address: str, path: str, rule: str) -> None:
        """Record that entitlement refused a requester a path, or the operation at that path."""
        actor = self._actor(user, address)
        self._engine_calls.post(lambda: self._audit.report_refusal(actor, "see", path, rule))

    def record_operation(self, user: str, address: str, path: str, details: str) -> None:
        """Record the operation that a requester has started.

        Args:
            user: the requester.
            address: the requester's address.
            path: the path of the operation.
            details: its parameters, as far as they may be shown.
        """
        actor = self._actor(user, address)
        self._engine_calls.post(lambda: self._audit.report_action(actor, path, details))

    def _actor(self, user: str, address: str) -> AuditActor:
        return AuditActor(user, address, TRANSPORT, module=self._module)
