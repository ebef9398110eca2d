"""/amps: the statistics of host and instance.

A path may end with the form that is wanted: .json, .xml, .csv for single values, and .rnc for the
schema. Without one it leads to a page. A document once rendered is cached until the next sample,
so that many clients cost little more than one.

Source: AMPS User Guide, Monitoring AMPS; AMPS Monitoring Guide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from server.admin.documents import html_form, json_form, over_time, rnc, xml_form
from server.admin.documents.values import text_of
from server.admin.http.events import EVENT_STREAM
from server.admin.http.messages import (
    HTML,
    JSON,
    XML,
    HttpDocument,
    HttpError,
    HttpRequest,
    HttpResponse,
)
from server.admin.live_updates import LiveUpdates
from server.admin.paths import split_path_format
from server.admin.time_range import TimeRange, read_moments
from server.admin.tree import (
    INSTANCE,
    ROOT,
    TIMESTAMP_FIELD,
    PathNotFoundError,
    SnapshotTree,
    TreeNode,
    TreeTarget,
    near,
)
from server.statistics.resources import CLIENTS
from server.statistics.timestamps import to_text

if TYPE_CHECKING:
    from server.admin.access import AccessControl, Requester
    from server.admin.history import HistoryPages
    from server.statistics.sample import StatisticsSnapshot
    from server.statistics.statistics_thread import StatisticsThread

CONFIGURATION: Final = "config.xml"
DETAILS: Final = "details"
EXPLANATION: Final = "explain"
FILTERS: Final = "filters"
QUEUES: Final = f"{INSTANCE}/queues"

_RNC: Final = "application/relax-ng-compact-syntax"

_FIRST_SECONDS: Final = 5.0
"""How long a request waits for the first sample."""

_MAX_KEPT: Final = 64
_MAX_BYTES_KEPT: Final = 64 * 1024 * 1024
"""Documents, and bytes of them, that are cached until the next sample."""


class MonitoringPages:
    """Answers requests for paths below /amps.

    Args:
        statistics: has the samples.
        history: has earlier ones.
        access: checks the visitor's entitlement.
    """

    def __init__(
        self, statistics: StatisticsThread, history: HistoryPages, access: AccessControl
    ) -> None:
        self._statistics = statistics
        self._history = history
        self._access = access
        self._live_updates: LiveUpdates | None = None
        self._document_cache: dict[tuple[str, str, frozenset[str]], HttpDocument] = {}
        self._cached_snapshot: StatisticsSnapshot | None = None

    def begin(self) -> None:
        """Start watching samples; called on the event loop."""
        self._live_updates = LiveUpdates(self._statistics)

    def close(self) -> None:
        """Stop watching; called before the event loop ends."""
        if self._live_updates is not None:
            self._live_updates.close()

    async def handle_request(self, request: HttpRequest, visitor: Requester) -> HttpResponse:
        """Answer a request.

        Raises:
            HttpError: the path does not exist, may not be seen, or the request is invalid.
        """
        moments = read_moments(request.query)
        segments = request.segments
        if split_path_format(segments) == ((ROOT,), "rnc"):
            return HttpResponse(HttpDocument(rnc.render(), _RNC))
        if moments is not None and not moments.is_moment:
            return await self._series_response(segments, moments, visitor)
        tree = (
            await self.latest_tree()
            if moments is None
            else await self._history.tree_at(moments.first)
        )
        node, form = await self._resolve_path(tree, segments, visitor)
        hidden = await self._hidden_places(visitor, node)
        if "watch" in request.query and moments is None and self._live_updates is not None:
            events = self._live_updates.watch_node(
                node, hidden | _unwatched(node, request.query["watch"], hidden)
            )
            unbuffered = ("X-Accel-Buffering", "no")  # of proxies
            return HttpResponse(events, content_type=EVENT_STREAM, headers=[unbuffered])
        return HttpResponse(self._render_cached(tree, node, form, hidden))

    async def _series_response(
        self, names: Sequence[str], moments: TimeRange, visitor: Requester
    ) -> HttpResponse:
        tree = await self.latest_tree()
        node, form = await self._resolve_path(tree, names, visitor, has_gone=True)
        await self._hidden_places(visitor, node)
        return await self._history.series_response(tree, node, form, moments)

    async def latest_tree(self) -> SnapshotTree:
        """Return the tree of the last sample, after waiting for the first one if needed.

        Raises:
            HttpError: there is none yet.
        """
        if self._statistics.latest is None and self._live_updates is not None:
            await self._live_updates.wait_for_sample(_FIRST_SECONDS)
        snapshot = self._statistics.latest
        if snapshot is None:
            text = "The first sample is being taken. Try again in a moment."
            raise HttpError(503, text, (("Retry-After", "1"),))
        return SnapshotTree(snapshot)

    async def _resolve_path(
        self,
        tree: SnapshotTree,
        names: Sequence[str],
        visitor: Requester,
        *,
        has_gone: bool = False,
    ) -> tuple[TreeTarget, str]:
        """Follow a path that may end with a form.

        Only a visitor that may see a path learns whether it exists: without entitlement to the
        possible target, the visitor is told just that, and no hidden name is suggested.

        Raises:
            HttpError: the path does not exist, or the visitor may not know whether it does.
        """
        try:
            return _find(tree, names, has_gone=has_gone)
        except PathNotFoundError as nothing:
            existing = nothing.existing
            await self._access.require_access(visitor, _resource((*existing, *nothing.missing)))
            paths = {name: _resource((*existing, name)) for name in nothing.suggestions}
            hidden = await self._access.hidden_paths(visitor, paths.values())
            close = [name for name, path in paths.items() if path not in hidden]
            raise _not_found(PathNotFoundError(existing, nothing.missing, close)) from None

    async def _hidden_places(self, visitor: Requester, node: TreeTarget) -> frozenset[str]:
        """Return the places at and below a node that the visitor may not see.

        Raises:
            HttpError: the visitor may not see the node itself.
        """
        await self._access.require_access(visitor, _resource(node.names))
        below = [] if node.id is not None or node.field is not None else _below(node.place)
        paths = {f"/{ROOT}/{place.path}": place.path for place in below}
        return frozenset(paths[path] for path in await self._access.hidden_paths(visitor, paths))

    # documents

    def _render_cached(
        self, tree: SnapshotTree, node: TreeTarget, form: str, hidden: frozenset[str]
    ) -> HttpDocument:
        if tree.snapshot is not self._statistics.latest:
            return _render(tree, node, form, hidden)
        if tree.snapshot is not self._cached_snapshot:
            self._document_cache.clear()
            self._cached_snapshot = tree.snapshot
        key = node.path, form, hidden
        document = self._document_cache.get(key)
        if document is None:
            document = _render(tree, node, form, hidden)
            size = sum(len(one.content) for one in (document, *self._document_cache.values()))
            if len(self._document_cache) < _MAX_KEPT and size <= _MAX_BYTES_KEPT:
                self._document_cache[key] = document
        return document


def _find(
    tree: SnapshotTree, names: Sequence[str], *, has_gone: bool = False
) -> tuple[TreeTarget, str]:
    """Follow a path that may end with a form; an id that looks like one with a form has priority.

    Raises:
        PathNotFoundError: it leads nowhere.
    """
    stem, form = split_path_format(names)
    if form:
        with suppress(PathNotFoundError):
            return tree.find(names), ""
    return tree.find(stem, has_gone=has_gone), form


def _resource(names: Iterable[str]) -> str:
    """Return the name of a path's resource for entitlement."""
    return "/" + "/".join(names)


