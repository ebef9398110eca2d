"""The table of routes, and the properties that all answers share.

Source: AMPS User Guide, Monitoring AMPS.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from server.admin.documents.html_form import STYLE_SOURCE
from server.admin.http.messages import (
    HttpDocument,
    HttpError,
    HttpRequest,
    HttpResponse,
    text_response,
)
from server.admin.paths import FORMS

if TYPE_CHECKING:
    from config_schema.spec import AdminSpec
    from server.admin.access import AccessControl, Requester
    from server.admin.csrf import CsrfProtection

READ_METHODS: Final = ("GET", "HEAD")

_POLICY: Final = (
    f"default-src 'none'; style-src {STYLE_SOURCE}; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'self'"
)


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """Maps a path to its handler.

    Attributes:
        segments: the parts of the path.
        handler: answers requests for it; it checks the requester's entitlement by `AccessControl`.
        is_prefix: whether it is for all paths below as well, with or without a form at the end.
        methods: the methods that it accepts.
        is_public: whether pages of all sites may read it, also where no credentials are checked.
    """

    segments: tuple[str, ...]
    handler: Callable[[HttpRequest, Requester], Awaitable[HttpResponse]]
    is_prefix: bool = False
    methods: Sequence[str] = READ_METHODS
    is_public: bool = False

    def matches(self, segments: Sequence[str]) -> bool:
        """Return whether a path belongs to the route."""
        if not self.is_prefix:
            return tuple(segments) == self.segments
        head = tuple(segments[: len(self.segments)])
        return head == self.segments or (
            len(segments) == len(self.segments) and _without_form(head) == self.segments
        )


def _without_form(names: tuple[str, ...]) -> tuple[str, ...]:
    stem, _, form = names[-1].rpartition(".")
    return (*names[:-1], stem) if form in FORMS else names


class AdminSite:
    """Answers requests.

    Args:
        routes: the routes; a path belongs to the longest one that matches.
        access: authenticates requesters.
        csrf: restricts requests from other sites.
    """

    def __init__(
        self, routes: Sequence[HttpRoute], access: AccessControl, csrf: CsrfProtection
    ) -> None:
        self._routes = sorted(routes, key=lambda route: len(route.segments), reverse=True)
        self._access = access
        self._csrf = csrf

    async def handle_request(self, request: HttpRequest) -> HttpResponse:
        """Answer a request; a refusal is an answer, too."""
        is_public = False
        try:
            route = next(
                (candidate for candidate in self._routes if candidate.matches(request.segments)),
                None,
            )
            is_public = route is not None and route.is_public
            response = await self._dispatch(request, route)
        except HttpError as refusal:
            response = text_response(refusal.status, str(refusal), refusal.headers)
        self._csrf.add_cors_headers(request, response, is_public=is_public)
        return response

    async def _dispatch(self, request: HttpRequest, route: HttpRoute | None) -> HttpResponse:
        """Answer a request.

        Args:
            request: the request.
            route: the route of its path; None if there is none.

        Raises:
            HttpError: the request is refused.
        """
        if route is None or not route.is_public:
            self._csrf.refuse_foreign_reader(request)
        methods = READ_METHODS if route is None else route.methods
        allowed = ("Allow", ", ".join([*methods, "OPTIONS"]))
        if request.method == "OPTIONS":
            return HttpResponse(HttpDocument(b"", ""), 204, headers=[allowed])
        if request.method not in methods:
            raise HttpError(405, f"Expected {' or '.join(methods)}.", (allowed,))
        requester = await self._access.authenticate(request)
        if route is None:
            raise HttpError(404, f"There is no {request.path}. Paths begin with /amps.")
        response = await route.handler(request, requester)
        if not isinstance(response.body, HttpDocument):
            response.body = self._until_sessions_end(response.body)
        cookies = self._access.session_cookie_headers(requester, request)
        has_cache_control = any(name == "Cache-Control" for name, _ in response.headers)
        if cookies and not has_cache_control:
            response.headers.append(("Cache-Control", "no-store"))
        elif requester.user and not has_cache_control:
            response.headers.append(("Cache-Control", "private, no-cache"))
        response.headers += [*cookies, *requester.auth_headers]
        return response

    async def _until_sessions_end(
        self, body: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[bytes, None]:
        """Yield a stream's chunks until the requester has to log on again."""
        sessions = self._access.sessions
        end_count = sessions.end_count
        async with aclosing(body):
            async for chunk in body:
                if sessions.end_count != end_count:
                    return
                yield chunk


def headers_of(admin: AdminSpec) -> list[tuple[str, str]]:
    """Return the headers that all answers have: the configured ones, and restrictions of pages.

    A configured header replaces one of the same name.
    """
    configured = [(name.strip(), value.strip()) for name, _, value in map(_split, admin.headers)]
    configured_names = {name.lower() for name, _ in configured}
    default_headers = [
        ("Server", "Amperage"),
        ("Cache-Control", "no-cache"),
        ("Content-Security-Policy", _POLICY),
        ("Referrer-Policy", "same-origin"),
        ("X-Content-Type-Options", "nosniff"),
    ]
    return [
        *configured,
        *((name, value) for name, value in default_headers if name.lower() not in configured_names),
    ]


def _split(line: str) -> tuple[str, str, str]:
    return line.partition(":")
