"""Queries give what a look at every record would, as of their start, whatever happens meanwhile."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config_schema.spec import TopicSpec
from server.expressions import parse, parse_order_by, paths
from server.expressions.backends.compile_message import compile_filter
from server.storage.sow.indexes import memo_index
from server.storage.sow.indexes.memo_index import MEMO_BLOCK_ROWS
from server.storage.sow.query.query import QuerySpec
from server.storage.sow.record_context import context_of
from server.storage.sow.records import Record
from tests.storage.sow.support import Clerk, json_type, make_topic, run, topic_spec
from tests.support.chances import examples

FILTERS = [
    "/qty > 50",
    "/qty > 50 AND /sym = 'A' AND /px < 5.5 AND /note IS NOT NULL AND /qty != 77",
    "/sym = 'B'",
    "/sym IN ('A', 'C')",
    "/sym = 'A' AND /side = 'buy'",
    "/sym IN ('A', 'C') AND /side = 'buy' AND /qty < 30",
    "'5' = /id",
    "/id IN ('5', '17', 'x')",
    "/id = '5' AND /qty >= 0",
    "/num = '5'",
    "/num = 5",
    "/sym LIKE '^[AB]$' OR /qty = 3",
    "/mixed = 'x'",
    "/mixed > 5",
    "/tags = 'red'",
    "/absent IS NULL",
    "/absent = 'x'",
    "1=1",
    "1=0",
    "SOW_KEY() = '{key}'",
    "MESSAGE_SIZE() > 60 AND /qty < 50",
    "LAST_UPDATED() > 0 AND CORRELATION_ID() IS NULL",
    "NOT (/sym = 'A')",
    "SOW_KEY_HASH() % 3 = 1",
    "SOW_KEY_HASH() % 1 = 0",
    "SOW_KEY_HASH() % 3 = 7",
    "SOW_KEY_HASH() % 3 = -1",
    "SOW_KEY_HASH() % 0 = 0",
    "SOW_KEY_HASH() % 2.5 = 1",
    "(SOW_KEY_HASH() % 3 = 0 OR SOW_KEY_HASH() IS NULL) AND /qty > 50",
    "/sym = 'B' AND SOW_KEY_HASH() % 2 = 1",
    "SOW_KEY_HASH() % 2 = 1 AND SOW_KEY_HASH() % 3 = 1 AND MESSAGE_SIZE() > 60",
    "SOW_KEY_HASH() % 100000000000000000000000 = 3",
]


def message(source: random.Random, number: int) -> dict[str, Any]:
    made: dict[str, Any] = {
        "id": number,
        "sym": source.choice("ABCD"),
        "side": source.choice(("buy", "sell")),
        "qty": source.randrange(100),
        "num": source.choice((5, 5.0, "5", "5.0", 6, None)),
        "mixed": source.choice((1, 2.5, "x", None, "7", True)),
    }
    if source.random() < 0.7:
        made["px"] = source.choice((source.random() * 10, source.randrange(10)))
    if source.random() < 0.5:
        made["note"] = source.choice(("", "n"))
    if source.random() < 0.2:
        made["tags"] = source.choice((["red", "blue"], [], "red", ["green"]))
    return made


def make_clerk() -> Clerk:
    indexes = (("/sym",), ("/sym", "/side"), ("/tags",), ("/num",))
    return Clerk(make_topic(topic_spec("/id", hash_indexes=indexes)))


def current(clerk: Clerk) -> list[Record]:
    store = clerk.topic.table.store
    return [store.read_record(row) for _, row in store.identities()]


def naive(records: list[Record], text: str) -> list[Record]:
    expr = parse(text)
    extract = json_type().extractor(paths(expr))
    test = compile_filter(expr)
    return [record for record in records if test(extract(record.body), context_of(record))]


def disturb(clerk: Clerk, source: random.Random, numbers: int) -> None:
    """Change something: a record updated, inserted or deleted."""
    number = source.randrange(numbers)
    if source.random() < 0.3:
        clerk.delete(*clerk.topic.find_by_body(b'{"id":%d}' % number))
    else:
        clerk.publish(message(source, number))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few records in a block that a small topic has many."""
    for module in ("indexes.memo_index", "query.query", "snapshot", "record_table"):
        monkeypatch.setattr(f"server.storage.sow.{module}.MEMO_BLOCK_ROWS", 16)
    monkeypatch.setattr("server.storage.sow.query.query._READ_BATCH_SIZE", 10)
    monkeypatch.setattr("server.storage.sow.query.query._MAX_CANDIDATES", 20)
    monkeypatch.setattr("server.storage.sow.query.query._WARM_BLOCKS", 2)


