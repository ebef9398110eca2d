"""`/console/logon`: requests a password with the browser's dialog, and redirects to the page.

The page itself sends its requests from scripts, which the server answers without a challenge:
a challenge makes browsers open a modal dialog. The browser keeps the fragment behind `#`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.admin.http.messages import HttpDocument, HttpRequest, HttpResponse

if TYPE_CHECKING:
    from server.admin.access import AccessControl, Requester

PATH: Final = ("console", "logon")


class LogonPage:
    """Answers requests to log on.

    Args:
        access: authenticates the requester.
    """

    def __init__(self, access: AccessControl) -> None:
        self._access = access

    async def handle_request(self, request: HttpRequest, requester: Requester) -> HttpResponse:
        """Authenticate the requester, also if the paths of the page do not need it, and redirect.

        Raises:
            HttpError: the authentication module does not admit the requester.
        """
        cookies = []
        if requester.is_exempt:
            cookies = self._access.session_cookie_headers(
                await self._access.log_on(request), request
            )
        headers = [("Location", "/"), ("Cache-Control", "no-store"), *cookies]
        return HttpResponse(HttpDocument(b"", ""), 303, headers=headers)
