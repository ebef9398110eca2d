"""SUBSCRIBE against a model: its rows, summed up, are the records that the user may see."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config_schema.problems import Location
from config_schema.spec import ConflatedTopicSpec, TopicRef
from server.expressions.backends.columns import warm_up
from server.security.permissions import ALL_PERMISSIONS, Permissions
from server.sql.live import feed
from server.sql.live.feed import LiveWait
from server.sql.live.rows import LiveRows
from server.sql.live.statements import LiveStatements
from server.sql.query.cancellation import Cancellation
from server.sql.query.errors import SqlError
from server.sql.query.query_engine import QueryEngine
from server.sql.query.session import SqlSession
from server.sql.query.statement_parser import parse
from server.sql.tables import column_query, scan
from server.sql.tables.errors import ColumnsWidenedError
from tests.engine.support import Core, CorePeer
from tests.sql.tables.support import Tables
from tests.sql.tables.test_catalogue import permissions, rule
from tests.storage.sow.support import topic_spec
from tests.storage.views.support import view
from tests.support.chances import examples
from tests.support.raw import frame

pytestmark = pytest.mark.process


IDS = range(6)


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[QueryEngine]:
    warm_up()
    engine = QueryEngine()
    yield engine
    engine.close()


class Live:
    """A user's live statements, and queries of the same tables.

    Args:
        core: the engine.
        engine: plans and executes queries.
        permitted: what the user may read.
    """

    def __init__(
        self, core: Core, engine: QueryEngine, permitted: Permissions = ALL_PERMISSIONS
    ) -> None:
        self._engine = engine
        self._session = SqlSession("tester", "any", 1)
        self.tables = Tables(core, permitted)
        self.notified: list[bytes] = []
        source = self.tables.source
        self.statements = LiveStatements(
            source, source._session, self.tables._posted.put, self.notified.append
        )

    def subscribe(self, text: str, between: Callable[[], None] = lambda: None) -> LiveRows:
        """Begin a SUBSCRIBE, once more if columns are widened by it."""
        (statement,) = parse(f"COPY (SUBSCRIBE {text}) TO STDOUT")
        terms = statement.live
        assert terms is not None

        def begin() -> LiveRows:
            plan, as_of = self._engine.plan_live(statement, self.tables.source, self._session)
            return self.statements.subscribe(terms, plan, Cancellation(), as_of)

        for _ in range(5):
            try:
                return self.tables.call(begin, between)
            except ColumnsWidenedError:
                continue
        raise AssertionError("columns are widened again and again")

    def execute(self, text: str) -> None:
        """Execute LISTEN, UNLISTEN or NOTIFY."""
        (statement,) = parse(text)
        self.tables.call(lambda: self.statements.execute(statement))

    def query(self, text: str) -> Counter[tuple[Any, ...]]:
        """The rows of a query."""
        (statement,) = parse(text)
        for _ in range(5):
            try:
                result = self.tables.call(
                    lambda: self._engine.execute(statement, self.tables.source, self._session)
                )
            except ColumnsWidenedError:
                continue
            return Counter(row for batch in result.batches() for row in _rows(batch))
        raise AssertionError("columns are widened again and again")


def _rows(batch: Any) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def take(rows: LiveRows) -> list[tuple[Any, ...]]:
    """The rows that are there."""
    found: list[tuple[Any, ...]] = []
    for batch in rows.fetch(None, 0):
        if not isinstance(batch, LiveWait):
            found += _rows(batch)
    return found


def summed(rows: Sequence[tuple[Any, ...]], start: int = 2) -> Counter[tuple[Any, ...]]:
    """The rows without time and difference, counted; none may ever be there less than once."""
    state: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        state[row[start:]] += row[start - 1]
        assert state[row[start:]] in (0, 1), row
    return +state


def make_core(*, is_journaled: bool = False, directory: Any = None) -> Core:
    core = Core()
    core.keep(topic_spec("/id", expiration_enabled=True))
    if is_journaled:
        core.record(directory, "orders")
    core.derive(
        view("totals", "orders", projection="/s AS /s; SUM(/n) AS /n", grouping="/s"),
        ConflatedTopicSpec(
            name="slow",
            message_type="json",
            underlying=TopicRef("orders", "json"),
            interval=100_000_000,
            filter=None,
            hash_indexes=(),
            enrichment=(),
            topic_format=None,
            name_has_regex_characters=False,
            location=Location("config.xml", 1),
        ),
    )
    return core


def do(core: Core, peer: CorePeer, action: tuple[Any, ...]) -> None:
    """Publish, delete, or let time pass."""
    kind, *terms = action
    match kind:
        case "publish" | "delta_publish":
            id_, fields, lifetime = terms
            header = {"c": kind, "t": "orders"} | ({"e": lifetime} if lifetime else {})
            peer.send(header, json.dumps({"id": id_} | fields).encode())
        case "run":
            peer.send_bytes(
                b"".join(
                    frame({"c": "p", "t": "orders"}, json.dumps({"id": id_} | fields).encode())
                    for id_, fields in terms[0]
                )
            )
        case "delete":
            peer.send({"c": "sow_delete", "t": "orders", "filter": f"/id = {terms[0]}"})
        case "clear":
            peer.send({"c": "sow_delete", "t": "orders", "filter": f"/n > {terms[0]}"})
        case "wait":
            core.clock.advance(terms[0])


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "n": st.integers(0, 4),
        "s": st.sampled_from(["a", "b", "", "ö"]),
        "x": st.sampled_from([1, 2.5, "text", None, [1]]),
        "hidden": st.integers(0, 2),
    },
)
IDENTITIES = st.sampled_from(IDS)
ACTIONS = st.one_of(
    st.tuples(
        st.sampled_from(["publish", "publish", "delta_publish"]),
        IDENTITIES,
        FIELDS,
        st.sampled_from([0, 0, 0, 3]),
    ),
    st.tuples(st.just("run"), st.lists(st.tuples(IDENTITIES, FIELDS), min_size=1, max_size=5)),
    st.tuples(st.just("delete"), IDENTITIES),
    st.tuples(st.just("clear"), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.sampled_from([0.3, 4])),
)
CONDITIONS = ["", "n > 1", "n <= 2", "s = 'a'", "n > 0 AND (s = 'a' OR n = 3)", "n IS NULL"]
CONDITIONS += ["n % 2 = 0", "upper(s) = 'A' OR n + 1 > 3", "CASE WHEN n > 0 THEN 6 / n > 2 END"]
"""The last ones are decided by DuckDB."""

COLUMNS = ["*", "s, n, _key"]
EXPRESSIONS = [
    "_key, n * 2 + 1 AS d, CASE WHEN n > 1 THEN s ELSE 'small' END",
    "*, coalesce(s, '-') || n::text, _timestamp IS NULL",
    "1 AS one, _key",
]
PERMITS = [None, "/n < 3", "/hidden = 1", "/s = 'a' OR /n = 2"]
SELECTS = [None, "-/hidden,-/x"]


@pytest.mark.parametrize("topic", ["orders", "totals", "slow"])
@pytest.mark.parametrize("is_journaled", [False, True])
def test_rows_add_up_to_the_records(
    topic: str, is_journaled: bool, engine: QueryEngine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever happens before, during and after the snapshot, and whatever the user may see."""

    @settings(max_examples=examples(25))
    @given(
        st.lists(ACTIONS, max_size=12),
        st.lists(ACTIONS, max_size=4),
        st.lists(ACTIONS, max_size=12),
        st.sampled_from(CONDITIONS),
        st.sampled_from(PERMITS),
        st.sampled_from(SELECTS),
        st.sampled_from([*COLUMNS, *EXPRESSIONS]),
    )
    def check(
        before: list[tuple[Any, ...]],
        during: list[tuple[Any, ...]],
        after: list[tuple[Any, ...]],
        condition: str,
        permit: str | None,
        select: str | None,
        columns: str,
    ) -> None:
        core = make_core(
            is_journaled=is_journaled,
            directory=tmp_path_factory.mktemp("journal") if is_journaled else None,
        )
        publisher = core.log_on("publisher")
        # columns are there from the beginning, and hold all values
        for id_, x in enumerate(["text", [1]]):
            fields = {"n": 1, "s": "a", "x": x, "hidden": 1}
            do(core, publisher, ("publish", id_, fields, 0))
        core.clock.advance(1)
        permitted: Permissions = ALL_PERMISSIONS
        if permit is not None or select is not None:
            permitted = permissions(
                rule("orders", permit, select), rule("totals", permit), rule("slow", permit, select)
            )
        live = Live(core, engine, permitted)
        sees_fields = False
        live.tables.all()
        for action in before:
            do(core, publisher, action)
        core.clock.advance(0.3)
        where = f" WHERE {condition}" if condition else ""
        text = f"SELECT {columns} FROM {topic}{where}"
        with suppress(SqlError):  # the user sees no record with such a field
            live.query(text)
            sees_fields = True
        if not sees_fields:
            return
        expected_before = live.query(text)
        pending = list(during)

        def between() -> None:
            if pending and live.tables.is_scanning:
                do(core, publisher, pending.pop(0))

        rows = live.subscribe(f"({text})", between)
        found = take(rows)
        if len(pending) == len(during):
            assert _lenient(summed(found)) == _lenient(expected_before)
        for action in [*pending, *after]:
            do(core, publisher, action)
            if action[0] == "wait":
                found += take(rows)
        core.clock.advance(0.3)
        found += take(rows)
        assert _lenient(summed(found)) == _lenient(live.query(text))
        live.statements.close()

    check()


