"""Random messages of every type are the same rows, whatever they are read from, and the rows meant.

The model is the values that the messages are made of. No Spark runs: the sources are called as
Spark calls them, with the filters that it would push down.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

import bson
import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, LessThanOrEqual, Not
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import ArrayType, DecimalType, DoubleType, LongType, StructType

from pipeline.amps.source import AmpsDataSource
from pipeline.amps.stream import AmpsStreamReader
from pipeline.filters import OPTION, write_filters
from pipeline.journal.source import AmpsJournalDataSource
from server.message_types.bflat_fields import BFlatCode, pair
from tests.pipeline.test_push_down import DOUBLES, INTEGERS, LARGE, TEXTS, filters, in_spark
from tests.pipeline.topics import publish, uri
from tests.support.chances import examples
from tests.support.server import RunningServer, running_server

Row = dict[str, Any]

TYPES: Final = ("json", "bson", "msgpack", "nvfix", "xml", "bflat")
NESTED: Final = ("json", "bson", "msgpack")
"""Message types whose values may be arrays and objects."""

ROOTS: Final = {"xml": "/r"}
"""The element that is around the fields, by message type."""

TOPICS: Final = "<SOW>{topics}</SOW><TransactionLog>{log}</TransactionLog>".format(
    topics="".join(
        f"<Topic><Name>keyed-{kind}</Name><Pattern>^one-</Pattern><MessageType>{kind}</MessageType>"
        f"<Key>{ROOTS.get(kind, '')}/id</Key><Durability>transient</Durability></Topic>"
        for kind in TYPES
    ),
    log="<JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>"
    + "".join(
        f"<Topic><Name>^(keyed-|one-)</Name><MessageType>{kind}</MessageType></Topic>"
        for kind in TYPES
    ),
)

SINGLE: Final = (
    StructType()
    .add("id", "integer")
    .add("l", "long")
    .add("d", "double")
    .add("s", "string")
    .add("m", "timestamp")
)
TREE: Final = (
    StructType([*SINGLE.fields])
    .add("b", "boolean")
    .add("x", StructType().add("i", "integer").add("s", "string"))
    .add("a", ArrayType(LongType()))
    .add("g", ArrayType(ArrayType(DoubleType())))
)
WITH_DECIMALS: Final = StructType([*TREE.fields]).add("n", DecimalType(20, 2))
SCHEMAS: Final = {kind: TREE if kind in NESTED else SINGLE for kind in TYPES} | {
    "json": WITH_DECIMALS,
    "bson": WITH_DECIMALS,
}

ZONES: Final = st.sampled_from([UTC, timezone(timedelta(hours=-5, minutes=-30))])
MOMENTS: Final = st.datetimes(datetime(1900, 1, 2), datetime(2200, 1, 1), timezones=ZONES)
WHOLE_MILLIS: Final = MOMENTS.map(
    lambda one: one.replace(microsecond=one.microsecond // 1000 * 1000)
)
TEXT: Final = st.sampled_from(TEXTS) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9
)
PLAIN_TEXT: Final = st.text("ab1=.-é\U0001f600", min_size=1, max_size=9)
"""Of types in which the empty text is NULL, or white space does not count."""


def values(kind: str) -> dict[str, st.SearchStrategy[Any]]:
    """The values of the columns."""
    is_text = kind in ("nvfix", "xml")
    doubles = st.floats(allow_nan=not is_text, allow_infinity=not is_text)
    fields = {
        "l": st.sampled_from(LARGE) | st.integers(-(2**63), 2**63 - 1),
        "d": doubles if is_text else st.sampled_from(DOUBLES) | doubles,
        "s": PLAIN_TEXT if is_text else TEXT,
        "m": WHOLE_MILLIS if kind in ("bson", "bflat") else MOMENTS,
        "b": st.booleans(),
        "x": st.fixed_dictionaries(
            {}, optional={"i": st.sampled_from([*INTEGERS, None]), "s": st.none() | TEXT}
        ),
        "a": st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=3),
        "g": st.lists(st.none() | st.lists(st.none() | doubles, max_size=2), max_size=2),
        "n": st.decimals(-(10**17), 10**17, places=2),
    }
    return {name: fields[name] for name in SCHEMAS[kind].names if name != "id"}


def messages(kind: str, most: int = 6) -> st.SearchStrategy[list[Row]]:
    """Some messages, whose fields may be missing or NULL."""
    some = {name: st.none() | value for name, value in values(kind).items()}
    one = st.fixed_dictionaries({}, optional=some)
    rows = st.lists(one, min_size=1, max_size=most)
    return rows.map(lambda many: [{"id": number} | one for number, one in enumerate(many)])


def _json(value: Any) -> str:
    match value:
        case dict():
            fields = [f"{json.dumps(name)}:{_json(one)}" for name, one in value.items()]
            return "{" + ",".join(fields) + "}"
        case list():
            return f"[{','.join(map(_json, value))}]"
        case Decimal():
            return f"{value:f}"
        case datetime():
            return json.dumps(value.isoformat())
    return json.dumps(value, ensure_ascii=len(str(value)) % 2 == 0)


def _bson(value: Any) -> Any:
    match value:
        case dict():
            return {name: _bson(one) for name, one in value.items()}
        case Decimal():
            return bson.Decimal128(value)
        case int() if not isinstance(value, bool):
            return bson.Int64(value)
    return value


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _fix(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y%m%d-%H:%M:%S.%f")
    return "" if value is None else str(value)


def _bflat(name: str, value: Any) -> bytes:
    tag = name.encode()
    match value:
        case None:
            return pair(tag, BFlatCode.NULL, b"")
        case int():
            return pair(tag, BFlatCode.INT64, struct.pack("<q", value))
        case float():
            return pair(tag, BFlatCode.DOUBLE, struct.pack("<d", value))
        case datetime():
            millis = (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
            return pair(tag, BFlatCode.DATETIME, struct.pack("<q", millis))
    text = value.encode()
    return pair(tag, BFlatCode.STRING, bytes([len(text)]) + text)


def _xml(row: Row) -> str:
    fields = [
        f"<{name}>{escape(_text(value))}</{name}>"
        for name, value in row.items()
        if value is not None
    ]
    return f"<r>{''.join(fields)}</r>"


BODIES: Final[Mapping[str, Callable[[Row], bytes]]] = {
    "json": lambda row: _json(row).encode(),
    "bson": lambda row: bson.encode(_bson(row)),
    "msgpack": msgspec.msgpack.encode,
    "nvfix": lambda row: "".join(f"{name}={_fix(one)}\x01" for name, one in row.items()).encode(),
    "xml": lambda row: _xml(row).encode(),
    "bflat": lambda row: b"".join(_bflat(name, one) for name, one in row.items()),
}


def meant(row: Row, schema: StructType) -> Row:
    """The row that a message stands for."""
    found: Row = {}
    for name in schema.names:
        value = row.get(name)
        if name == "x" and value is not None:
            value = {"i": value.get("i"), "s": value.get("s")}
        found[name] = value
    return found


def shown(rows: Iterable[Row]) -> list[str]:
    """Rows to compare, in which NaN is NaN and a moment has no zone."""

    def plain(value: Any) -> Any:
        return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value

    return [repr({name: plain(value) for name, value in row.items()}) for row in rows]


def kept(rows: Iterable[Row], some: Iterable[Filter]) -> list[Row]:
    """The rows that Spark keeps; each of the filters has to hold."""
    return [row for row in rows if all(in_spark(one, row) is True for one in some)]


def read(reader: Any, partitions: Iterable[Any]) -> list[Row]:
    """What tasks read."""
    batches: list[pa.RecordBatch] = [one for part in partitions for one in reader.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]


def follow(source: AmpsDataSource, schema: StructType, *, repeats: bool) -> list[Row]:
    """What micro-batches of two rows have, as they are planned or as they are repeated."""
    reader = source.streamReader(schema)
    assert isinstance(reader, AmpsStreamReader)
    reader.prepareForTriggerAvailableNow()
    found: list[Row] = []
    begin = reader.initialOffset()
    while (end := reader.latestOffset(begin, ReadAllAvailable())) != begin:
        planned = source.streamReader(schema) if repeats else reader
        found += read(planned, planned.partitions(begin, end))
        if planned is not reader:
            planned.stop()
        begin = end
    reader.stop()
    return found


def sources(
    server: RunningServer, journals: Path, kind: str, topic: str, where: str
) -> dict[str, Callable[[StructType], list[Row]]]:
    """Everything that has the messages of a topic; some apply filters that they are given."""
    given = {"server": uri(server, kind), "topic": topic}

    def batch(source: Any, schema: StructType) -> list[Row]:
        reader = source.reader(schema)
        return read(reader, reader.partitions())

    streamed = AmpsDataSource(given | {"max_rows_per_trigger": "2"})
    files = {"path": str(journals), "topic": topic, "message_type": kind}
    return {
        "records": partial(batch, AmpsDataSource(given | {OPTION: where})),
        "parts": partial(batch, AmpsDataSource(given | {OPTION: where, "partitions": "3"})),
        "range": partial(batch, AmpsDataSource(given | {"bookmark": "[0:0|1|]"})),
        "stream": partial(follow, streamed, repeats=False),
        "repeated stream": partial(follow, streamed, repeats=True),
        "journals": partial(batch, AmpsJournalDataSource(files | {OPTION: where})),
    }


def pushed_filters(kind: str) -> st.SearchStrategy[list[Filter]]:
    """Filters as Spark pushes them down."""
    paths: list[tuple[str, ...]] = [("l",), ("d",), ("s",)]
    if kind in NESTED:
        paths += [("b",), ("x", "i"), ("x", "s")]
    moments = st.builds(
        lambda make, moment: make(("m",), moment),
        st.sampled_from([EqualTo, GreaterThan, LessThanOrEqual]),
        MOMENTS,
    )
    one = st.sampled_from(paths).flatmap(filters) | moments | moments.map(Not)
    return st.lists(one, max_size=2)


def column_of(one: Any) -> str:
    """The column that a filter is about."""
    inner: Any = one.child if isinstance(one, Not) else one
    return str(inner.attribute[0])


TOPIC_NUMBERS: Final = count()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("one-meaning")


@pytest.fixture(scope="module")
def typed_server(directory: Path) -> Any:
    with running_server(directory, elements=TOPICS) as server:
        yield server


@pytest.mark.long
@pytest.mark.parametrize("kind", TYPES)
def test_all_sources_have_the_rows_that_are_meant(
    typed_server: RunningServer, directory: Path, kind: str
) -> None:
    """Of any columns, and with any filters, which no source takes for more than Spark does."""

    @settings(max_examples=examples(400, usual=5))
    @given(messages(kind), pushed_filters(kind), st.sets(st.sampled_from(SCHEMAS[kind].names)))
    def check(rows: list[Row], some: list[Filter], names: set[str]) -> None:
        topic = f"one-{next(TOPIC_NUMBERS)}"
        publish(typed_server, topic, [BODIES[kind](row) for row in rows], kind)
        tested = {column_of(one) for one in some}
        wanted = {"id"} | names | tested
        schema = StructType([field for field in SCHEMAS[kind].fields if field.name in wanted])
        expected = shown(kept([meant(row, schema) for row in rows], some))
        # What is around the fields of XML is a column with them.
        is_inside = kind in ROOTS
        columns = StructType().add("r", schema) if is_inside else schema
        where = "[]" if is_inside else write_filters(some)
        everything = sources(typed_server, directory / "journal", kind, topic, where)
        for name, load in everything.items():
            loaded = [row["r"] for row in load(columns)] if is_inside else load(columns)
            found = sorted(kept(loaded, some), key=lambda row: row["id"])
            assert shown(found) == expected, name

    check()
