"""SUBSCRIBE AS OF against a model: its rows, summed up, are the records of each moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.expressions.backends.columns import warm_up
from server.security.permissions import ALL_PERMISSIONS, Permissions
from server.sql.live import log_replay
from server.sql.live.rows import LiveRows
from server.sql.query.errors import SqlError
from server.sql.query.query_engine import QueryEngine
from tests.engine.support import Core
from tests.sql.live.test_model import (
    ACTIONS,
    COLUMNS,
    CONDITIONS,
    EXPRESSIONS,
    PERMITS,
    SELECTS,
    Live,
    do,
    summed,
    take,
)
from tests.sql.tables.test_catalogue import permissions, rule
from tests.storage.sow.support import SECOND, topic_spec
from tests.support.chances import examples

pytestmark = pytest.mark.process

Row = tuple[Any, ...]


class Moment(NamedTuple):
    """A moment, as AS OF has it, and the records at that time."""

    clause: str
    time: datetime | None
    records: Counter[Row]


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[QueryEngine]:
    warm_up()
    engine = QueryEngine()
    yield engine
    engine.close()


@pytest.mark.parametrize("history", [None, (1000 * SECOND, 0), (1000 * SECOND, 2 * SECOND)])
def test_rows_lead_from_the_moment_to_the_present(
    history: tuple[int, int] | None,
    engine: QueryEngine,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever happens before the moment, after it, during the replay, and then."""
    monkeypatch.setattr(log_replay, "_HANDOVER_ENTRIES", 2)
    monkeypatch.setattr(log_replay, "_BATCH_ENTRIES", 3)

    @settings(max_examples=examples(25))
    @given(
        st.lists(ACTIONS, max_size=8),
        st.lists(ACTIONS, max_size=8),
        st.lists(ACTIONS, max_size=4),
        st.lists(ACTIONS, max_size=5),
        st.sampled_from(CONDITIONS),
        st.sampled_from(PERMITS),
        st.sampled_from(SELECTS),
        st.sampled_from([*COLUMNS, *EXPRESSIONS]),
        st.booleans(),
        st.booleans(),
    )
    def check(
        before: list[Row],
        past: list[Row],
        during: list[Row],
        after: list[Row],
        condition: str,
        permit: str | None,
        select: str | None,
        columns: str,
        names_bookmark: bool,
        has_snapshot: bool,
    ) -> None:
        core = Core()
        core.keep(topic_spec("/id", expiration_enabled=True, history=history))
        core.record(tmp_path_factory.mktemp("journal"), "orders")
        publisher = core.log_on("publisher")

        def act(action: Row) -> None:
            do(core, publisher, action)
            core.commit()
            core.clock.advance(0.001)

        for id_, x in enumerate(["text", [1]]):  # columns hold all values from the beginning
            act(("publish", id_, {"n": 1, "s": "a", "x": x, "hidden": 1}, 0))
        core.clock.advance(1)
        permitted: Permissions = ALL_PERMISSIONS
        if permit is not None or select is not None:
            permitted = permissions(rule("orders", permit, select))
        live = Live(core, engine, permitted)
        live.tables.all()
        for action in before:
            act(action)
        where = f" WHERE {condition}" if condition else ""
        text = f"SELECT {columns} FROM orders{where}"
        records: Counter[Row] | None = None
        with suppress(SqlError):  # the user sees no record with such a field
            records = live.query(text)
        if records is None:
            return
        is_last_an_entry = not before or before[-1][0] != "wait"
        moment = _moment(core, records, names_bookmark=names_bookmark and is_last_an_entry)
        core.clock.advance(0.001)
        for action in past:
            act(action)
        pending = list(during)

        def between() -> None:
            if pending and live.tables.is_scanning:
                act(pending.pop(0))
            core.commit()
            core.run_helper_calls()

        options = "" if has_snapshot else " WITH (snapshot = false)"
        rows = live.subscribe(f"({text}) AS OF {moment.clause}{options}", between)
        found = [] if has_snapshot else _as_rows(moment.records)
        found += live.tables.call(lambda: take(rows), between)
        for action in [*pending, *after]:
            act(action)
            found += _take(live, rows, between)
        core.clock.advance(0.3)
        found += _take(live, rows, between)
        times = [row[0] for row in found if row[0] is not None]
        assert times == sorted(times)
        if moment.time is not None:
            at_moment = [row for row in found if row[0] is None or row[0] <= moment.time]
            assert _lenient(summed(at_moment)) == _lenient(moment.records)
        assert _lenient(summed(found)) == _lenient(live.query(text))
        live.statements.close()
        assert not core.transaction_log.holders()

    check()


def _moment(core: Core, records: Counter[Row], *, names_bookmark: bool) -> Moment:
    log = core.transaction_log
    if names_bookmark:
        return Moment(f"BOOKMARK '{log.bookmark_at(log.last_txid)}'", None, records)
    time = datetime.fromtimestamp(core.clock.now(), UTC)
    return Moment(f"'{time.isoformat()}'", time, records)


def _as_rows(records: Counter[Row]) -> list[Row]:
    return [(None, count, *row) for row, count in records.items()]


def _take(live: Live, rows: LiveRows, between: Callable[[], None]) -> Sequence[Row]:
    return live.tables.call(lambda: take(rows), between)


def _lenient(counted: Counter[Row]) -> Counter[str]:
    return Counter({repr(row): count for row, count in counted.items()})


@pytest.mark.parametrize("has_history", [False, True])
def test_a_log_without_its_beginning(
    has_history: bool, engine: QueryEngine, tmp_path: Path
) -> None:
    """History has the records of a moment that the log does not tell any more."""
    core = Core()
    core.keep(topic_spec("/id", history=(1000 * SECOND, 0) if has_history else None))
    core.record(tmp_path, "orders")
    publisher = core.log_on("publisher")
    journal = core.transaction_log.journal
    begun = datetime.fromtimestamp(core.clock.now(), UTC)
    core.clock.advance(1)
    number = 0
    while len(journal.files) < 3:
        do(core, publisher, ("publish", number % 3, {"n": number, "s": "x" * 50_000}, 0))
        core.commit()
        number += 1
    journal.remove(journal.files[0].number)
    core.clock.advance(1)
    moment = datetime.fromtimestamp(core.clock.now(), UTC)
    core.clock.advance(1)
    do(core, publisher, ("publish", 0, {"n": -1}, 0))
    live = Live(core, engine)
    live.tables.all()

    def between() -> None:
        core.commit()
        core.run_helper_calls()

    query = "(SELECT id, n FROM orders)"
    with pytest.raises(SqlError, match="nothing of that time any more"):
        live.subscribe(f"{query} AS OF '{begun.isoformat()}'", between)
    if has_history:
        rows = live.subscribe(f"{query} AS OF '{moment.isoformat()}'", between)
        found = [row[1:] for row in _take(live, rows, between)]
        assert [row[0] for row in found] == [1, 1, 1, -1, 1]
        assert found[4] == (1, 0, -1)
    else:
        with pytest.raises(SqlError, match="are not known"):
            live.subscribe(f"{query} AS OF '{moment.isoformat()}'", between)
    live.statements.close()
    assert not core.transaction_log.holders()
