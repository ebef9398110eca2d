"""Handlers of /metrics and /metrics/detailed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from server.admin.http.messages import HttpDocument, HttpError, HttpRequest, HttpResponse
from server.admin.metrics.durations import histograms
from server.admin.metrics.exposition import (
    ExpositionFormat,
    MetricFamily,
    counter,
    form_for,
    gauge,
    render,
)
from server.admin.metrics.families import SeriesLimit
from server.admin.metrics.process import process
from server.admin.metrics.summaries import summaries
from server.admin.metrics.table import DETAILED, GROUPS

if TYPE_CHECKING:
    from server.admin.access import AccessControl, Requester
    from server.admin.monitoring import MonitoringPages
    from server.engine.span_queue import SpanQueue
    from server.statistics.histograms import Distribution
    from server.statistics.sample import StatisticsSnapshot

PATH: Final = "metrics"
DETAILED_PATH: Final = "detailed"

MAX_DETAILED_ENTRIES: Final = 10_000
"""Maximum number of entries in a document of details."""


def families_of(
    snapshot: StatisticsSnapshot,
    distributions: Sequence[Distribution],
    spans: SpanQueue | None = None,
) -> list[MetricFamily]:
    """Return all families of /metrics."""
    series_limit = SeriesLimit()
    families = series_limit.families(snapshot, GROUPS)
    return [
        *summaries(snapshot),
        *families,
        *histograms(distributions),
        *process(snapshot),
        *([] if spans is None else _span_counts(spans)),
        gauge(
            "amperage_series_left_out",
            "Series of topics, queues and the like that are summed up as `other`.",
            [("", series_limit.omitted_series)],
        ),
    ]


def _span_counts(spans: SpanQueue) -> list[MetricFamily]:
    description = "Spans of sampled messages that"
    return [
        counter(
            "amperage_spans_exported",
            f"{description} the collector of OpenTelemetry has accepted.",
            [("", spans.exported)],
        ),
        counter(
            "amperage_spans_dropped",
            f"{description} were not exported: the queue was full, or the collector has failed.",
            [("", spans.dropped)],
        ),
    ]


def details_of(snapshot: StatisticsSnapshot, name: str) -> list[MetricFamily]:
    """Return the families of a group at /metrics/detailed."""
    series_limit = SeriesLimit(MAX_DETAILED_ENTRIES, sums_rest=False)
    families = series_limit.families(snapshot, DETAILED[name])
    description = "Series that there would be, were there no bound."
    return [
        *families,
        gauge(
            "amperage_detailed_series_left_out", description, [("", series_limit.omitted_series)]
        ),
    ]


class MetricsPage:
    """Answers requests. A document is rendered once per sample, for any number of requests.

    Args:
        monitoring: has the samples.
        access: checks the requester's entitlement.
        distributions: of durations and sizes; read from any thread.
        spans: counts the spans of sampled messages; None if none are made.
    """

    def __init__(
        self,
        monitoring: MonitoringPages,
        access: AccessControl,
        distributions: Sequence[Distribution],
        spans: SpanQueue | None,
    ) -> None:
        self._monitoring = monitoring
        self._access = access
        self._distributions = distributions
        self._spans = spans
        self._document_cache: dict[tuple[str, ExpositionFormat], HttpDocument] = {}
        self._cached_snapshot: StatisticsSnapshot | None = None

    async def handle_request(self, request: HttpRequest, requester: Requester) -> HttpResponse:
        """Return all metrics.

        Raises:
            HttpError: the requester may not see them, or there is no sample yet.
        """
        await self._access.require_access(requester, f"/{PATH}")
        return await self._respond(request, "")

    async def handle_detail_request(
        self, request: HttpRequest, requester: Requester
    ) -> HttpResponse:
        """Return the metrics of each entry of a group.

        Raises:
            HttpError: the requester may not see them, or the request names no group.
        """
        await self._access.require_access(requester, f"/{PATH}/{DETAILED_PATH}")
        name = request.query.get("family", "")
        if name not in DETAILED:
            family_names = ", ".join(DETAILED)
            raise HttpError(
                400, f"There is no family {name!r}: expected ?family= one of {family_names}."
            )
        return await self._respond(request, name)

    async def _respond(self, request: HttpRequest, name: str) -> HttpResponse:
        snapshot = (await self._monitoring.latest_tree()).snapshot
        if snapshot is not self._cached_snapshot:
            self._document_cache.clear()
            self._cached_snapshot = snapshot
        form = form_for(request.headers.get("accept", ""))
        document = self._document_cache.get((name, form))
        if document is None:
            families = (
                details_of(snapshot, name)
                if name
                else families_of(snapshot, self._distributions, self._spans)
            )
            document = HttpDocument(render(families, form), form.value)
            self._document_cache[name, form] = document
        return HttpResponse(document, headers=[("Vary", "Accept")])
