"""`/console/graph.json`: the parts of the instance, and the connections between them.

The same as `ampServer --verify-config --graph` prints: it changes only with the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from server.admin.http.messages import JSON, Document, Request, Response

if TYPE_CHECKING:
    from server.admin.access import Access, Visitor

PATH: Final = ("console", "graph.json")


class Graph:
    """Serves the graph of the instance.

    Args:
        content: its nodes and edges.
        access: checks the visitor's permissions.
    """

    def __init__(self, content: Mapping[str, object], access: Access) -> None:
        self._document = Document(msgspec.json.encode(content), JSON)
        self._access = access

    async def answer(self, _request: Request, visitor: Visitor) -> Response:
        """Return the graph.

        Raises:
            Refusal: the visitor may not read this path.
        """
        await self._access.require(visitor, "/" + "/".join(PATH).removesuffix(".json"))
        return Response(self._document)
