"""What views cost: per update, by the size of groups, per joined row, and to make anew.

    python -m benchmarks views

Everything runs in this process on one core, without sockets: what is published goes through the
topic, its records, the view and its records. CPU time is measured, for the machine may be shared.
The floor is the same topic without a view. DuckDB computes the same from scratch, over a table.
"""

from __future__ import annotations

import gc
import io
import random
import time
from collections.abc import Callable, Sequence

import duckdb
import pyarrow.json

from benchmarks.tables import print_table
from config_schema.compile.references import parse_join
from config_schema.problems import Location
from config_schema.spec import JoinSpec, TopicRef, TopicSpec, ViewSpec
from server.engine.engine import Engine
from server.expressions import BUILTINS
from server.message_types.registry import MessageTypes
from server.storage.sow.memory_store import MemoryStore
from server.storage.sow.topic_records import SowTopicRecords
from server.topics.settings import EngineSettings
from server.topics.subscriptions.delivery.envelope import Envelope
from server.util.clock import SteadySeconds, WallSeconds

RECORDS = 1_000_000
GROUPS = 10_000
UPDATES = 50_000
SMALLER = 100_000
"""Records where only the size of groups changes."""
SIZES = (1, 10, 100, 1_000, 100_000)
BATCH = 100

HERE = Location("benchmark", 1)
FIVE = (
    "/sym",
    "COUNT(/id) AS /n",
    "SUM(/qty) AS /qty",
    "AVG(/px) AS /mean",
    "MIN(/px) AS /low",
    "MAX(/px) AS /high",
)
FIVE_SQL = "SELECT sym, count(id), sum(qty), avg(px), min(px), max(px) FROM trades GROUP BY sym"
JOINED = (
    "[trades]./id AS /id",
    "[trades]./qty * [trades]./px AS /value",
    "[companies]./name AS /name",
)
JOINED_SQL = (
    "SELECT t.id, t.qty * t.px, c.name FROM trades t LEFT JOIN companies c ON t.sym = c.sym"
)


class _Silence:
    """A log that nobody reads."""

    def emit(self, message_id: str, /, **fields: object) -> None:
        """Drop an entry."""

    def enabled(self, message_id: str) -> bool:
        """Nothing is written."""
        return not message_id


class _Clock:
    """The wall clock; nothing is called later."""

    wall_offset_s = 0.0

    def now(self) -> WallSeconds:
        """Return the time."""
        return WallSeconds(time.time())

    def steady(self) -> SteadySeconds:
        """Return the same time."""
        return SteadySeconds(self.now())

    steady_unpaused = steady

    def on_wall_clock_step(self, _notify: Callable[[float], None]) -> Callable[[], None]:
        """Ignore the function: this clock is never set."""
        return lambda: None

    def call_later(self, _delay: float, _callback: Callable[[], None]) -> Callable[[], None]:
        """Forget a call."""
        return lambda: None


class Bench:
    """An engine with the topics `trades` and `companies`, in memory."""

    def __init__(self) -> None:
        types = MessageTypes()
        self.json = types.get("json")
        self.engine = Engine(
            EngineSettings(
                "bench", {"json": self.json}, {"json": "json"}, frozenset(), BUILTINS, True
            ),
            _Silence(),
            _Clock(),
            time.perf_counter,
        )
        for name, key in ("trades", "/id"), ("companies", "/sym"):
            sow = SowTopicRecords(_topic(name, key), self.json, MemoryStore(), BUILTINS)
            self.engine.sow_registry.add(sow, sow.table.store.commit)

    def publish(self, topic: str, bodies: Sequence[bytes]) -> float:
        """Publish messages, and give the CPU seconds that it took."""
        envelope = Envelope(None, time.time())
        begun = time.process_time()
        for start in range(0, len(bodies), BATCH):
            self.engine.topics.find("json", topic).publish(bodies[start : start + BATCH], envelope)
        return time.process_time() - begun

    def derive(self, *specs: ViewSpec) -> float:
        """Make views of what there is, and give the CPU seconds that it took."""
        for spec in specs:
            self.engine.add_derived_topic(spec)
        begun = time.process_time()
        self.engine.sow_registry.populate_derived()
        return time.process_time() - begun


def main() -> None:
    """Measure and print."""
    # The server's settings come close to that, see `server.process.garbage_collection`.
    gc.disable()
    _single_and_joined()
    print_table(
        f"An update of the 5-aggregate view over {SMALLER:,} records, by the size of groups",
        ["rows in each group", *(f"{size:,}" for size in SIZES)],
        [["CPU, us", *(round(_by_size(size), 1) for size in SIZES)]],
    )


