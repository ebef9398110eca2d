"""Publish and subscribe: rates, latencies and memory, beside other servers.

    python -m benchmarks.pubsub

All servers run at the same time, and every round measures each of them, so that a change in what
else the machine does meets all alike. Numbers are medians over the rounds.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness import Server, amperage, mosquitto, nats, relay, tool
from benchmarks.tables import print_table
from benchmarks.works import MIXED

ROUNDS = 3
SECONDS = ("-warm", "0.3", "-secs", "1.2")
SUBSCRIPTIONS = 1000
CONNECTIONS = 2000
EVERYBODY = frozenset({"amps", "nats", "mqtt", "raw"})
US_ONLY = frozenset({"amps"})
PATTERNED = frozenset({"amps", "nats"})
"""Those with subscriptions by pattern that the load generator can say."""

_AMPS_LOGON = b'{"c":"logon","cid":"1","client_name":"idle-%06d","mt":"json","a":"processed"}'
_MQTT_CONNECT = b"\x10\x17\x00\x04MQTT\x04\x02\x00\x00\x00\x0bidle-%06d"
HELLOS = {
    "amps": struct.pack(">I", len(_AMPS_LOGON % 0)) + _AMPS_LOGON,
    "nats": b'CONNECT {"verbose":false,"name":"idle-%06d"}\r\nPING\r\n',
    "mqtt": _MQTT_CONNECT,
}
"""What a client says first, by protocol, with room for its number."""


@dataclass(frozen=True, slots=True)
class Work:
    """Something that the load generator makes servers do.

    Attributes:
        name: what the table calls it.
        arguments: those of the load generator.
        keys: what to read off: name of a further row, or nothing, and key of the measurement.
        protocols: the protocols in which it can be said.
    """

    name: str
    arguments: Sequence[str]
    keys: Sequence[tuple[str, str]] = (("", "deliv_s"),)
    protocols: frozenset[str] = EVERYBODY


def _latency(rate: int) -> Work:
    return Work(
        f"latency at {rate:,}/s, microseconds:",
        ("-mode", "latency", "-rate", str(rate)),
        ((" p50", "p50_us"), (" p99", "p99_us")),
    )


_FILTERED = ("-subs", str(SUBSCRIPTIONS), "-filter", "eq", "-window", "8192")
WORKS = (
    Work("1 to 1, 256 B", ("-size", "256")),
    Work("1 to 1, 1 KB", ("-size", "1024")),
    Work("1 to 10, 256 B", ("-subs", "10", "-window", "4096")),
    Work("1 to 1, 256 B, mixed", ("-size", "256", *MIXED), protocols=PATTERNED),
    Work("1 to 1, 1 KB, mixed", ("-size", "1024", *MIXED), protocols=PATTERNED),
    Work("1 to 10, 256 B, mixed", ("-subs", "10", "-window", "4096", *MIXED), protocols=PATTERNED),
    Work("10 publishers, 256 B, mixed", ("-pubs", "10", *MIXED), protocols=PATTERNED),
    Work("1 to 1, one filter", ("-filter", "eq"), protocols=US_ONLY),
    Work("1,000 filters, 10 connections", (*_FILTERED, "-subconns", "10"), protocols=US_ONLY),
    Work("1,000 filters, 1,000 connections", _FILTERED, protocols=US_ONLY),
    Work("1 to 1, processed acks", ("-ack", "processed"), protocols=US_ONLY),
    _latency(1_000),
    _latency(10_000),
)


def main() -> None:
    """Measure and print."""
    tool("ampsload")
    with contextlib.ExitStack() as running:
        started = [running.enter_context(start()) for start in (amperage, nats, mosquitto, relay)]
        servers = [server for server in started if server is not None]
        memory = _memory_rows(servers)
        rows = [row for work in WORKS for row in _rows(work, servers)]
    print_table(
        f"Deliveries a second, 256 B if not said otherwise (medians of {ROUNDS} rounds)",
        ["", *(server.name for server in servers), "Amperage, CPU us/message"],
        rows,
    )
    print_table("Memory, bytes", ["", *(server.name for server in servers)], memory)


def _rows(work: Work, servers: Sequence[Server]) -> list[list[object]]:
    able = [server for server in servers if server.protocol in work.protocols]
    rounds = [
        {server: server.load(*SECONDS, *work.arguments) for server in able} for _ in range(ROUNDS)
    ]

    def median(server: Server, key: str) -> float:
        return statistics.median(one[server][key] for one in rounds)

    ours = servers[0]
    return [
        [
            work.name + suffix,
            *(median(server, key) if server in able else None for server in servers),
            median(ours, "srv_cpu_us_msg"),
        ]
        for suffix, key in work.keys
    ]


def _memory_rows(servers: Sequence[Server]) -> list[list[object]]:
    """What a connection costs that says nothing, and a subscription with a filter of its own."""
    each: list[object] = [
        _connection_bytes(server) if server.protocol in HELLOS else None for server in servers
    ]
    nothing: list[object] = [None] * (len(servers) - 1)
    return [
        [f"a connection that says nothing (of {CONNECTIONS:,})", *each],
        [
            "a subscription with its own filter (of 10,000)",
            _subscription_bytes(servers[0]),
            *nothing,
        ],
    ]


def _connection_bytes(server: Server) -> int:
    hello = HELLOS[server.protocol]
    with contextlib.ExitStack() as held:

        def connect(number: int) -> None:
            peer = held.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            peer.sendall(hello % number)
            peer.recv(4096)

        connect(0)
        before = server.resident_bytes
        for number in range(1, CONNECTIONS + 1):
            connect(number)
        time.sleep(0.3)  # until the last hello has been dealt with everywhere
        return (server.resident_bytes - before) // CONNECTIONS


def _subscription_bytes(server: Server) -> int:
    arguments = ("-n", "1", "-filter", "eq", "-subconns", "10")
    few = server.load(*arguments, "-subs", "10")["srv_rss_mb"]
    many = server.load(*arguments, "-subs", "10010")["srv_rss_mb"]
    return round((many - few) * 1024 * 1024 / 10_000)


if __name__ == "__main__":
    main()
