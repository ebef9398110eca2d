"""What visitors of the admin interface may see is kept while they are there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from server.admin.access import AccessControl, Requester
from server.admin.audit_events import AdminAudit
from server.admin.engine_calls import EngineCalls
from server.admin.http.messages import HttpError
from server.admin.permissions import AdminPermissionCache
from server.security.cookies import CookieSessions
from server.security.permissions import ALL_PERMISSIONS, UNKNOWN_USER_PERMIT, Permission, Permit
from tests.engine.support import Core


class Counted:
    """A module that counts who is there."""

    def __init__(self, answer: Permit = ALL_PERMISSIONS.decision) -> None:
        self.answer = answer
        self.entered = 0
        self.left = asyncio.Event()

    def acquire_permissions(self, user: str) -> Counted:
        self.entered += 1
        return self

    def forget(self, user: str | None = None) -> None:
        """There is nothing to forget."""

    def get_permit(self, permission: Permission, resource: str) -> Permit:
        return self.answer

    def allows_instance(self, name: str) -> bool | None:
        return None

    def release(self) -> None:
        self.left.set()


def test_who_has_not_been_there_for_a_while_has_gone() -> None:
    async def visit() -> None:
        module = Counted()
        permissions = AdminPermissionCache(module, idle_timeout_s=0.05)
        permissions.find("ann")
        permissions.find("ann")
        assert module.entered == 1
        await asyncio.wait_for(module.left.wait(), 60)
        permissions.find("ann")
        assert module.entered == 2

    asyncio.run(visit())


def test_who_is_there_stays() -> None:
    async def visit() -> None:
        module = Counted()
        permissions = AdminPermissionCache(module, idle_timeout_s=3600)
        permissions.find("ann")
        permissions.find("ann")
        assert (module.entered, module.left.is_set()) == (1, False)
        permissions.forget("ann")
        assert module.left.is_set()

    asyncio.run(visit())


def test_strangers_are_asked_about_again() -> None:
    async def visit() -> None:
        module = Counted(UNKNOWN_USER_PERMIT)
        permissions = AdminPermissionCache(module, idle_timeout_s=3600)
        permissions.find("ann")
        permissions.find("ann")
        assert module.entered == 2

    asyncio.run(visit())


@pytest.mark.parametrize(
    ("answer", "challenge", "status"),
    [
        (UNKNOWN_USER_PERMIT, 'Basic realm="x"', 401),  # they have shown a cookie
        (UNKNOWN_USER_PERMIT, "", 403),  # they have just logged on
        (Permit(False), 'Basic realm="x"', 403),
    ],
)
def test_whom_nothing_is_known_of_is_asked_to_log_on(
    answer: Permit, challenge: str, status: int
) -> None:
    async def visit() -> None:
        loop = asyncio.get_running_loop()
        admin: Any = SimpleNamespace(session_options="", anonymous_paths=None)

        def post(call: Callable[[], None]) -> None:
            loop.call_soon(call)

        permissions = AdminPermissionCache(Counted(answer))
        core, engine_calls = Core(), EngineCalls(post)
        trail = AdminAudit(core.engine.audit, "counted", engine_calls)
        access = AccessControl(
            admin, None, permissions, engine_calls, trail, core.log, CookieSessions()
        )
        with pytest.raises(HttpError) as refused:
            await access.require_access(Requester("ann", challenge=challenge), "/amps")
        assert refused.value.status == status
        assert bool(refused.value.headers) == (status == 401)

    asyncio.run(visit())