def _single_and_joined() -> None:
    trades = [_trade(number, GROUPS) for number in range(RECORDS)]
    companies = [b'{"sym":"S%d","name":"Company %d"}' % (n, n) for n in range(GROUPS)]
    chance = random.Random(1)
    updates = [_trade(chance.randrange(RECORDS), GROUPS, chance.random()) for _ in range(UPDATES)]
    renames = [b'{"sym":"S%d","name":"Renamed"}' % chance.randrange(GROUPS) for _ in range(1000)]
    rows: list[list[object]] = []
    rebuilt: list[list[object]] = []

    def row(name: str, seconds: float, count: int) -> None:
        rows.append([name, round(count / seconds), round(seconds / count * 1e6, 1)])

    for name, views in (
        ("a view of 5 aggregates", [_view("positions", "trades", FIVE, "/sym")]),
        ("a two-way join, one row each", [_joined()]),
    ):
        bench = Bench()
        bench.publish("trades", trades)
        bench.publish("companies", companies)
        if not rows:
            row("no view: the floor", bench.publish("trades", updates), UPDATES)
        rebuilt.append([name, round(bench.derive(*views), 1)])
        row(name, bench.publish("trades", updates), UPDATES)
    each = RECORDS // GROUPS
    row(
        f"the same, per row: the other side changes, {each} rows each",
        bench.publish("companies", renames),
        len(renames) * each,
    )
    print_table(
        f"Updates of {RECORDS:,} records, {GROUPS:,} groups",
        ["", "updates/s", "CPU, us"],
        rows,
    )
    rebuilt += _duckdb(trades, companies)
    print_table(f"Made anew from {RECORDS:,} records", ["", "CPU, s"], rebuilt)


def _duckdb(trades: Sequence[bytes], companies: Sequence[bytes]) -> list[list[object]]:
    with duckdb.connect() as database:
        database.execute("SET threads = 1")
        for name, bodies in ("trades", trades), ("companies", companies):
            table = pyarrow.json.read_json(io.BytesIO(b"\n".join(bodies)))
            database.register("arrived", table)
            database.execute(f"CREATE TABLE {name} AS SELECT * FROM arrived")
        found: list[list[object]] = []
        for name, query in ("5 aggregates", FIVE_SQL), ("the join", JOINED_SQL):
            begun = time.process_time()
            database.execute(f"CREATE TABLE result AS {query}")
            found.append([f"{name} in DuckDB, from columns", round(time.process_time() - begun, 2)])
            database.execute("DROP TABLE result")
    return found


def _by_size(size: int) -> float:
    """CPU microseconds of an update where groups have so many rows."""
    groups = SMALLER // size
    bench = Bench()
    bench.publish("trades", [_trade(number, groups) for number in range(SMALLER)])
    bench.derive(_view("positions", "trades", FIVE, "/sym"))
    chance = random.Random(2)
    updates = [
        _trade(chance.randrange(SMALLER), groups, chance.random()) for _ in range(UPDATES // 2)
    ]
    return bench.publish("trades", updates) / len(updates) * 1e6


def _trade(number: int, groups: int, change: float = 0.0) -> bytes:
    price = round(100 + number % 977 / 10 + change, 2)
    return b'{"id":%d,"sym":"S%d","side":"BUY","qty":%d,"px":%.2f,"trader":"someone"}' % (
        number,
        number % groups,
        100 + number % 1000,
        price,
    )


def _topic(name: str, key: str) -> TopicSpec:
    return TopicSpec(
        name, "json", (key,), name, None, None, "transient", "epoch", False, None, 1 << 20, 1,
        None, (), (), None, (), (), None, False, HERE,
    )  # fmt: skip


def _view(name: str, source: str, projection: Sequence[str], *grouping: str) -> ViewSpec:
    return ViewSpec(
        name, "json", (TopicRef(source, "json"),), (), tuple(projection), grouping, None, name,
        False, False, (), False, HERE,
    )  # fmt: skip


def _joined() -> ViewSpec:
    sides = parse_join("[trades]./sym = [companies]./sym", "json")
    if sides is None:
        raise ValueError("not a join")
    return ViewSpec(
        "joined", "json", tuple(side.topic for side in sides), (JoinSpec(*sides, HERE),), JOINED,
        ("[trades]./id",), None, "joined", False, False, (), False, HERE,
    )  # fmt: skip


if __name__ == "__main__":
    main()