@pytest.mark.parametrize("text", FILTERS)
@pytest.mark.parametrize("seed", range(3))
def test_a_query_sees_the_state_at_its_start_while_records_change(text: str, seed: int) -> None:
    source = random.Random(seed)
    clerk = make_clerk()
    for number in range(150):
        clerk.publish(message(source, number))
    text = text.replace("{key}", clerk.topic.find_by_body(b'{"id":3}')[0].key)
    for _ in range(4):  # cold, then with indexes that have to be brought up to date
        before = current(clerk)
        expected = naive(before, text)
        query = clerk.query(QuerySpec(filter=parse(text)))
        found: list[Record] = []
        for piece in query:
            found += piece
            for _ in range(source.randrange(8)):
                disturb(clerk, source, 200)
        assert sorted(found) == sorted(expected)
        assert query.matches == len(expected)
        assert query.topic_matches == len(before)


@pytest.mark.parametrize("order", ["/qty", "/qty DESC, /id", "/sym DESC, /px ASC", "/mixed, /id"])
@pytest.mark.parametrize(("top_n", "skip_n"), [(None, 0), (5, 0), (20, 7), (1000, 3), (0, 0)])
def test_ordered_queries_give_their_part_of_the_order(
    order: str, top_n: int | None, skip_n: int
) -> None:
    source = random.Random(9)
    clerk = make_clerk()
    for number in range(120):
        clerk.publish(message(source, number))
    clerk.bodies(QuerySpec(filter=parse("/qty > 0")))
    terms = parse_order_by(order)
    whole = QuerySpec(filter=parse("/qty > 20"), order_by=terms)
    expected = run(clerk.query(whole))
    assert sorted(expected) == sorted(naive(current(clerk), "/qty > 20"))
    for one, other in pairwise(expected):
        assert _rank(one, order) <= _rank(other, order)
    part = QuerySpec(filter=whole.filter, order_by=terms, top_n=top_n, skip_n=skip_n)
    query = clerk.query(part)
    found: list[Record] = []
    for piece in query:
        found += piece
        disturb(clerk, source, 120)
    end = None if top_n is None else skip_n + top_n
    assert found == expected[skip_n:end]
    assert query.matches == len(expected)


def _rank(record: Record, order: str) -> Any:
    """What the first term of an order sorts by, for records that have numbers or letters there."""
    name, *direction = order.split(",")[0].strip("/").split()
    value = json.loads(record.body).get(name)
    if name == "mixed":
        kinds: list[type] = [type(None), bool, int, float, str]
        return (min(kinds.index(type(value)), 1) if not isinstance(value, str) else 9, 0)
    sign = -1 if direction == ["DESC"] else 1
    return sign * (ord(value) if isinstance(value, str) else value)


def test_many_values_select_nothing_of_an_empty_topic() -> None:
    values = ", ".join(f"'{number}'" for number in range(2000))
    for field in ("id", "sym", "num"):
        assert run(make_clerk().query(QuerySpec(filter=parse(f"/{field} IN ({values})")))) == []


@pytest.mark.parametrize(("top_n", "skip_n"), [(5, 0), (5, 30), (0, 0), (1000, 10), (None, 4)])
def test_top_n_and_skip_n_without_an_order(top_n: int | None, skip_n: int) -> None:
    source = random.Random(2)
    clerk = make_clerk()
    for number in range(100):
        clerk.publish(message(source, number))
    query = clerk.query(QuerySpec(top_n=top_n, skip_n=skip_n))
    found = []
    for piece in query:
        found += piece
        disturb(clerk, source, 100)
    left = 100 - skip_n
    assert len(found) == (left if top_n is None else min(top_n, left))
    assert len(set(found)) == len(found)
    assert query.matches == query.topic_matches == 100


def test_sow_keys_restrict_a_query() -> None:
    clerk = make_clerk()
    keys = [clerk.publish({"id": number, "qty": number}).key for number in range(40)]
    wanted = (keys[3], "unknown", keys[30], keys[3])
    assert clerk.bodies(QuerySpec(keys=wanted)) == [{"id": 3, "qty": 3}, {"id": 30, "qty": 30}]
    assert clerk.bodies(QuerySpec(keys=wanted, filter=parse("/qty > 10"))) == [
        {"id": 30, "qty": 30}
    ]
    assert clerk.bodies(QuerySpec(keys=())) == []


