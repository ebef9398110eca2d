"""The files of the page: read once, and sent as they are.

They are below a name that stands for all their contents, `/console/<name>/js/main.js`. So a browser
may keep them for ever, modules find each other by relative paths, and a page never runs files of
two versions: one that is older than the server finds nothing any more, and says so.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from server.admin.http.messages import Document, Refusal, Request, Response

if TYPE_CHECKING:
    from server.admin.access import Access, Visitor

CONSOLE: Final = "console"
"""What all paths of the console begin with."""

STATIC: Final = Path(__file__).parent / "static"

_TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""What is sent to browsers; what else stands beside it, such as licences, is for people."""

_FOR_EVER: Final = ("Cache-Control", "private, max-age=31536000, immutable")


class Assets:
    """Answers requests for the files of the page.

    Args:
        access: says who may see them.
        policy: the Content-Security-Policy of scripts; workers are bound by their own.

    Attributes:
        base: the path that all of them are below.
    """

    def __init__(self, access: Access, policy: str) -> None:
        self._access = access
        self._policy = ("Content-Security-Policy", policy)
        files = sorted(path for path in STATIC.rglob("*") if path.suffix in _TYPES)
        self._documents = {
            path.relative_to(STATIC).parts: Document(path.read_bytes(), _TYPES[path.suffix])
            for path in files
        }
        digest = hashlib.blake2b(digest_size=8)
        for parts, document in self._documents.items():
            digest.update(f"{'/'.join(parts)}\0{len(document.content)}\0".encode())
            digest.update(document.content)
        self._version = digest.hexdigest()
        self.base: Final = f"/{CONSOLE}/{self._version}"

    async def answer(self, request: Request, visitor: Visitor) -> Response:
        """Send one.

        Raises:
            Refusal: there is none of this name, or the visitor may not see the console.
        """
        await self._access.require(visitor, f"/{CONSOLE}")
        _, *below = request.segments
        document = self._documents.get(tuple(below[1:]))
        if document is None or below[0] != self._version:
            raise Refusal(404, f"There is no {request.path}; the console is at /.")
        return Response(document, headers=[_FOR_EVER, self._policy])
