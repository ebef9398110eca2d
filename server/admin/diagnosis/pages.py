"""Answers requests for the explanation of a client, and for the cost of filters."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

from server.admin.diagnosis.document import of_client, of_filters
from server.admin.diagnosis.formats import FORMS, render
from server.admin.diagnosis.reasons import DiagnosisFacts
from server.admin.diagnosis.throughput import ByteCounts, byte_counts, client_rates
from server.admin.http.messages import HttpError, HttpRequest, HttpResponse, uncached_response
from server.admin.monitoring import EXPLANATION, FILTERS
from server.admin.tree import INSTANCE, ROOT
from server.statistics.resources import CLIENTS
from server.topics.subscriptions.matching.filter_costs import costliest

if TYPE_CHECKING:
    from server.admin.access import AccessControl, Requester
    from server.admin.diagnosis.collector import ClientFactsCollector
    from server.admin.diagnosis.document import DiagnosisContent
    from server.admin.diagnosis.facts import ClientFacts
    from server.admin.engine_calls import EngineCalls
    from server.admin.history import HistoryPages
    from server.admin.monitoring import MonitoringPages
    from server.statistics.statistics_thread import StatisticsThread

_CLIENTS: Final = (ROOT, *CLIENTS.path.split("/"))
_FILTERS: Final = (ROOT, INSTANCE, FILTERS)
_MAX_FILTERS: Final = 100
"""Filters that are listed one by one."""


class DiagnosisPages:
    """Explains clients and filters.

    Args:
        monitoring: answers for all other paths.
        history: the recorded samples.
        access: checks the requester's entitlement.
        engine_calls: runs `collector` on the engine's thread.
        collector: gathers facts from the engine.
        statistics: has the interval of samples.
    """

    def __init__(
        self,
        monitoring: MonitoringPages,
        history: HistoryPages,
        access: AccessControl,
        engine_calls: EngineCalls,
        collector: ClientFactsCollector,
        statistics: StatisticsThread,
    ) -> None:
        self._monitoring = monitoring
        self._history = history
        self._access = access
        self._engine_calls = engine_calls
        self._collector = collector
        self._statistics = statistics

    async def handle_client_request(
        self, request: HttpRequest, requester: Requester
    ) -> HttpResponse:
        """Explain a client; other paths below clients are the tree's.

        Raises:
            HttpError: there is no such client, or the requester may not see it.
        """
        names, form = _split_form(request.segments)
        if len(names) != len(_CLIENTS) + 2 or names[-1] != EXPLANATION:
            return await self._monitoring.handle_request(request, requester)
        await self._access.require_access(requester, "/" + "/".join(names))
        facts = await self._collect_facts(names[-2])
        diagnosis_facts = DiagnosisFacts(facts, client_rates(facts, await self._byte_counts(facts)))
        return _response(names, of_client(diagnosis_facts), form)

    async def handle_filters_request(
        self, request: HttpRequest, requester: Requester
    ) -> HttpResponse:
        """List the filters that cost most.

        Raises:
            HttpError: the requester may not see it.
        """
        names, form = _split_form(request.segments)
        path = "/" + "/".join(_FILTERS)
        if names != _FILTERS:
            raise HttpError(404, f"There is no {request.path}; expected {path}.")
        await self._access.require_access(requester, path)
        costs = await self._engine_calls.run_coroutine(self._collector.collect_filter_costs)
        return _response(names, of_filters(costs, costliest(costs, _MAX_FILTERS)), form)

    async def _collect_facts(self, identity: str) -> ClientFacts:
        """Return the engine's facts about a client.

        Raises:
            HttpError: there is none.
        """
        facts = None
        if identity.isascii() and identity.isdigit():
            requested_at = perf_counter()
            facts = await self._engine_calls.run_coroutine(
                lambda: self._collector.collect_client(int(identity), requested_at)
            )
        if facts is None:
            clients_path = "/".join(_CLIENTS)
            raise HttpError(404, f"There is no client {identity!r}; /{clients_path} has them all.")
        return facts

    async def _byte_counts(self, facts: ClientFacts) -> list[ByteCounts]:
        """Return a client's byte counts in the samples; none if these cannot be read."""
        try:
            return await self._history.query_history(
                lambda history: byte_counts(facts, self._statistics.interval_ms / 1_000, history)
            )
        except HttpError:
            return []


def _split_form(segments: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Return the path without the form, and the form.

    Raises:
        HttpError: there is no such form.
    """
    stem, _, form = segments[-1].rpartition(".")
    if stem in (EXPLANATION, FILTERS):
        if form not in FORMS:
            expected = " or ".join(f".{one}" for one in FORMS)
            raise HttpError(404, f"There is no .{form} of this; expected {expected}.")
        return (*segments[:-1], stem), form
    return segments, ""


def _response(
    names: tuple[str, ...], content: dict[str, DiagnosisContent], form: str
) -> HttpResponse:
    return uncached_response(render(names, content, form))