def _not_found(nothing: PathNotFoundError) -> HttpError:
    there = f"What there is: {nothing.path}" if nothing.path else f"Begin with /{ROOT}"
    end = "" if nothing.suggestions else "."
    return HttpError(404, f"{nothing}{end} {there}")


def _below(place: TreeNode) -> list[TreeNode]:
    found = []
    for child in place.children.values():
        found += [child, *_below(child)]
    return found


def _render(
    tree: SnapshotTree, node: TreeTarget, form: str, hidden: frozenset[str]
) -> HttpDocument:
    """Return the document of a node.

    Raises:
        HttpError: it has none of this form.
    """
    is_shown = partial(_is_shown, hidden)
    if form == "json":
        return HttpDocument(json_form.render(tree, node, is_shown), JSON)
    if form == "xml":
        return HttpDocument(xml_form.render(tree, node, is_shown), XML)
    moment = to_text(tree.snapshot.timestamp)
    if form == "csv" and node.field is not None:
        written = over_time.FORMS["csv"]
        line = written.format_value(moment, text_of(node.field, tree.value(node)))
        return HttpDocument(line.encode(errors="replace"), written.content_type)
    if form:
        what = "for single values" if form == "csv" else "the schema of all XML, at /amps.rnc"
        raise HttpError(404, f"{node.path} has no .{form}: that is {what}. Expected .json or .xml.")
    if node.field is not None:
        return HttpDocument(html_form.leaf(text_of(node.field, tree.value(node))), HTML)
    shown = [] if node.id is not None else list(filter(is_shown, node.place.children.values()))
    return HttpDocument(html_form.node(tree, node, moment, shown, _besides(node)), HTML)


def _unwatched(node: TreeTarget, wanted: str, hidden: frozenset[str]) -> frozenset[str]:
    """Return the places below a node that are not watched, if the watcher names some of them.

    Args:
        node: the watched node.
        wanted: paths from there to places, with commas; empty for all.
        hidden: the places that the visitor may not see, and which are not suggested either.

    Raises:
        HttpError: there is no such place.
    """
    if not wanted:
        return frozenset()
    every = {place.path for place in _below(node.place)}
    watched = set()
    for name in wanted.split(","):
        path = f"{node.place.path}/{name}".strip("/")
        if node.id is not None or path not in every:
            close = [one.removeprefix(f"{node.place.path}/") for one in near(path, every - hidden)]
            meant = f"; did you mean {' or '.join(close)}?" if close else ""
            raise HttpError(400, f"There is no {name!r} to watch in {node.path}{meant}")
        watched.add(path)
    return frozenset(path for path in every if not any(_on_one_way(path, one) for one in watched))


def _on_one_way(path: str, other: str) -> bool:
    """Return whether one of two places is the other, or leads to it."""
    return f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")


def _is_shown(hidden: frozenset[str], place: TreeNode) -> bool:
    return place.path not in hidden


def _besides(node: TreeTarget) -> list[str]:
    """Return the names of resources at a node that are no part of samples."""
    if node.place.path == INSTANCE:
        return [CONFIGURATION, FILTERS, TIMESTAMP_FIELD]
    if node.id is None:
        return []
    return {QUEUES: [DETAILS], CLIENTS.path: [EXPLANATION]}.get(node.place.path, [])