def _lenient(counted: Counter[tuple[Any, ...]]) -> Counter[str]:
    return Counter({json.dumps(row, default=str): count for row, count in counted.items()})


def test_changes_during_the_snapshot_come_once(
    engine: QueryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of them are of records that the snapshot has read, some of ones that it has not."""
    for module in ("indexes.memo_index", "query.query", "snapshot", "record_table"):
        monkeypatch.setattr(f"server.storage.sow.{module}.MEMO_BLOCK_ROWS", 16)
    monkeypatch.setattr(column_query, "MEMO_BLOCK_ROWS", 16)
    monkeypatch.setattr(column_query, "_RECORD_BATCH_SIZE", 5)
    monkeypatch.setattr(scan, "_SLICE_SECONDS", 0)
    core = make_core()
    publisher = core.log_on("publisher")
    do(core, publisher, ("run", [(id_, {"n": id_ % 5, "s": "a"}) for id_ in range(300)]))
    for condition in ("", " WHERE n > 1"):
        live = Live(core, engine)
        live.tables.all()
        changed = iter(range(299, -1, -7))
        made = 0

        def between(live: Live = live, changed: Iterator[int] = changed) -> None:
            nonlocal made
            id_ = next(changed, None)
            if id_ is not None and live.tables.is_scanning:
                made += 1
                do(core, publisher, ("publish", id_, {"n": id_ % 3, "s": "b"}, 0))
                do(core, publisher, ("delete", id_ // 2))
                do(core, publisher, ("publish", 1000 + id_, {"n": 3}, 0))

        text = f"SELECT * FROM orders{condition}"
        rows = live.subscribe(f"({text})", between)
        assert made > 3
        assert summed(take(rows)) == live.query(text)
        live.statements.close()


def test_too_many_changes_end_a_subscription(
    engine: QueryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MAX_PENDING_BYTES", 1_000_000)
    core = make_core()
    publisher = core.log_on("publisher")
    do(core, publisher, ("publish", 1, {"s": ""}, 0))
    live = Live(core, engine)
    rows = live.subscribe("TO orders")
    for number in range(30):
        do(core, publisher, ("publish", 1, {"s": f"{number}" * 50_000}, 0))
    core.clock.advance(0)
    topic = core.engine.topics.find("json", "orders")
    assert topic.subscription_count == 0
    take(rows)  # the snapshot
    with pytest.raises(SqlError, match="MB of changes have waited") as caught:
        take(rows)
    assert caught.value.sqlstate == "53200"


def test_a_permit_that_changes_by_itself_cannot_be_followed(engine: QueryEngine) -> None:
    core = make_core()
    publisher = core.log_on("publisher")
    do(core, publisher, ("publish", 1, {"s": "a"}, 0))
    live = Live(core, engine, permissions(rule("orders", "/n < UNIX_TIMESTAMP()")))
    with pytest.raises(SqlError, match="cannot be followed"):
        live.subscribe("TO orders")
    assert core.engine.topics.find("json", "orders").subscription_count == 0


def test_a_failed_subscription_fails_the_statement(engine: QueryEngine) -> None:
    core = make_core()
    publisher = core.log_on("publisher")
    do(core, publisher, ("publish", 1, {"s": "a"}, 0))
    live = Live(core, engine)
    rows = live.subscribe("TO orders WITH (snapshot = false)")
    core.engine.topics.find("json", "orders").end_subscriptions(ValueError("broken"))
    core.clock.advance(0)
    with pytest.raises(SqlError, match=r"has ended: .*broken"):
        take(rows)
    assert core.engine.topics.find("json", "orders").subscription_count == 0
    assert "14-0002" in [name for name, _ in core.log.entries]


def test_channels_have_each_message_once(engine: QueryEngine) -> None:
    core = make_core()
    publisher = core.log_on("publisher")
    live = Live(core, engine)
    live.execute("LISTEN orders")
    live.execute("LISTEN orders")
    do(core, publisher, ("run", [(1, {"n": 1}), (2, {"n": 2})]))
    do(core, publisher, ("delete", 1))
    assert len(live.notified) == 2
    with pytest.raises(SqlError, match="does not exist"):
        live.execute(f'LISTEN "{"x" * 100_000}"')
    live.execute("UNLISTEN orders")
    do(core, publisher, ("publish", 1, {}, 0))
    assert len(live.notified) == 2
