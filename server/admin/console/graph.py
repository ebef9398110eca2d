"""`/console/graph.json`: the parts of the instance, and the connections between them.

The same as `ampServer --verify-config --graph` prints: it changes only with the configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from server.admin.http.messages import JSON, HttpDocument, HttpRequest, HttpResponse

if TYPE_CHECKING:
    from server.admin.access import AccessControl, Requester

PATH: Final = ("console", "graph.json")


class GraphPage:
    """Serves the graph of the instance.

    Args:
        content: returns its nodes and edges; called from any thread.
        access: checks the requester's permissions.
    """

    def __init__(self, content: Callable[[], Mapping[str, object]], access: AccessControl) -> None:
        self._content = content
        self._access = access

    async def handle_request(self, _request: HttpRequest, requester: Requester) -> HttpResponse:
        """Return the graph.

        Raises:
            HttpError: the requester may not read this path.
        """
        await self._access.require_access(requester, "/" + "/".join(PATH).removesuffix(".json"))
        return HttpResponse(HttpDocument(msgspec.json.encode(self._content()), JSON))
