"""Operations that take longer than a request may."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from server.admin import engine_calls
from server.admin.access import AccessControl, Requester
from server.admin.audit_events import AdminAudit
from server.admin.csrf import CsrfProtection
from server.admin.http.messages import HttpDocument, HttpRequest
from server.admin.operations.operation import (
    AdminOperation,
    OperationError,
    OperationGroup,
    OperationParameters,
)
from server.admin.operations.resource import OperationsResource
from server.security.cookies import CookieSessions
from tests.engine.support import Core


@pytest.mark.parametrize(
    ("error", "entry"),
    [
        (None, ("19-0015", {"result": "The work is done."})),
        (OperationError("There is no work."), ("19-0016", {"reason": "There is no work."})),
    ],
)
def test_a_long_operation_goes_on_and_its_result_is_logged(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, entry: tuple[str, dict[str, str]]
) -> None:
    monkeypatch.setattr(engine_calls, "TIMEOUT_S", 0.01)

    async def visit() -> None:
        can_end, core = asyncio.Event(), Core()

        async def work(_id: str, _parameters: OperationParameters) -> str:
            await can_end.wait()
            if error is not None:
                raise error
            return "The work is done."

        path = "/amps/administrator/work"
        resource = make_resource(core, AdminOperation("work", "works", work))
        request = HttpRequest("POST", f"{path}.json", {}, {})
        response = await resource.handle_request(request, Requester(""))
        assert (response.status, dict(response.headers).get("Retry-After")) == (202, None)
        assert isinstance(response.body, HttpDocument)
        text = json.loads(response.body.content)["amps"]["administrator"]["work"]
        assert "goes on; its result will be in the log" in text
        count = len(core.log.entries)
        can_end.set()
        while len(core.log.entries) == count:
            await asyncio.sleep(0)
        assert core.log.entries[count:] == [(entry[0], {"path": f"{path}.json", **entry[1]})]

    asyncio.run(visit())


def make_resource(core: Core, operation: AdminOperation) -> OperationsResource:
    """An interface without authentication, for one operation on the instance."""
    loop = asyncio.get_running_loop()

    def post(call: Callable[[], None]) -> None:
        loop.call_soon(call)

    calls = engine_calls.EngineCalls(post)
    audit = AdminAudit(core.engine.audit, "", calls)
    admin: Any = SimpleNamespace(session_options="", anonymous_paths=None)
    access = AccessControl(admin, None, None, calls, audit, core.log, CookieSessions())
    groups = [OperationGroup((), (operation,))]
    return OperationsResource(groups, access, CsrfProtection(None), calls, audit, core.log)
