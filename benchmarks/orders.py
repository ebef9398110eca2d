"""The messages that benchmarks of Spark read and write: orders with twelve fields, some nested."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

SHORT: Final = 370
LONG: Final = 1024
"""Bytes of a message, on average and exactly."""

FIVE: Final = "order_id BIGINT, symbol STRING, side STRING, qty INT, price DOUBLE"
TWELVE: Final = (
    f"{FIVE}, customer STRING, status STRING, at TIMESTAMP, venue STRING, note STRING,"
    " legs ARRAY<STRUCT<leg: INT, price: DOUBLE>>, tags STRUCT<desk: STRING, algo: STRING>"
)
WHERE: Final = (
    "symbol <> 'SYM007' and side = 'BUY' and qty > 1000 and price < 400 and order_id >= 100"
)
"""Five fields, and five predicates on them, which a third of the orders meets."""

DIFFERENT: Final = 10_000
"""Messages that differ; then they begin again."""

_BEGIN: Final = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)


def orders(size: int, count: int = DIFFERENT) -> Sequence[bytes]:
    """Make messages.

    Args:
        size: SHORT or LONG.
        count: how many; each has a number of its own.
    """
    chance = random.Random(5)
    return [_order(chance, number, size) for number in range(count)]


def mixed_orders(count: int = DIFFERENT) -> Sequence[bytes]:
    """Make messages of which none has the form of another: order and number of fields, and size.

    Args:
        count: how many; each has a number of its own.
    """
    chance = random.Random(7)
    found = []
    for body in orders(SHORT, count):
        order = json.loads(body)
        if chance.random() < 0.3:
            order["note"] = "n" * chance.randrange(900)
        names = [name for name in order if name == "order_id" or chance.random() < 0.9]
        chance.shuffle(names)
        found.append(json.dumps({name: order[name] for name in names}).encode())
    return found


def _order(chance: random.Random, number: int, size: int) -> bytes:
    order = {
        "order_id": number,
        "customer": f"C{chance.randrange(1000):04d}",
        "symbol": f"SYM{chance.randrange(200):03d}",
        "side": chance.choice(["BUY", "SELL"]),
        "qty": chance.randrange(1, 5000),
        "price": round(chance.uniform(5, 500), 2),
        "status": chance.choice(["NEW", "PART", "FILLED", "CXL"]),
        "at": (_BEGIN + timedelta(milliseconds=5 * number)).isoformat(),
        "venue": chance.choice(["XNYS", "XNAS", "BATS", None]),
        "legs": [
            {"leg": leg, "price": round(chance.uniform(5, 500), 2)}
            for leg in range(chance.randrange(3))
        ],
        "tags": {"desk": chance.choice("AB"), "algo": chance.choice(["vwap", "twap"])},
        "note": "n" * chance.randrange(10, 190),
    }
    if size == LONG:
        order["note"] = "n" * (size - len(json.dumps({**order, "note": ""})))
    return json.dumps(order).encode()
