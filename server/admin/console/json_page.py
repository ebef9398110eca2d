"""Documents of the console in JSON that are made anew for each request.

`/console/actions.json` has the actions, each with its last run, the result, and its next run.
Timestamps are seconds since 1970, durations are seconds, and unknown values are null.

`/console/graph.json` has the parts of the instance, and the connections between them. It is the
same as `ampServer --verify-config --graph` prints, and changes only with the configuration.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from server.admin.console.assets import CONSOLE
from server.admin.http.messages import HttpRequest, HttpResponse, json_response

if TYPE_CHECKING:
    from server.admin.access import AccessControl, Requester


class JsonPage:
    """Serves one document.

    Args:
        name: its name below `/console`, without the form.
        read: returns the content.
        access: checks the requester's permissions.
    """

    def __init__(
        self, name: str, read: Callable[[], Awaitable[object]], access: AccessControl
    ) -> None:
        self._path = f"/{CONSOLE}/{name}"
        self._read = read
        self._access = access

    async def handle_request(self, _request: HttpRequest, requester: Requester) -> HttpResponse:
        """Return the document.

        Raises:
            HttpError: the requester may not read this path.
        """
        await self._access.require_access(requester, self._path)
        return json_response(await self._read())
