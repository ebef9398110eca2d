"""What the message path is to reach: each work beside who does the same, or the floor, in one run.

    python -m benchmarks aims

Rates of sockets are medians of rounds in which ours and its peers take turns; the load generator
has its share of the processors meanwhile, and so a rate is a share of the machine's. Processor time
of the server, per message, is steadier. Queries and a start are counted by processor time alone.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.harness import Measurement, Server, nats, redis, relay, tool
from benchmarks.journal import ceiling
from benchmarks.journal_server import journaling, publishing, recovering, replaying
from benchmarks.sow import scans
from benchmarks.tables import print_table
from benchmarks.works import WORKS, Work, files, serving

ROUNDS: Final = 3
SECONDS: Final = 1.5
LOGGED: Final = 200_000
"""Messages that are replayed and recovered."""
RECORDS: Final = 500_000
"""Records that are queried."""

_Start = Callable[[], AbstractContextManager[Server | None]]
_PEERS: Final[Mapping[str, _Start]] = {
    "nats-server": nats,
    "Redis": redis,
    "relay, a write each": partial(relay, write_each=True),
}
_DISK: Final = "disk"
_PLAIN: Final = WORKS["plain"]


@dataclass(frozen=True, slots=True)
class Aim:
    """What a rate is to be at the least.

    Attributes:
        work: the name of the work.
        least: so many a second; with `of`, so many times that rate.
        of: a peer, the disk, or a work before this one.
    """

    work: str
    least: float
    of: str = ""


AIMS: Final = (
    Aim("plain", 1.0, "nats-server"),
    Aim("plain-1k", 1.3, "nats-server"),
    Aim("fan-out", 1.0, "Redis"),
    Aim("fan-out-1k", 1.0, "Redis"),
    Aim("five", 1_500_000),
    Aim("five-1k", 1_200_000),
    Aim("filters", 0.0),
    Aim("filters-10k", 0.8, "filters"),
    Aim("filters-100k", 0.8, "filters"),
    Aim("filtered-clients", 0.8, "relay, a write each"),
    Aim("log", 900_000),
    Aim("log-1k", 0.5, _DISK),
    Aim("records", 300_000),
    Aim("records-1k", 200_000),
    Aim("records-log", 250_000),
    Aim("records-log-1k", 150_000),
    Aim("plain-mixed", 1.0, "nats-server"),
    Aim("plain-mixed-1k", 1.0, "nats-server"),
    Aim("fan-out-mixed", 1.0, "nats-server"),
    Aim("publishers-mixed", 1.0, "nats-server"),
    Aim("thousand-topics", 1.0, "nats-server"),
    Aim("five-mixed", 2_000_000),
    Aim("filters-mixed", 0.0),
    Aim("log-mixed", 1_000_000),
    Aim("log-mixed-1k", 450_000),
    Aim("records-mixed", 400_000),
    Aim("records-log-mixed", 300_000),
)
"""In the order of the table."""


def main() -> None:
    """Measure and print."""
    tool("ampsload")
    rates: dict[str, float] = {}
    rows = [_row(aim, rates) for aim in AIMS]
    head = ["", "a second", "server CPU, us/message", "beside", "a second", "aim", "reached"]
    print_table(f"Rates (medians of {ROUNDS} rounds)", head, [*rows, *_replay_rows()])
    print_table(
        f"Queries of {RECORDS:,} records, a second of one core",
        ["", "a second", "DuckDB", "aim", "reached"],
        _query_rows(),
    )
    print_table(
        "From a publish to its arrival at 1,000 a second, us",
        ["", "Amperage", "beside", "us", "aim", "reached"],
        _latency_rows(),
    )


def _row(aim: Aim, rates: dict[str, float]) -> list[object]:
    """Measure one.

    Args:
        aim: what is measured.
        rates: those of the works before it, to which this one's is added.
    """
    work = WORKS[aim.work]
    rate, cost, other = _measured(work, _PEERS.get(aim.of))
    rates[work.name] = rate
    if aim.of == _DISK:
        other = _disk(work.size)
    elif aim.of in WORKS:
        other = rates[aim.of]
    name = WORKS[aim.of].what if aim.of in WORKS else aim.of or None
    least = aim.least * (other or 0.0) if aim.of else aim.least
    return [work.what, rate, cost, name, other, *_judged(rate, least)]


def _measured(work: Work, start: _Start | None) -> tuple[float, float, float | None]:
    """Our rate, our processor time of a message in us, and the rate of a peer, if there is one."""
    with ExitStack() as running:
        server = running.enter_context(serving(work))
        peer = running.enter_context(start()) if start else None
        rounds = []
        beside = []
        for _ in range(ROUNDS):
            rounds.append(work.load(server, seconds=SECONDS))
            if peer:
                # The relay has no filters: what it does for one subscriber is the floor.
                same = _PLAIN if peer.protocol == "raw" else work
                beside.append(_rate(same.load(peer, seconds=SECONDS)))
    return (
        statistics.median(map(_rate, rounds)),
        statistics.median(each["srv_cpu_us_msg"] for each in rounds),
        statistics.median(beside) if beside else None,
    )


def _rate(found: Measurement) -> float:
    """Messages a second or, where each has several subscribers, deliveries."""
    return max(found["msg_s"], found["deliv_s"])


def _judged(rate: float, least: float) -> tuple[float | None, str | None]:
    """An aim, and whether a rate reaches it; nothing where there is none, or no peer."""
    return (least, "yes" if rate >= least else "no") if least else (None, None)


def _disk(size: int) -> float:
    with tempfile.TemporaryDirectory(dir=files()) as directory:
        return statistics.median(ceiling(Path(directory), size) for _ in range(ROUNDS))


def _replay_rows() -> list[list[object]]:
    with tempfile.TemporaryDirectory(dir=files()) as name:
        replays, records = Path(name, "replays"), Path(name, "records")
        with journaling(replays) as server:
            publishing(server, "orders", 256, 1, LOGGED, "replay")
            replayed = statistics.median(replaying(server, 1, LOGGED) for _ in range(ROUNDS))
        with journaling(records) as server:
            publishing(server, "records", 256, 1, LOGGED, "recover")
        recovered = recovering(records, LOGGED)
    return [
        ["replay to one reader, 256 B", replayed, None, None, None, *_judged(replayed, 1e6)],
        ["recovery of records, 256 B", recovered, None, None, None, *_judged(recovered, 5e5)],
    ]


def _query_rows() -> list[list[object]]:
    service, duckdb = scans(RECORDS)
    start = RECORDS / service.start
    cold = max(1.5e6, duckdb.bodies)
    return [
        [
            "five predicates, warm",
            service.warm.rate,
            duckdb.columns,
            *_judged(service.warm.rate, 1e7),
        ],
        [
            "five predicates, cold",
            service.cold.rate,
            duckdb.bodies,
            *_judged(service.cold.rate, cold),
        ],
        ["records at a start", start, None, *_judged(start, 5e5)],
    ]


def _latency_rows() -> Sequence[list[object]]:
    paced = ("-mode", "latency", "-rate", "1000", "-size", "256", "-warm", "0.3", "-secs", "3")
    with ExitStack() as running:
        ours = running.enter_context(serving(_PLAIN))
        floor = running.enter_context(relay())
        peer = running.enter_context(nats())
        servers = [server for server in (ours, floor, peer) if server is not None]
        rounds = [{each: each.load(*paced) for each in servers} for _ in range(ROUNDS)]

    def median(server: Server, key: str) -> float:
        return statistics.median(one[server][key] for one in rounds)

    half, most = median(ours, "p50_us"), median(floor, "p50_us") + 10
    rows: list[list[object]] = [
        ["p50", half, floor.name, most - 10, most, "yes" if half <= most else "no"]
    ]
    if peer:
        late, latest = median(ours, "p99_us"), median(peer, "p99_us")
        rows.append(["p99", late, peer.name, latest, latest, "yes" if late <= latest else "no"])
    return rows


if __name__ == "__main__":
    main()
