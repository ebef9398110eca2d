"""Streams to watchers: the watched part of the tree first, then, with every sample, the changes.

    event: node     the document
    event: change   {"timestamp": ..., "changed": {path: value, ...}, "gone": [path, ...]}
    event: gone     the watched node does not exist any more; nothing follows

A watcher that reads slowly gets the changes since its last event, so that nothing piles up. The
event for all watchers of a target is computed once.
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

_KEEPALIVE_SECONDS: Final = 15.0
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

    def watch_node(self, target: TreeTarget, hidden: frozenset[str]) -> AsyncGenerator[bytes, None]:
        """Return the stream of events for a watcher, from now on.

        Args:
            target: the part of the tree to watch.
            hidden: the paths of nodes that the watcher may not see.

        Raises:
            HttpError: there are too many watchers already.
        """
        if self._watcher_count >= MAX_WATCHERS:
            raise HttpError(503, f"The limit of {MAX_WATCHERS} watchers is reached.")
        return self._event_stream(target, hidden)

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
        self, target: TreeTarget, hidden: frozenset[str]
    ) -> AsyncGenerator[bytes, None]:
        def is_shown(node: TreeNode) -> bool:
            return node.path not in hidden

        self._watcher_count += 1
        try:
            while self._latest_snapshot is None:
                yield await self._wait_for_event()
            tree = SnapshotTree(self._latest_snapshot)
            timestamp = to_text(tree.snapshot.timestamp)
            yield event("node", json_form.render(tree, target, is_shown).decode(), timestamp)
            while tree.contains(target):
                if self._latest_snapshot is tree.snapshot:
                    yield await self._wait_for_event()
                    continue
                previous, tree = tree, SnapshotTree(self._latest_snapshot)
                yield self._change_event(previous, tree, target, hidden, is_shown)
            yield event("gone", "{}")
        finally:
            self._watcher_count -= 1

    async def _wait_for_event(self) -> bytes:
        """Wait for a sample or the heartbeat interval; return the bytes to send."""
        return b"" if await self.wait_for_sample(_KEEPALIVE_SECONDS) else KEEPALIVE_COMMENT

    async def wait_for_sample(self, seconds: float) -> bool:
        """Wait for a sample, and return whether one has come in time."""
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._sample_future), seconds)
            return True
        return False

    def _change_event(
        self,
        previous: SnapshotTree,
        current: SnapshotTree,
        target: TreeTarget,
        hidden: frozenset[str],
        is_shown: Callable[[TreeNode], bool],
    ) -> bytes:
        key = previous.snapshot.timestamp, current.snapshot.timestamp, target.path, hidden
        change_event = self._change_events.get(key)
        if change_event is None:
            timestamp = to_text(current.snapshot.timestamp)
            change = {
                "timestamp": timestamp,
                "changed": dict(_changed_values(previous, current, target, is_shown)),
                "gone": list(_removed_paths(previous, current, target, is_shown)),
            }
            change_event = event("change", msgspec.json.encode(change).decode(), timestamp)
            self._change_events[key] = change_event
        return change_event


def _resource_nodes(
    node: TreeNode, is_shown: Callable[[TreeNode], bool]
) -> Iterator[tuple[TreeNode, Resource]]:
    if node.resource is not None:
        yield node, node.resource
    for child in node.children.values():
        if is_shown(child):
            yield from _resource_nodes(child, is_shown)


def _changed_values(
    previous: SnapshotTree,
    current: SnapshotTree,
    target: TreeTarget,
    is_shown: Callable[[TreeNode], bool],
) -> Iterator[tuple[str, str]]:
    """Yield the paths of changed values below a target, with the new values."""
    if target.id is not None or target.field is not None:
        values, previous_values = current.values(target), previous.values(target)
        if values is not None and target.node.resource is not None:
            field_name = None if target.field is None else target.field.name
            yield from _differences(
                target.node.resource, target.id, previous_values, values, field_name
            )
        return
    for node, resource in _resource_nodes(target.node, is_shown):
        previous_entries = previous.entries(node)
        for identity, values in current.entries(node).items():
            previous_values = previous_entries.get(identity)
            if previous_values != values:
                entry_id = identity if node.has_entries else None
                yield from _differences(resource, entry_id, previous_values, values)


def _differences(
    resource: Resource,
    identity: str | None,
    previous_values: tuple[StatisticValue, ...] | None,
    values: tuple[StatisticValue, ...],
    field_name: str | None = None,
) -> Iterator[tuple[str, str]]:
    path = link(["amps", *resource.path.split("/"), *([] if identity is None else [identity])])
    for index, field in enumerate(resource.fields):
        if field_name in (None, field.name) and (
            previous_values is None or previous_values[index] != values[index]
        ):
            yield f"{path}/{field.name}", text_of(field, values[index])


def _removed_paths(
    previous: SnapshotTree,
    current: SnapshotTree,
    target: TreeTarget,
    is_shown: Callable[[TreeNode], bool],
) -> Iterator[str]:
    """Yield the paths below a target that are gone."""
    if target.id is not None or target.field is not None:
        return
    for node, _ in _resource_nodes(target.node, is_shown):
        if node.has_entries:
            remaining_entries = current.entries(node)
            for identity in previous.entries(node):
                if identity not in remaining_entries:
                    yield TreeTarget(node, identity).path
