"""/amps: the statistics of host and instance.

A path may end with the requested form: .json, .xml, .csv for single values, and .rnc for the
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
MESSAGES: Final = "messages"
EXPLANATION: Final = "explain"
FILTERS: Final = "filters"
FINDINGS: Final = "findings"
DELAYS: Final = "delays"
QUEUES: Final = f"{INSTANCE}/queues"

_RNC: Final = "application/relax-ng-compact-syntax"

_FIRST_SAMPLE_TIMEOUT_S: Final = 5.0
"""How long a request waits for the first sample."""

_MAX_CACHED_DOCUMENTS: Final = 64
_MAX_CACHED_BYTES: Final = 64 * 1024 * 1024
"""Documents, and bytes of them, that are cached until the next sample."""


class MonitoringPages:
    """Answers requests for paths below /amps.

    Args:
        statistics: has the samples.
        history: has earlier ones.
        access: checks the requester's entitlement.
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

    async def handle_request(self, request: HttpRequest, requester: Requester) -> HttpResponse:
        """Answer a request.

        Raises:
            HttpError: the path does not exist, may not be seen, or the request is invalid.
        """
        time_range = read_moments(request.query)
        segments = request.segments
        if split_path_format(segments) == ((ROOT,), "rnc"):
            return HttpResponse(HttpDocument(rnc.render(), _RNC))
        if time_range is not None and not time_range.is_moment:
            return await self._series_response(segments, time_range, requester)
        tree = (
            await self.latest_tree()
            if time_range is None
            else await self._history.tree_at(time_range.first)
        )
        target, form = await self._resolve_path(tree, segments, requester)
        hidden = await self._hidden_nodes(requester, target)
        if "watch" in request.query and time_range is None and self._live_updates is not None:
            events = self._live_updates.watch_node(
                target, hidden | _unwatched(target, request.query["watch"], hidden)
            )
            unbuffered = ("X-Accel-Buffering", "no")  # of proxies
            return HttpResponse(events, content_type=EVENT_STREAM, headers=[unbuffered])
        return HttpResponse(self._render_cached(tree, target, form, hidden))

    async def _series_response(
        self, names: Sequence[str], time_range: TimeRange, requester: Requester
    ) -> HttpResponse:
        tree = await self.latest_tree()
        target, form = await self._resolve_path(tree, names, requester, has_gone=True)
        await self._hidden_nodes(requester, target)
        return await self._history.series_response(tree, target, form, time_range)

    async def latest_tree(self) -> SnapshotTree:
        """Return the tree of the last sample, after waiting for the first one if needed.

        Raises:
            HttpError: there is none yet.
        """
        if self._statistics.latest is None and self._live_updates is not None:
            await self._live_updates.wait_for_sample(_FIRST_SAMPLE_TIMEOUT_S)
        snapshot = self._statistics.latest
        if snapshot is None:
            text = "The first sample is being taken. Retry later."
            raise HttpError(503, text, (("Retry-After", "1"),))
        return SnapshotTree(snapshot)

    async def _resolve_path(
        self,
        tree: SnapshotTree,
        names: Sequence[str],
        requester: Requester,
        *,
        has_gone: bool = False,
    ) -> tuple[TreeTarget, str]:
        """Follow a path that may end with a form.

        Only a requester that may see a path learns whether it exists: without entitlement to the
        possible target, the refusal says just that, and no hidden name is suggested.

        Raises:
            HttpError: the path does not exist, or the requester may not know whether it does.
        """
        try:
            return _find(tree, names, has_gone=has_gone)
        except PathNotFoundError as error:
            existing = error.existing
            await self._access.require_access(requester, _resource((*existing, *error.missing)))
            paths = {name: _resource((*existing, name)) for name in error.suggestions}
            hidden = await self._access.hidden_paths(requester, paths.values())
            visible = [name for name, path in paths.items() if path not in hidden]
            raise _not_found(PathNotFoundError(existing, error.missing, visible)) from None

    async def _hidden_nodes(self, requester: Requester, target: TreeTarget) -> frozenset[str]:
        """Return the nodes at and below a target that the requester may not see.

        Raises:
            HttpError: the requester may not see the target itself.
        """
        await self._access.require_access(requester, _resource(target.names))
        nodes = (
            [] if target.id is not None or target.field is not None else _descendants(target.node)
        )
        paths = {f"/{ROOT}/{node.path}": node.path for node in nodes}
        return frozenset(paths[path] for path in await self._access.hidden_paths(requester, paths))

    # documents

    def _render_cached(
        self, tree: SnapshotTree, target: TreeTarget, form: str, hidden: frozenset[str]
    ) -> HttpDocument:
        if tree.snapshot is not self._statistics.latest:
            return _render(tree, target, form, hidden)
        if tree.snapshot is not self._cached_snapshot:
            self._document_cache.clear()
            self._cached_snapshot = tree.snapshot
        key = target.path, form, hidden
        document = self._document_cache.get(key)
        if document is None:
            document = _render(tree, target, form, hidden)
            size = sum(len(one.content) for one in (document, *self._document_cache.values()))
            if len(self._document_cache) < _MAX_CACHED_DOCUMENTS and size <= _MAX_CACHED_BYTES:
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


