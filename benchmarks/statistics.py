"""What statistics cost: taking samples, counting, and showing everything at once.

    python -m benchmarks statistics

With 1,000 clients that have 10 subscriptions each and send nothing, all that the server does is to
take and record samples. The first table has the processor time of that, as a share of one core; the
engine's thread is the one that messages go through. The second has what the largest document costs
whoever asks for it, the third what making /metrics costs. The last has messages from one client to
one and to ten others, without statistics and with a sample each second, beside a relay that only
copies bytes.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from amperage.wire.framing import frame
from amperage.wire.header import Header, encode_header
from benchmarks.harness import Server, amperage, free_port, relay
from benchmarks.tables import print_table
from server.admin.http.messages import HttpDocument
from server.admin.metrics.exposition import ExpositionFormat, render
from server.admin.metrics.pages import families_of
from server.statistics.resources import CLIENTS as CLIENT_ENTRIES
from server.statistics.resources import RESOURCES, SOW
from server.statistics.sample import StatisticsSnapshot
from server.statistics.schema import ColumnType, Resource, StatisticValue

CLIENTS: Final = 1_000
SUBSCRIPTIONS: Final = 10
TOPICS: Final = 1_000
INTERVALS: Final = (10, 1)
WINDOW_SECONDS: Final = 40
ASKED: Final = 20
RUNS: Final = 5
_TICK: Final = 1 / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print."""
    collecting: list[list[object]] = []
    showing: list[list[object]] = []
    for interval in (None, *INTERVALS):
        with _server(interval) as (server, admin), _clients(server):
            title = "none" if interval is None else f"one each {interval} s"
            collecting.append([title, *_shares(server.pid)])
            if interval == 1:
                showing = [[path, *_shown(admin, path)] for path in _PATHS]
    print_table(
        f"{CLIENTS:,} clients with {CLIENTS * SUBSCRIPTIONS:,} subscriptions that do nothing",
        ["samples", "engine's thread, % of a core", "other threads, %"],
        collecting,
    )
    print_table(
        "Showing what there is of them",
        ["path", "MB", "ms, first after a sample", "ms, later (median)"],
        showing,
    )
    print_table(
        f"Making /metrics of {CLIENTS:,} clients and {TOPICS:,} topics, once per sample",
        ["form", "MB", "MB, gzip", "ms of processor time"],
        list(_scraped()),
    )
    print_table(
        f"Processor time of a message of 256 B, us (median of {RUNS} runs, in turns)",
        ["", "1 to 1", "1 to 10"],
        list(_beside_messages()),
    )


_PATHS: Final = ("/amps/instance.json", "/amps/instance/clients.json", "/amps.json")


def _scraped() -> Iterator[list[object]]:
    """The size of /metrics, and the milliseconds of processor time that making one takes."""
    snapshot = StatisticsSnapshot(0, {one.path: _entries(one) for one in RESOURCES})
    for form in ExpositionFormat:
        took = []
        for _ in range(ASKED):
            begun = time.thread_time()
            document = HttpDocument(render(families_of(snapshot, []), form), form.value)
            size = len(document.content), len(document.compressed)
            took.append(time.thread_time() - begun)
        yield [form.name, size[0] / 1e6, size[1] / 1e6, 1e3 * statistics.median(took)]


def _entries(resource: Resource) -> dict[str, tuple[StatisticValue, ...]]:
    """Entries of a resource: many of topics and clients, and one of all else."""
    count = {CLIENT_ENTRIES.path: CLIENTS, SOW.path: TOPICS}.get(resource.path, 1)
    return {
        str(number): tuple(
            f"{one.name}-{number}" if one.type is ColumnType.TEXT else number * 1_000
            for one in resource.fields
        )
        for number in range(count)
    }


