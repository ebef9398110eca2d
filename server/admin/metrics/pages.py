"""Handlers of /metrics and /metrics/detailed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from server.admin.http.messages import Document, Refusal, Request, Response
from server.admin.metrics.durations import histograms
from server.admin.metrics.exposition import Family, Form, form_for, gauge, render
from server.admin.metrics.families import Bound
from server.admin.metrics.process import process
from server.admin.metrics.summaries import summaries
from server.admin.metrics.table import DETAILED, GROUPS

if TYPE_CHECKING:
    from server.admin.access import Access, Visitor
    from server.admin.monitoring import Monitoring
    from server.statistics.histograms import Distribution
    from server.statistics.sample import Snapshot

PATH: Final = "metrics"
DETAILED_PATH: Final = "detailed"

MOST_DETAILED: Final = 10_000
"""Maximum number of entries in a document of details."""


def families_of(snapshot: Snapshot, distributions: Sequence[Distribution]) -> list[Family]:
    """Return all families of /metrics."""
    bound = Bound()
    found = bound.families(snapshot, GROUPS)
    return [
        *summaries(snapshot),
        *found,
        *histograms(distributions),
        *process(snapshot),
        gauge(
            "amperage_series_left_out",
            "Series of topics, queues and the like that are summed up as `other`.",
            [("", bound.left_out)],
        ),
    ]


def details_of(snapshot: Snapshot, name: str) -> list[Family]:
    """Return the families of a group at /metrics/detailed."""
    bound = Bound(MOST_DETAILED, has_rest=False)
    found = bound.families(snapshot, DETAILED[name])
    about = "Series that there would be, were there no bound."
    return [*found, gauge("amperage_detailed_series_left_out", about, [("", bound.left_out)])]


class Metrics:
    """Answers requests. A document is rendered once per sample, however often it is requested.

    Args:
        monitoring: has the samples.
        access: checks the visitor's entitlement.
        distributions: of durations and sizes; read from any thread.
    """

    def __init__(
        self, monitoring: Monitoring, access: Access, distributions: Sequence[Distribution]
    ) -> None:
        self._monitoring = monitoring
        self._access = access
        self._distributions = distributions
        self._kept: dict[tuple[str, Form], Document] = {}
        self._kept_of: Snapshot | None = None

    async def answer(self, request: Request, visitor: Visitor) -> Response:
        """Return all metrics.

        Raises:
            Refusal: the visitor may not see them, or there is no sample yet.
        """
        await self._access.require(visitor, f"/{PATH}")
        return await self._show(request, "")

    async def detailed(self, request: Request, visitor: Visitor) -> Response:
        """Return the metrics of each entry of a group.

        Raises:
            Refusal: the visitor may not see them, or the request names no group.
        """
        await self._access.require(visitor, f"/{PATH}/{DETAILED_PATH}")
        name = request.query.get("family", "")
        if name not in DETAILED:
            known = ", ".join(DETAILED)
            raise Refusal(400, f"There is no family {name!r}: expected ?family= one of {known}.")
        return await self._show(request, name)

    async def _show(self, request: Request, name: str) -> Response:
        snapshot = (await self._monitoring.latest()).snapshot
        if snapshot is not self._kept_of:
            self._kept.clear()
            self._kept_of = snapshot
        form = form_for(request.headers.get("accept", ""))
        document = self._kept.get((name, form))
        if document is None:
            families = (
                details_of(snapshot, name) if name else families_of(snapshot, self._distributions)
            )
            document = Document(render(families, form), form.value)
            self._kept[name, form] = document
        return Response(document, headers=[("Vary", "Accept")])
