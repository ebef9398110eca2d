"""What reading fields of a body costs, per message type, beside parsing all of it.

    python -m benchmarks.bodies

One run measures everything, so that the rows can be compared. "All" is parsing with the plain
library that one would use without us. Every body holds the same order, of about 1 KB as JSON; the
short one is a FIX execution report of 184 bytes.
"""

from __future__ import annotations

import json
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import bson
import msgspec
from lxml import etree

from benchmarks.tables import print_table
from server.message_types.base import MessageType, Value
from server.message_types.paths import Path
from server.message_types.registry import MessageTypes

ROUNDS = 7
SECONDS = 0.05
"""Time that a round takes, about."""

_TYPES = MessageTypes()
_TYPES.define("json, last key wins", "json", {"EarlyTerminationOptimization": ["false"]})

ORDER: dict[str, Value] = {
    "id": 12345,
    "symbol": "MSFT",
    **{f"field_{n}": (n * 7, n * 1.5, f"some text value {n}")[n % 3] for n in range(40)},
    "price": 102.25,
    "qty": 1000,
    "tail": "x" * 60,
}
WANTED = ("id", "field_10", "price", "symbol", "field_30")
ABSENT = "not_there"

TAGS = ("11", "55", "44", "39", "14")
REPORT = (
    (
        "8=FIX.4.4|9=178|35=8|49=BROKER|56=CLIENT|34=2|52=20240101-10:00:00.000|11=ORD-12345|17=EXEC-98"
        "|20=0|39=2|55=MSFT|54=1|38=1000|44=102.25|32=1000|31=102.25|151=0|14=1000|6=102.25|10=128|"
    )
    .replace("|", "\x01")
    .encode()
)


@dataclass(frozen=True, slots=True)
class Subject:
    """A message type, its body, and the plain library that parses all of it."""

    kind: MessageType
    body: bytes
    library: str
    parse: Callable[[bytes], object]
    above: Path = ()
    names: Sequence[str] = WANTED

    def extraction(self, names: Sequence[str]) -> Callable[[], object]:
        """A call that reads the named fields."""
        read = self.kind.extractor([(*self.above, name) for name in names])
        for _ in range(100):  # an extractor may learn which fields are often missing
            read(self.body)
        body = self.body
        return lambda: read(body)


def subjects() -> list[Subject]:
    """The types that are measured, each with the order in its format."""
    text = json.dumps(ORDER, separators=(",", ":")).encode()
    fields: list[tuple[Path, Value]] = [((name,), value) for name, value in ORDER.items()]
    nvfix, xml, bflat = (_TYPES.get(name) for name in ("nvfix", "xml", "bflat"))
    document = xml.build([(("order", *path), value) for path, value in fields])
    return [
        Subject(_TYPES.get("json"), text, "msgspec, untyped", msgspec.json.decode),
        Subject(_TYPES.get("json, last key wins"), text, "json.loads", json.loads),
        Subject(nvfix, nvfix.build(fields), "split into a dict", _split_fields),
        Subject(_TYPES.get("fix"), REPORT, "split into a dict", _split_fields, names=TAGS),
        Subject(xml, document, "lxml", etree.fromstring, ("order",)),
        Subject(
            _TYPES.get("msgpack"), msgspec.msgpack.encode(ORDER), "msgspec", msgspec.msgpack.decode
        ),
        Subject(_TYPES.get("bson"), bson.encode(ORDER), "pymongo", bson.decode),
        Subject(bflat, bflat.build(fields), "our reader, all fields", _all_fields(bflat)),
    ]


def _split_fields(body: bytes) -> dict[bytes, bytes]:
    fields = (field.partition(b"=") for field in body.split(b"\x01"))
    return {tag: value for tag, _, value in fields}


def _all_fields(kind: MessageType) -> Callable[[bytes], object]:
    return kind.extractor([(name,) for name in ORDER])


def nanoseconds(call: Callable[[], object]) -> int:
    """The best time of a call over several rounds, in nanoseconds."""
    timer = timeit.Timer(call)
    number = max(1, int(SECONDS / max(timer.timeit(10) / 10, 1e-7)))
    return round(min(timer.repeat(ROUNDS, number)) / number * 1e9)


def costs(subject: Subject) -> list[int]:
    """What reading and rebuilding one subject's body costs, in the order of `HEAD`."""
    kind, body, above = subject.kind, subject.body, subject.above
    delta = kind.build([((*above, "price"), 1), ((*above, "new"), 2)])
    merged = kind.merge(body, delta)
    keys = [(*above, "id")]
    calls: list[Callable[[], object]] = [
        subject.extraction(subject.names[:1]),
        subject.extraction(subject.names[:3]),
        subject.extraction(subject.names),
        subject.extraction([*subject.names[:4], ABSENT]),
        partial(subject.parse, body),
        partial(kind.merge, body, delta),
        partial(kind.differ, body, merged, keys),
    ]
    return [len(body), *map(nanoseconds, calls)]


HEAD = ("", "bytes", "1 field", "3 fields", "5 fields", "4 and 1 absent", "all", "merge", "differ")


def main() -> None:
    """Measure and print."""
    rows = [
        [f"{subject.kind.name} (all: {subject.library})", *costs(subject)] for subject in subjects()
    ]
    print_table("Reading and rebuilding one body, nanoseconds (best of 7 rounds)", HEAD, rows)


if __name__ == "__main__":
    main()