def test_a_query_that_is_closed_no_longer_costs_anything() -> None:
    clerk = make_clerk()
    for number in range(100):
        clerk.publish({"id": number})
    query = clerk.query(QuerySpec())
    next(query)
    query.close()
    assert not clerk.topic.table._snapshots
    with pytest.raises(StopIteration):
        next(query)
    query = clerk.query(QuerySpec())
    query.close()
    assert not clerk.topic.table._snapshots


def test_a_slice_parses_no_more_records_than_a_block_has_rows() -> None:
    source = random.Random(1)
    clerk = make_clerk()
    blocks = 8
    rows = blocks * memo_index.MEMO_BLOCK_ROWS

    def publish_all() -> None:
        for number in range(rows):
            clerk.publish(message(source, number))

    def slices(order: str = "") -> int:
        spec = QuerySpec(
            filter=parse("/qty = 1000"), order_by=parse_order_by(order) if order else ()
        )
        return len(list(clerk.query(spec)))

    publish_all()
    assert slices() == blocks  # first use of the field
    assert slices() == blocks // 2  # all parsed: as many blocks in a slice as allowed
    assert slices("/px") == blocks  # first use of a field to sort by
    publish_all()
    assert slices() == blocks  # all have changed since


@settings(deadline=None, max_examples=examples(30, 6))
@given(seed=st.integers(0, 10**6), data=st.data())
def test_indexes_follow_any_changes(seed: int, data: st.DataObject) -> None:
    source = random.Random(seed)
    clerk = make_clerk()
    for _ in range(6):
        for _ in range(source.randrange(60)):
            disturb(clerk, source, 70)
        text = data.draw(st.sampled_from([text for text in FILTERS if "{" not in text]))
        found = run(clerk.query(QuerySpec(filter=parse(text))))
        assert sorted(found) == sorted(naive(current(clerk), text))


def test_blocks_have_their_usual_size() -> None:
    assert memo_index.MEMO_BLOCK_ROWS != MEMO_BLOCK_ROWS  # the fixture works


SPELLINGS = (
    *("0", "-0", "-0.0", "0.0", "0e5", "5", "5.0", "05", "-1.0", "1e5", "100000", "0.1", ".1"),
    *("1e16", "1e+16", "10000000000000000", "1e22", "1.5e300", "123456789.125", "0.0000001"),
    *("9007199254740992", "9007199254740993", "9007199254740993.0", "1234567890123456789"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808"),
    *("-9223372036854775809", "18446744073709551615", "18446744073709551616"),
)
NO_JSON = ("05", ".1", "1e+16")


@pytest.mark.parametrize(
    "spec",
    [
        topic_spec("/id"),
        topic_spec("/id", "/n"),
        topic_spec("/n", hash_indexes=(("/id",),)),
        topic_spec("/n", hash_indexes=(("/id", "/n"),)),
    ],
    ids=["SOW key", "SOW key of two", "hash index", "hash index of two"],
)
def test_what_equals_a_text_is_found_by_it(spec: TopicSpec, pytestconfig: pytest.Config) -> None:
    """Empty texts, which are NULL, equal nothing; numbers equal texts that are they.

    Every value in long runs; in others, a third of them with all queries.
    """
    values = [text for text in SPELLINGS if text not in NO_JSON]
    values += [f'"{text}"' for text in ("", "x", *SPELLINGS)]
    queries = [
        (
            wanted,
            QuerySpec(filter=parse(f"{wanted} AND /n = 'a'")),
            QuerySpec(filter=parse(f"NOT NOT {wanted}")),
        )
        for text in ("", "x", *SPELLINGS)
        for wanted in (f"/id = '{text}'", f"/id IN ('{text}', 'q')")
    ]
    values += ["null", "[]", '["5", ""]', "true"]
    for value in values[:: 1 if pytestconfig.getoption("--long") else 3]:
        clerk = Clerk(make_topic(spec))
        clerk.publish(f'{{"id":{value},"n":"a"}}'.encode())
        for wanted, by_index, by_scan in queries:
            assert clerk.bodies(by_index) == clerk.bodies(by_scan), (value, wanted)
