"""`/console/actions.json`: the actions, each with its last run, the result, and its next run.

Timestamps are seconds since 1970, durations are seconds, and unknown values are null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from server.admin.http.messages import JSON, HttpDocument, HttpRequest, HttpResponse

if TYPE_CHECKING:
    from actions.runner import ActionState
    from server.admin.access import AccessControl, Requester
    from server.admin.engine_calls import EngineCalls

PATH: Final = ("console", "actions.json")


class ActionStatesPage:
    """Serves the states of the actions.

    Args:
        list_states: returns the states; called on the engine's thread.
        access: checks the requester's permissions.
        engine_calls: calls `list_states` on the engine's thread.
    """

    def __init__(
        self,
        list_states: Callable[[], Sequence[ActionState]],
        access: AccessControl,
        engine_calls: EngineCalls,
    ) -> None:
        self._list_states = list_states
        self._access = access
        self._engine_calls = engine_calls

    async def handle_request(self, _request: HttpRequest, requester: Requester) -> HttpResponse:
        """Return the states.

        Raises:
            HttpError: the requester may not read this path.
        """
        await self._access.require_access(requester, "/" + "/".join(PATH).removesuffix(".json"))
        states = await self._engine_calls.call(self._list_states)
        content = msgspec.json.encode({"actions": states})
        return HttpResponse(HttpDocument(content, JSON), headers=[("Cache-Control", "no-store")])
