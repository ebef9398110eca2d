"""Views from any message type that has fields, in any that can be built."""

from __future__ import annotations

import math
import time

import pytest

from server.message_types.base import Value
from server.message_types.registry import create
from server.topics.subscriptions.delivery.envelope import Envelope
from tests.engine.support import TYPES, Core
from tests.storage.views.support import bodies, topic, view

RECORDS: list[dict[str, Value]] = [
    {"id": "1", "sym": "A", "qty": 3, "px": 2.5},
    {"id": "2", "sym": "A", "qty": 4, "px": 0.25},
    {"id": "3", "sym": "B", "qty": 0, "px": 1.5},
]
PROJECTION = (
    "{0}./sym AS /sym; COUNT({0}./id) AS /n; SUM({0}./qty) AS /qty; MAX({0}./px) AS /high;"
    "SUM({0}./px * {0}./qty) / SUM({0}./qty) AS /mean; MIN({0}./none) AS /none; {0}./id AS /last"
)
FIELDS = ("sym", "n", "qty", "high", "mean", "none", "last")
TEXT = ("fix", "nvfix", "xml")


@pytest.mark.parametrize("target", TYPES)
@pytest.mark.parametrize("source", TYPES)
def test_from_any_type_to_any(source: str, target: str) -> None:
    """Sums are doubles and counts integers, whichever types, and the greatest is a number."""
    core = Core()
    core.keep(topic("t", source))
    field = f"[{source}].[t]"
    core.derive(
        view("v", f"t:{source}", PROJECTION.format(field), f"{field}./sym", message_type=target)
    )
    source_type, target_type = core.types[source], core.types[target]
    for record in RECORDS:
        body = source_type.build([((name,), value) for name, value in record.items()])
        core.engine.topics.find(source, "t").publish([body], Envelope(None, time.time()))
    extract = target_type.extractor([(name,) for name in FIELDS])
    rows = sorted(map(extract, bodies(core, "v", target).values()), key=lambda row: str(row[0]))
    assert [len(rows), rows[0][0], rows[1][0]] == [2, "A", "B"]
    first: list[Value] = ["A", 2, 7.0, 2.5, 8.5 / 7, None, "2"]
    assert list(rows[0]) == (
        first if target not in TEXT else ["A", "2", "7", "2.5", repr(8.5 / 7), None, "2"]
    )
    nothing = rows[1][FIELDS.index("mean")]  # 0 / 0
    assert nothing == "0" if target in TEXT else nothing is None or math.isnan(float(str(nothing)))


def test_types_that_are_sources_only() -> None:
    """A struct has fields, and a view in JSON."""
    core = Core()
    core.types["pair"] = create("pair", "struct", {"Field": ["/id = <q", "/qty = d"]})
    core.keep(topic("t", "pair"))
    field = "[pair].[t]"
    core.derive(
        view("v", "t:pair", f"SUM({field}./qty) AS /qty; {field}./id AS /id", f"{field}./id")
    )
    core.engine.topics.find("pair", "t").publish(
        [b"\x07" + bytes(7) + b"\0\0\0\0\0\0\xf8?"], Envelope(None, time.time())
    )
    assert list(bodies(core, "v").values()) == [b'{"qty":1.5,"id":7}']
