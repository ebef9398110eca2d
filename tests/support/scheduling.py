"""Which tests run in one process, and in which order, when several processes share them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

_WITH_SPARK: Final = "tests/pipeline/"
"""Most of these share a Spark, which needs a Java and 1.5 GB. Another one would take twenty seconds
of a processor, until Java has compiled what it runs most."""

_WITHOUT_SPARK: Final = (
    "tests/pipeline/test_delta.py",
    "tests/pipeline/test_java.py",
    "tests/pipeline/test_journal_damage.py",
    "tests/pipeline/test_journal_read.py",
    "tests/pipeline/test_journal_stream.py",
    "tests/pipeline/test_json_bodies.py",
    "tests/pipeline/test_json_columns.py",
    "tests/pipeline/test_numbers_in_texts.py",
    "tests/pipeline/test_objects_and_values.py",
    "tests/pipeline/test_offsets.py",
    "tests/pipeline/test_plain_columns.py",
    "tests/pipeline/test_predicates.py",
    "tests/pipeline/test_table_files.py",
    "tests/pipeline/test_view_stages.py",
)

_OWN_SPARK: Final = (
    (
        "tests/pipeline/test_connect.py",
        "tests/pipeline/test_credentials.py::test_no_password",
        "tests/pipeline/test_exactly_once.py::test_a_driver_that_is_killed",
        "tests/pipeline/test_export_follow.py::test_a_table_is_right",
        "tests/pipeline/test_queue_stream.py::test_drivers_that_are_killed",
    ),
    (
        "tests/pipeline/test_cluster.py",
        "tests/pipeline/test_found_by_spark.py",
    ),
)
"""These start Sparks of their own, two at a time: Spark gives up a Python process that has not
begun after 10 seconds, which is soon where many Sparks start at once."""

_WITH_BROWSER: Final = "tests/admin/console/"
"""These share a browser, whose start takes three seconds of a processor."""

_EACH_ALONE: Final = (
    "tests/recovery/test_failover.py",
    "tests/recovery/test_kills.py",
    "tests/recovery/test_letter_kills.py",
    "tests/recovery/test_queue_kills.py",
    "tests/recovery/test_replaced_instances.py",
    "tests/recovery/test_replication_faults.py",
)
"""These take long, all of a file together, and share nothing."""

_FIRST: Final = (
    *(_WITH_SPARK, _WITH_BROWSER),
    *("tests/test_packaging.py", "tests/recovery/", "tests/soak/"),
)
"""What takes longest begins first, so that no process is left with it in the end."""


class _Collection(list[str]):
    """The tests of a process, whose `index` does not search: xdist calls it for each test."""

    def __init__(self, nodeids: Sequence[str]) -> None:
        super().__init__(nodeids)
        self._indices = {nodeid: index for index, nodeid in enumerate(nodeids)}

    def index(self, nodeid: str, *_range: object) -> int:
        return self._indices[nodeid]


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """A file's tests stay together: they share a server."""

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        """See `_Collection`."""
        super().add_node_collection(node, collection)
        if node in self.registered_collections:
            self.registered_collections[node] = _Collection(collection)

    def mark_test_complete(
        self, node: WorkerController, item_index: int, duration: float = 0
    ) -> None:
        """Forget scopes that are complete: xdist counts all tests of a process after each."""
        super().mark_test_complete(node, item_index, duration)
        scope = self._split_scope(self.registered_collections[node][item_index])
        if all(self.assigned_work[node][scope].values()):
            del self.assigned_work[node][scope]

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(_EACH_ALONE):
            return nodeid
        if nodeid.startswith(_WITH_BROWSER):
            return _WITH_BROWSER
        return _spark(nodeid) or nodeid.partition("::")[0]


def longest_first(items: list[pytest.Item]) -> None:
    """Sort tests: see above. `Scheduling` keeps this order where tests are not reordered."""
    items.sort(key=_turn)


def _spark(nodeid: str) -> str | None:
    """Return the scope of a test with Spark; None for any other test."""
    for number, own in enumerate(_OWN_SPARK):
        if nodeid.startswith(own):
            return f"Sparks of their own {number}"
    if not nodeid.startswith(_WITH_SPARK) or nodeid.startswith(_WITHOUT_SPARK):
        return None
    return "shared Spark"


def _turn(item: pytest.Item) -> tuple[int, str]:
    """Return the sort key of a test: the scopes with Spark take longest of all."""
    begins = [item.nodeid.startswith(first) for first in _FIRST]
    turn = begins.index(True) if True in begins else len(_FIRST)
    return turn, _spark(item.nodeid) or "without"
