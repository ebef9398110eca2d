"""Which path means what: the table of routes, and what all answers have in common.

Source: AMPS User Guide, Monitoring AMPS.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from server.admin.documents.html_form import STYLE_SOURCE
from server.admin.http.messages import Document, Refusal, Request, Response, say
from server.admin.paths import FORMS

if TYPE_CHECKING:
    from config_schema.spec import AdminSpec
    from server.admin.access import Access, Visitor
    from server.admin.cross_site import CrossSite

READING: Final = ("GET", "HEAD")

_POLICY: Final = (
    f"default-src 'none'; style-src {STYLE_SOURCE}; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'self'"
)


@dataclass(frozen=True, slots=True)
class Route:
    """What a path means.

    Attributes:
        names: the parts of the path.
        answer: answers requests for it; it asks `Access` whether the visitor may see that.
        leads_on: whether it is for all paths below as well, with or without a form at the end.
        methods: those that it has.
        is_public: whether pages of all sites may read it, also where no credentials are checked.
    """

    names: tuple[str, ...]
    answer: Callable[[Request, Visitor], Awaitable[Response]]
    leads_on: bool = False
    methods: Sequence[str] = READING
    is_public: bool = False

    def is_for(self, segments: Sequence[str]) -> bool:
        """Whether a path is its own."""
        if not self.leads_on:
            return tuple(segments) == self.names
        head = tuple(segments[: len(self.names)])
        return head == self.names or (
            len(segments) == len(self.names) and _without_form(head) == self.names
        )


def _without_form(names: tuple[str, ...]) -> tuple[str, ...]:
    stem, _, form = names[-1].rpartition(".")
    return (*names[:-1], stem) if form in FORMS else names


class Site:
    """Answers requests.

    Args:
        routes: what there is; a path belongs to the one that says most about it.
        access: says who is there.
        cross_site: says what other sites may do.
    """

    def __init__(self, routes: Sequence[Route], access: Access, cross_site: CrossSite) -> None:
        self._routes = sorted(routes, key=lambda route: len(route.names), reverse=True)
        self._access = access
        self._cross_site = cross_site

    async def answer(self, request: Request) -> Response:
        """Answer a request; what is refused is an answer, too."""
        is_public = False
        try:
            route = next((one for one in self._routes if one.is_for(request.segments)), None)
            is_public = route is not None and route.is_public
            response = await self._answer(request, route)
        except Refusal as refusal:
            response = say(refusal.status, str(refusal), refusal.headers)
        self._cross_site.grant(request, response, is_public=is_public)
        return response

    async def _answer(self, request: Request, route: Route | None) -> Response:
        """Answer a request.

        Args:
            request: the request.
            route: the route of its path; None if there is none.

        Raises:
            Refusal: it is not answered as asked for.
        """
        if route is None or not route.is_public:
            self._cross_site.refuse_reader(request)
        methods = READING if route is None else route.methods
        allowed = ("Allow", ", ".join([*methods, "OPTIONS"]))
        if request.method == "OPTIONS":
            return Response(Document(b"", ""), 204, headers=[allowed])
        if request.method not in methods:
            raise Refusal(405, f"Expected {' or '.join(methods)}.", (allowed,))
        visitor = await self._access.admit(request)
        if route is None:
            raise Refusal(404, f"There is no {request.path}. What there is begins with /amps.")
        response = await route.answer(request, visitor)
        if not isinstance(response.body, Document):
            response.body = self._until_sessions_end(response.body)
        cookies = self._access.cookie_of(visitor, request)
        has_own = any(name == "Cache-Control" for name, _ in response.headers)
        if cookies and not has_own:
            response.headers.append(("Cache-Control", "no-store"))
        elif visitor.user and not has_own:
            response.headers.append(("Cache-Control", "private, no-cache"))
        response.headers += [*cookies, *visitor.proof]
        return response

    async def _until_sessions_end(
        self, body: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[bytes, None]:
        """What comes by and by, as long as whoever gets it need not log on again."""
        sessions = self._access.sessions
        times = sessions.times_ended
        async with aclosing(body):
            async for chunk in body:
                if sessions.times_ended != times:
                    return
                yield chunk


def headers_of(admin: AdminSpec) -> list[tuple[str, str]]:
    """The headers that all answers have: those of the configuration, and what pages may do.

    One of the configuration takes the place of one of these.
    """
    configured = [(name.strip(), value.strip()) for name, _, value in map(_split, admin.headers)]
    given = {name.lower() for name, _ in configured}
    own = [
        ("Server", "Amperage"),
        ("Cache-Control", "no-cache"),
        ("Content-Security-Policy", _POLICY),
        ("Referrer-Policy", "same-origin"),
        ("X-Content-Type-Options", "nosniff"),
    ]
    return [*configured, *((name, value) for name, value in own if name.lower() not in given)]


def _split(line: str) -> tuple[str, str, str]:
    return line.partition(":")