@contextmanager
def _server(interval: int | None) -> Iterator[tuple[Server, int]]:
    """A server that takes a sample each so many seconds, or none; and its admin interface."""
    admin = free_port()
    section = ""
    if interval is not None:
        address = f"<InetAddr>127.0.0.1:{admin}</InetAddr>"
        section = f"<Admin>{address}<Interval>{interval}s</Interval></Admin>"
    with amperage(section) as server:
        yield server, admin


@contextmanager
def _clients(server: Server) -> Iterator[None]:
    """Clients with subscriptions, that send nothing more."""
    with ExitStack() as stack:
        for number in range(CLIENTS):
            connection = stack.enter_context(
                socket.create_connection(("127.0.0.1", server.port), 30)
            )
            connection.sendall(_logon(number) + b"".join(map(_subscription, range(SUBSCRIPTIONS))))
            answered = 0
            while answered < 1 + SUBSCRIPTIONS:
                answered += connection.recv(1 << 16).count(b'"status":"success"')
        yield


def _logon(number: int) -> bytes:
    header = Header(
        "logon", client_name=f"client-{number}", message_type="json", command_id="1",
        acks="processed",
    )  # fmt: skip
    return frame(encode_header(header))


def _subscription(number: int) -> bytes:
    header = Header(
        "subscribe", topic=f"topic-{number}", short_filter=f"/id = {number}", sub_id=str(number),
        command_id=str(number), acks="processed",
    )  # fmt: skip
    return frame(encode_header(header))


def _shares(pid: int) -> tuple[float, float]:
    """Of one core, in percent, what the engine's thread takes, and what all others do."""
    time.sleep(2)  # until what the clients have begun is done
    began, before = time.monotonic(), _used(pid)
    time.sleep(WINDOW_SECONDS)
    seconds, after = time.monotonic() - began, _used(pid)
    engine, others = (100 * (b - a) / seconds for a, b in zip(before, after, strict=True))
    return engine, others


def _used(pid: int) -> tuple[float, float]:
    """Seconds of the processor that the first thread has used, and all others."""
    used: dict[int, float] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        numbers = (task / "stat").read_text().rpartition(")")[2].split()
        used[int(task.name)] = (int(numbers[11]) + int(numbers[12])) * _TICK
    return used.pop(pid), sum(used.values())


def _shown(admin: int, path: str) -> tuple[float, float, float]:
    """Megabytes of a document, and milliseconds until all of it has come: first, and later."""
    took = []
    first = []
    size = 0
    for _ in range(ASKED):
        time.sleep(1)
        size, seconds = _ask(admin, path)
        first.append(seconds)
        took.append(_ask(admin, path)[1])
    return size / 1e6, 1e3 * statistics.median(first), 1e3 * statistics.median(took)


def _ask(admin: int, path: str) -> tuple[int, float]:
    connection = http.client.HTTPConnection("127.0.0.1", admin, timeout=60)
    try:
        began = time.perf_counter()
        connection.request("GET", path)
        body = connection.getresponse().read()
        seconds = time.perf_counter() - began
        json.loads(body)
        return len(body), seconds
    finally:
        connection.close()


def _beside_messages() -> Iterator[list[object]]:
    """Without statistics, with them, and of the floor, measured in turns."""
    with ExitStack() as stack:
        plain, _ = stack.enter_context(_server(None))
        counting, _ = stack.enter_context(_server(1))
        floor = stack.enter_context(relay())
        servers = {"no statistics": plain, "a sample each second": counting, floor.name: floor}
        costs: dict[tuple[str, int], list[float]] = {}
        for _ in range(RUNS):
            for subscribers in (1, 10):
                for name, server in servers.items():
                    measured = server.load("-size", "256", "-secs", "2", "-subs", str(subscribers))
                    costs.setdefault((name, subscribers), []).append(measured["srv_cpu_us_msg"])
    for name in servers:
        yield [name, *(statistics.median(costs[name, subscribers]) for subscribers in (1, 10))]


if __name__ == "__main__":
    main()
