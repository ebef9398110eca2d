"""Streams to watchers: the node first, then, with every sample, the changes.

    event: node     the document
    event: change   {"timestamp": ..., "changed": {path: value, ...}, "gone": [path, ...]}
    event: gone     the watched node does not exist any more; nothing follows

A watcher that reads slowly gets the changes since its last event, so that nothing piles up. The
event for all watchers of a node is computed once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from server.admin.documents import json_form
from server.admin.documents.values import text_of
from server.admin.http.events import KEEPALIVE_COMMENT, event
from server.admin.http.messages import HttpError
from server.admin.tree import SnapshotTree, TreeNode, TreeTarget, link
from server.statistics.schema import Resource, StatisticValue
from server.statistics.timestamps import to_text

if TYPE_CHECKING:
    from server.statistics.sample import StatisticsSnapshot
    from server.statistics.statistics_thread import StatisticsThread

MAX_WATCHERS: Final = 100

_BEAT_SECONDS: Final = 15.0
"""How often a watcher is sent something, to detect that it has gone."""


class LiveUpdates:
    """Sends changes to watchers. Created on the event loop that it is used on.

    Args:
        statistics: notifies of samples.
    """

    def __init__(self, statistics: StatisticsThread) -> None:
        self._loop = asyncio.get_running_loop()
        self._sample_future: asyncio.Future[None] = self._loop.create_future()
        self._latest_snapshot: StatisticsSnapshot | None = statistics.latest
        self._watcher_count = 0
        self._change_events: dict[tuple[int, int, str, frozenset[str]], bytes] = {}
        self._unwatch = statistics.add_watcher(self._on_sample)

    def close(self) -> None:
        """Stop watching samples."""
        self._unwatch()
        self._sample_future.cancel()

    def watch_node(self, node: TreeTarget, hidden: frozenset[str]) -> AsyncGenerator[bytes, None]:
        """Return the stream of events for a watcher, from now on.

        Args:
            node: the node to watch.
            hidden: the places that the watcher may not see.

        Raises:
            HttpError: there are too many watchers already.
        """
        if self._watcher_count >= MAX_WATCHERS:
            raise HttpError(503, f"{MAX_WATCHERS} watch already: that is as many as may.")
        return self._event_stream(node, hidden)

    def _on_sample(self, snapshot: StatisticsSnapshot) -> None:
        """Pass on a new sample to the event loop; called on the thread of statistics."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._publish_sample, snapshot)

    def _publish_sample(self, snapshot: StatisticsSnapshot) -> None:
        self._latest_snapshot = snapshot
        self._change_events.clear()
        sample_future, self._sample_future = self._sample_future, self._loop.create_future()
        if not sample_future.done():
            sample_future.set_result(None)

    async def _event_stream(
        self, node: TreeTarget, hidden: frozenset[str]
    ) -> AsyncGenerator[bytes, None]:
        def is_shown(place: TreeNode) -> bool:
            return place.path not in hidden

        self._watcher_count += 1
        try:
            while self._latest_snapshot is None:
                yield await self._wait_for_event()
            tree = SnapshotTree(self._latest_snapshot)
            moment = to_text(tree.snapshot.timestamp)
            yield event("node", json_form.render(tree, node, is_shown).decode(), moment)
            while tree.contains(node):
                if self._latest_snapshot is tree.snapshot:
                    yield await self._wait_for_event()
                    continue
                before, tree = tree, SnapshotTree(self._latest_snapshot)
                yield self._change_event(before, tree, node, hidden, is_shown)
            yield event("gone", "{}")
        finally:
            self._watcher_count -= 1

    async def _wait_for_event(self) -> bytes:
        """Wait for a sample or the heartbeat interval; return the bytes to send."""
        return b"" if await self.wait_for_sample(_BEAT_SECONDS) else KEEPALIVE_COMMENT

    async def wait_for_sample(self, seconds: float) -> bool:
        """Wait for a sample, and return whether one has come in time."""
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._sample_future), seconds)
            return True
        return False

    def _change_event(
        self,
        before: SnapshotTree,
        after: SnapshotTree,
        node: TreeTarget,
        hidden: frozenset[str],
        is_shown: Callable[[TreeNode], bool],
    ) -> bytes:
        key = before.snapshot.timestamp, after.snapshot.timestamp, node.path, hidden
        told = self._change_events.get(key)
        if told is None:
            moment = to_text(after.snapshot.timestamp)
            found = {
                "timestamp": moment,
                "changed": dict(_changed(before, after, node, is_shown)),
                "gone": list(_gone(before, after, node, is_shown)),
            }
            told = event("change", msgspec.json.encode(found).decode(), moment)
            self._change_events[key] = told
        return told


def _places(
    place: TreeNode, is_shown: Callable[[TreeNode], bool]
) -> Iterator[tuple[TreeNode, Resource]]:
    if place.resource is not None:
        yield place, place.resource
    for below in place.children.values():
        if is_shown(below):
            yield from _places(below, is_shown)


def _changed(
    before: SnapshotTree,
    after: SnapshotTree,
    node: TreeTarget,
    is_shown: Callable[[TreeNode], bool],
) -> Iterator[tuple[str, str]]:
    """Yield the paths of changed values below a node, with the new values."""
    if node.id is not None or node.field is not None:
        values, earlier = after.values(node), before.values(node)
        if values is not None and node.place.resource is not None:
            wanted = None if node.field is None else node.field.name
            yield from _differing(node.place.resource, node.id, earlier, values, wanted)
        return
    for place, resource in _places(node.place, is_shown):
        known = before.entries(place)
        for identity, values in after.entries(place).items():
            earlier = known.get(identity)
            if earlier != values:
                shown = identity if place.has_entries else None
                yield from _differing(resource, shown, earlier, values)


def _differing(
    resource: Resource,
    identity: str | None,
    earlier: tuple[StatisticValue, ...] | None,
    values: tuple[StatisticValue, ...],
    wanted: str | None = None,
) -> Iterator[tuple[str, str]]:
    path = link(["amps", *resource.path.split("/"), *([] if identity is None else [identity])])
    for index, field in enumerate(resource.fields):
        if wanted in (None, field.name) and (earlier is None or earlier[index] != values[index]):
            yield f"{path}/{field.name}", text_of(field, values[index])


def _gone(
    before: SnapshotTree,
    after: SnapshotTree,
    node: TreeTarget,
    is_shown: Callable[[TreeNode], bool],
) -> Iterator[str]:
    """Yield the paths below a node that are gone."""
    if node.id is not None or node.field is not None:
        return
    for place, _ in _places(node.place, is_shown):
        if place.has_entries:
            there = after.entries(place)
            for identity in before.entries(place):
                if identity not in there:
                    yield TreeTarget(place, identity).path
