"""The files of the page: read once, and sent verbatim.

Their paths contain a digest of all their contents, `/console/<digest>/js/main.js`. So a browser may
cache them without a limit of time, modules import each other by relative paths, and a page never
runs files of two versions: a page older than the server gets 404 for its files, and reports that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from server.admin.http.messages import HttpDocument, HttpError, HttpRequest, HttpResponse

if TYPE_CHECKING:
    from server.admin.access import AccessControl, Requester

CONSOLE: Final = "console"
"""The first segment of all paths of the console."""
SQL_PATH: Final = (CONSOLE, "sql")
"""The path for statements of SQL."""

STATIC: Final = Path(__file__).parent / "static"

_TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""The types of files that are sent to browsers; others in `static/`, such as licences, are not."""

_CACHE_FOREVER: Final = ("Cache-Control", "private, max-age=31536000, immutable")


@cache
def read_assets() -> tuple[Mapping[tuple[str, ...], HttpDocument], str]:
    """Return the files by the segments of their paths, and the digest of all their contents."""
    files = sorted(path for path in STATIC.rglob("*") if path.suffix in _TYPES)
    documents = {
        path.relative_to(STATIC).parts: HttpDocument(path.read_bytes(), _TYPES[path.suffix])
        for path in files
    }
    digest = hashlib.blake2b(digest_size=8)
    for parts, document in documents.items():
        digest.update(f"{'/'.join(parts)}\0{len(document.content)}\0".encode())
        digest.update(document.content)
    return documents, digest.hexdigest()


class ConsoleAssets:
    """Answers requests for the files of the page.

    Args:
        access: checks the requester's permissions.
        policy: the Content-Security-Policy sent with the files; workers use that of their script.

    Attributes:
        base_path: the common prefix of their paths.
    """

    def __init__(self, access: AccessControl, policy: str) -> None:
        self._access = access
        self._policy = ("Content-Security-Policy", policy)
        self._documents, self._version = read_assets()
        self.base_path: Final = f"/{CONSOLE}/{self._version}"

    async def handle_request(self, request: HttpRequest, requester: Requester) -> HttpResponse:
        """Return one file.

        Raises:
            HttpError: no file has this path, or the requester may not read the console.
        """
        await self._access.require_access(requester, f"/{CONSOLE}")
        _, *file_path = request.segments
        document = self._documents.get(tuple(file_path[1:]))
        if document is None or file_path[0] != self._version:
            raise HttpError(404, f"There is no {request.path}; the console is at /.")
        return HttpResponse(document, headers=[_CACHE_FOREVER, self._policy])