def _not_found(error: PathNotFoundError) -> HttpError:
    hint = f"Existing resources: {error.path}" if error.path else f"Begin with /{ROOT}"
    end = "" if error.suggestions else "."
    return HttpError(404, f"{error}{end} {hint}")


def _descendants(node: TreeNode) -> list[TreeNode]:
    descendants = []
    for child in node.children.values():
        descendants += [child, *_descendants(child)]
    return descendants


def _render(
    tree: SnapshotTree, target: TreeTarget, form: str, hidden: frozenset[str]
) -> HttpDocument:
    """Return the document of a target.

    Raises:
        HttpError: it has none of this form.
    """
    is_shown = partial(_is_shown, hidden)
    if form == "json":
        return HttpDocument(json_form.render(tree, target, is_shown), JSON)
    if form == "xml":
        return HttpDocument(xml_form.render(tree, target, is_shown), XML)
    timestamp = to_text(tree.snapshot.timestamp)
    if form == "csv" and target.field is not None:
        csv_format = over_time.FORMS["csv"]
        line = csv_format.format_value(timestamp, text_of(target.field, tree.value(target)))
        return HttpDocument(line.encode(errors="replace"), csv_format.content_type)
    if form:
        explanation = (
            "for single values" if form == "csv" else "the schema of all XML, at /amps.rnc"
        )
        raise HttpError(
            404, f"{target.path} has no .{form}: that is {explanation}. Expected .json or .xml."
        )
    if target.field is not None:
        return HttpDocument(html_form.leaf(text_of(target.field, tree.value(target))), HTML)
    children = (
        [] if target.id is not None else list(filter(is_shown, target.node.children.values()))
    )
    return HttpDocument(
        html_form.node_page(tree, target, timestamp, children, _extra_names(target)), HTML
    )


def _unwatched(target: TreeTarget, watched_names: str, hidden: frozenset[str]) -> frozenset[str]:
    """Return the nodes below a target that are not watched, if the watcher names some of them.

    Args:
        target: the watched node.
        watched_names: paths from there to nodes, with commas; empty for all.
        hidden: the nodes that the requester may not see, and which are not suggested either.

    Raises:
        HttpError: there is no such node.
    """
    if not watched_names:
        return frozenset()
    all_paths = {node.path for node in _descendants(target.node)}
    watched_paths = set()
    for name in watched_names.split(","):
        path = f"{target.node.path}/{name}".strip("/")
        if target.id is not None or path not in all_paths:
            similar = [
                other.removeprefix(f"{target.node.path}/")
                for other in near(path, all_paths - hidden)
            ]
            suggestion = f"; did you mean {' or '.join(similar)}?" if similar else ""
            raise HttpError(400, f"There is no {name!r} to watch in {target.path}{suggestion}")
        watched_paths.add(path)
    return frozenset(
        path
        for path in all_paths
        if not any(_are_on_one_path(path, other) for other in watched_paths)
    )


def _are_on_one_path(path: str, other: str) -> bool:
    """Return whether one of two nodes is the other, or leads to it."""
    return f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")


def _is_shown(hidden: frozenset[str], node: TreeNode) -> bool:
    return node.path not in hidden


def _extra_names(target: TreeTarget) -> list[str]:
    """Return the names of resources at a target that are no part of samples."""
    if target.node.path == INSTANCE:
        return [CONFIGURATION, FILTERS, FINDINGS, TIMESTAMP_FIELD]
    if target.id is None:
        return []
    return {QUEUES: [DETAILS, MESSAGES], CLIENTS.path: [EXPLANATION]}.get(target.node.path, [])
