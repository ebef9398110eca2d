"""What filters cost: the curve over their number, and one with five terms beside parsing alone.

    python -m benchmarks.matching

Everything runs in this process on one core. Bodies are JSON of about 1 KB, read in turn from a set,
so that nothing is found again by its identity.
"""

from __future__ import annotations

import importlib
import itertools
import json
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from benchmarks.tables import print_table
from server.expressions import BUILTINS, parse
from server.expressions.filter_form import lift_constants
from server.message_types.registry import MessageTypes
from server.topics.subscriptions.matching.filter_layout import Filter
from server.topics.subscriptions.matching.filter_set import FilterSet

COUNTS = (1, 100, 1_000, 10_000, 100_000)
KINDS = {
    "equality": "/symbol = 'SYM{n:06}'",
    "equality and range": "/symbol = 'SYM{n:06}' AND /qty > {n}",
    "number": "/order = {n}",
}
FIVE_TERMS = (
    "/region = 'EU' AND /qty > 500 AND /price < 200 AND /side = 'BUY' AND /status != 'CANCELED'"
)
FIVE_FIELDS = [("region",), ("qty",), ("price",), ("side",), ("status",)]
BODIES = 200
ROUNDS = 7
SECONDS = 0.1
"""Time that a round takes, about."""

_JSON = MessageTypes().get("json")


def main() -> None:
    """Measure and print."""
    adding, curve = [], []
    for kind, text in KINDS.items():
        seconds, rates = _curve(text)
        curve.append([kind, *rates])
        adding.append([kind, seconds])
    print_table(
        "Messages a second against so many distinct filters of which one matches (best of 7)",
        ["", *(f"{count:,}" for count in COUNTS)],
        curve,
    )
    print_table("Adding 100,000 distinct filters", ["", "seconds"], adding)
    print_table(
        "Five terms over a 1 KB body, nanoseconds and messages a second (best of 7)",
        ["", "ns", "messages/s"],
        [[name, round(cost), round(1e9 / cost)] for name, cost in _five_terms()],
    )


def body(number: int, *, hit: bool = True) -> bytes:
    """An order of about 1 KB.

    Args:
        number: which one; equal numbers of symbol and order are in it.
        hit: whether it matches `FIVE_TERMS`; it fails the last of them otherwise.
    """
    padding = {f"field_{n}": (n * 7, n * 1.5, f"some text value {n}")[n % 3] for n in range(36)}
    fields = {
        "id": number,
        **dict(itertools.islice(padding.items(), 18)),
        "symbol": f"SYM{number:06}",
        "order": number,
        "side": "BUY",
        "region": "EU",
        "qty": 1_000_000,
        "price": 102.25,
        "status": "NEW" if hit else "CANCELED",
        **dict(itertools.islice(padding.items(), 18, None)),
    }
    return json.dumps(fields, separators=(",", ":")).ljust(1024).encode()


def _curve(text: str) -> tuple[float, list[int]]:
    """Seconds to add all filters, and the rates with each number of them."""
    filters = FilterSet(_JSON, BUILTINS, _unexpected)
    rates: list[int] = []
    seconds = 0.0
    added = 0
    for count in COUNTS:
        added_filters = [lift_constants(parse(text.format(n=n))) for n in range(added, count)]
        begin = time.perf_counter()
        for one in added_filters:
            filters.add(one)
        seconds += time.perf_counter() - begin
        added = count
        bodies = [body(n * count // BODIES) for n in range(BODIES)]
        assert all(len(filters.match(one)) == 1 for one in bodies)
        rates.append(round(1e9 / nanoseconds(filters.match, bodies)))
    return seconds, rates


def _five_terms() -> list[tuple[str, float]]:
    filters = FilterSet(_JSON, BUILTINS, _unexpected)
    filters.add(lift_constants(parse(FIVE_TERMS)))
    hits = [body(n) for n in range(BODIES)]
    misses = [body(n, hit=False) for n in range(BODIES)]
    rows = [
        ("the filter, messages that match", nanoseconds(filters.match, hits)),
        ("the filter, messages that fail its last term", nanoseconds(filters.match, misses)),
        ("reading the five fields alone", nanoseconds(_JSON.extractor(FIVE_FIELDS), hits)),
        ("parsing all: msgspec, untyped", nanoseconds(msgspec.json.decode, hits)),
    ]
    try:
        orjson = importlib.import_module("orjson")
    except ImportError:
        print("orjson is not installed: measured without it")
    else:
        rows.append(("parsing all: orjson", nanoseconds(orjson.loads, hits)))
    rows.append(("parsing all: json", nanoseconds(json.loads, hits)))
    return rows


def _unexpected(filter_: Filter, error: Exception) -> None:
    raise AssertionError(filter_.text) from error


def nanoseconds(call: Callable[[bytes], object], bodies: Sequence[bytes]) -> float:
    """The best time of a call over several rounds, in nanoseconds, the loop's own left out."""
    empty = _seconds_per_body(len, bodies)
    return (_seconds_per_body(call, bodies) - empty) * 1e9


def _seconds_per_body(call: Callable[[bytes], object], bodies: Sequence[bytes]) -> float:
    once = partial(_run, call, bodies)
    once()
    passes = max(1, int(SECONDS / max(once(), 1e-9)))
    best = min(sum(once() for _ in range(passes)) for _ in range(ROUNDS))
    return best / passes / len(bodies)


def _run(call: Callable[[bytes], object], bodies: Sequence[bytes]) -> float:
    begin = time.perf_counter()
    for one in bodies:
        call(one)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
