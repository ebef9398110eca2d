"""Answers requests for the explanation of a client, and for the cost of filters."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

from server.admin.diagnosis.document import of_client, of_filters
from server.admin.diagnosis.formats import FORMS, render
from server.admin.diagnosis.reasons import Known
from server.admin.diagnosis.throughput import Mark, marks, pace
from server.admin.http.messages import Refusal, Request, Response
from server.admin.monitoring import EXPLANATION, FILTERS
from server.admin.tree import INSTANCE, ROOT
from server.statistics.resources import CLIENTS
from server.topics.subscriptions.matching.filter_costs import costliest

if TYPE_CHECKING:
    from server.admin.access import Access, Visitor
    from server.admin.diagnosis.collector import Gathering
    from server.admin.diagnosis.document import Content
    from server.admin.diagnosis.facts import ClientFacts
    from server.admin.engine_calls import EngineSide
    from server.admin.history import Past
    from server.admin.monitoring import Monitoring

_CLIENTS: Final = (ROOT, *CLIENTS.path.split("/"))
_FILTERS: Final = (ROOT, INSTANCE, FILTERS)
_MOST_FILTERS: Final = 100
"""Filters that are listed one by one."""


class Explaining:
    """Explains clients and filters.

    Args:
        monitoring: answers for all other paths.
        past: the recorded samples.
        access: checks the visitor's entitlement.
        engine_side: runs `gathering` on the engine's thread.
        gathering: gathers facts from the engine.
        interval: seconds between two samples.
    """

    def __init__(
        self,
        monitoring: Monitoring,
        past: Past,
        access: Access,
        engine_side: EngineSide,
        gathering: Gathering,
        interval: float,
    ) -> None:
        self._monitoring = monitoring
        self._past = past
        self._access = access
        self._engine_side = engine_side
        self._gathering = gathering
        self._interval = interval

    async def client(self, request: Request, visitor: Visitor) -> Response:
        """Explain a client; other paths below clients are the tree's.

        Raises:
            Refusal: there is no such client, or the visitor may not see it.
        """
        names, form = _taken_apart(request.segments)
        if len(names) != len(_CLIENTS) + 2 or names[-1] != EXPLANATION:
            return await self._monitoring.answer(request, visitor)
        await self._access.require(visitor, "/" + "/".join(names))
        facts = await self._facts(names[-2])
        known = Known(facts, pace(facts, await self._marks(facts)))
        return _shown(names, of_client(known), form)

    async def filters(self, request: Request, visitor: Visitor) -> Response:
        """List the filters that cost most.

        Raises:
            Refusal: the visitor may not see it.
        """
        names, form = _taken_apart(request.segments)
        path = "/" + "/".join(_FILTERS)
        if names != _FILTERS:
            raise Refusal(404, f"There is no {request.path}; expected {path}.")
        await self._access.require(visitor, path)
        costs = await self._engine_side.perform(self._gathering.filters)
        return _shown(names, of_filters(costs, costliest(costs, _MOST_FILTERS)), form)

    async def _facts(self, identity: str) -> ClientFacts:
        """Return the engine's facts about a client.

        Raises:
            Refusal: there is none.
        """
        facts = None
        if identity.isascii() and identity.isdigit():
            asked_at = perf_counter()
            facts = await self._engine_side.perform(
                lambda: self._gathering.client(int(identity), asked_at)
            )
        if facts is None:
            every = "/".join(_CLIENTS)
            raise Refusal(404, f"There is no client {identity!r}; /{every} has them all.")
        return facts

    async def _marks(self, facts: ClientFacts) -> list[Mark]:
        """Return a client's byte counts in the samples; none if these cannot be read."""
        try:
            return await self._past.ask(lambda found: marks(facts, self._interval, found))
        except Refusal:
            return []


def _taken_apart(segments: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Return the path without the form, and the form.

    Raises:
        Refusal: there is no such form.
    """
    stem, _, form = segments[-1].rpartition(".")
    if stem in (EXPLANATION, FILTERS):
        if form not in FORMS:
            expected = " or ".join(f".{one}" for one in FORMS)
            raise Refusal(404, f"There is no .{form} of this; expected {expected}.")
        return (*segments[:-1], stem), form
    return segments, ""


def _shown(names: tuple[str, ...], content: dict[str, Content], form: str) -> Response:
    return Response(render(names, content, form), headers=[("Cache-Control", "no-store")])
