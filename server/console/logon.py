"""`/console/logon`: asks for a password, the browser's way, and leads back to the page.

The page itself asks with scripts, to which the server answers without the challenge that has
browsers put a dialog in front of everything. What stands behind `#` stays with the browser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.admin.http.messages import Document, Request, Response

if TYPE_CHECKING:
    from server.admin.access import Access, Visitor

PATH: Final = ("console", "logon")


class Logon:
    """Answers requests of whoever wants to log on.

    Args:
        access: finds out who it is.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def answer(self, request: Request, visitor: Visitor) -> Response:
        """Lead to the page whoever has logged on, also if nobody is asked for its paths.

        Raises:
            Refusal: nobody whom the authentication module admits.
        """
        cookies = []
        if visitor.is_exempt:
            cookies = self._access.cookie_of(await self._access.log_on(request), request)
        headers = [("Location", "/"), ("Cache-Control", "no-store"), *cookies]
        return Response(Document(b"", ""), 303, headers=headers)
