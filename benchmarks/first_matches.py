"""What it costs that a filter matches for the first time, beside many others.

    python -m benchmarks.first_matches [MOST]

10,000 subscriptions with a filter each, on ten connections to one topic; every message matches one
of them. Then up to as many as are asked for, on a hundred: 1,000,000 take some minutes and 1.3 GB.
Everything runs in this process on one core: what is measured is the time of the processor in the
engine, from the bytes of a connection to the bytes for others.

At last the same of a server, on a hundred connections, with filters of two terms: in 200 forms with
other constants each, each in a form of its own, and each with a field of its own. Clients write
many commands at a time; the server's memory and time of the processor are divided by them.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from amperage.wire.framing import frame
from amperage.wire.header import Header, encode_header
from benchmarks.harness import Server, amperage
from benchmarks.tables import print_table
from benchmarks.topics import topic_spec
from server.engine.connection_context import ConnectionContext, ConnectionHandle
from server.engine.engine import Engine
from server.engine.session import Session
from server.expressions import BUILTINS
from server.message_types.registry import MessageTypes
from server.security.entitlement import FixedEntitlement
from server.security.modules import OPEN
from server.security.permissions import ALL_PERMISSIONS
from server.storage.sow.memory_store import MemoryStore
from server.storage.sow.topic_records import SowTopicRecords
from server.topics.settings import EngineSettings
from server.util.clock import SteadySeconds, WallSeconds

SUBSCRIPTIONS: Final = 10_000
CONNECTIONS: Final = 10
COUNTS: Final = (1_000, 10_000, 100_000, 1_000_000)
MANY_CONNECTIONS: Final = 100
MESSAGES: Final = 20_000
RESUBSCRIBED: Final = 1_000
TOPICS: Final = {"a topic without records": "passing", "a topic with records": "kept"}


def main(most: int = 100_000) -> None:
    """Measure and print.

    Args:
        most: the greatest number of subscriptions in the second table.
    """
    print_table(
        f"{SUBSCRIPTIONS:,} filtered subscriptions on {CONNECTIONS} connections, "
        "microseconds of the processor",
        ["", "to subscribe", *_PARTS, "to unsubscribe"],
        [
            [name, *_measured(topic, SUBSCRIPTIONS, CONNECTIONS, SUBSCRIPTIONS)]
            for name, topic in TOPICS.items()
        ],
    )
    passing = TOPICS["a topic without records"]
    print_table(
        f"So many filtered subscriptions on {MANY_CONNECTIONS} connections, "
        "microseconds of the processor",
        ["", "to subscribe", *_PARTS, "to unsubscribe"],
        [
            [f"{count:,}", *_measured(passing, count, MANY_CONNECTIONS, RESUBSCRIBED)]
            for count in COUNTS
            if count <= most
        ],
    )

    print_table(
        f"Filters on {MANY_CONNECTIONS} connections of a server, of each one: bytes, and"
        " microseconds of the processor",
        ["", "filters", *_SERVED_PARTS],
        [
            [name, count, *_served(filter_of, count)]
            for name, filter_of in FILTERS.items()
            for count in COUNTS
            if count <= most
        ],
    )


_SERVED_PARTS: Final = (
    "bytes",
    "to subscribe",
    "a message",
    "to unsubscribe",
    "bytes left",
    "to subscribe again",
    "bytes then",
)
_OPERATORS: Final = (">", "<", ">=", "<=", "!=")


def _same_forms(number: int) -> str:
    field, sign = number % 40, _OPERATORS[number // 40 % 5]
    return f"/symbol = 'SYM{number:06}' AND /f{field} {sign} {number + 2_000_000}"


def _own_form(number: int) -> str:
    """One of 40 * 39 * 38 * 5 * 5 * 5 forms."""
    numbers = random.Random(number)
    fields = numbers.sample(range(40), 3)
    first, *others = (f"/f{field} {numbers.choice(_OPERATORS)} {number}" for field in fields)
    return f"/symbol = 'SYM{number:06}' AND {first} AND ({' OR '.join(others)})"


def _own_field(number: int) -> str:
    return f"/symbol = 'SYM{number:06}' AND /field{number} IS NULL"


FILTERS: Final = {
    "200 forms": _same_forms,
    "a form each": _own_form,
    "a field each": _own_field,
}


def _served(filter_of: Callable[[int], str], count: int) -> list[float]:
    """What is in the columns for a server, with so many filters."""
    with amperage() as server, ExitStack() as sockets:
        clients = [
            sockets.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            for _ in range(MANY_CONNECTIONS + 1)
        ]
        for number, client in enumerate(clients):
            client.sendall(_command(Header("logon", client_name=f"{number}", message_type="json")))
        publisher = clients.pop()
        subscribes = [
            _command(Header("subscribe", topic="t", sub_id=str(n), short_filter=filter_of(n)))
            for n in range(count)
        ]
        unsubscribes = [
            _command(Header("unsubscribe", sub_id=str(number))) for number in range(count)
        ]
        fields = b",".join(b'"f%d":%d' % (number, number) for number in range(40))
        messages = [
            _command(Header("publish", topic="t"), b'{"symbol":"SYM%06d",%b}' % (number, fields))
            for number in random.Random(1).choices(range(count), k=MESSAGES)
        ]
        header = Header("subscribe", topic="t", sub_id="first", short_filter=filter_of(0))
        _written(server, clients, [_command(header)])
        before = server.resident_bytes

        def kept_bytes() -> int:
            return (server.resident_bytes - before) // count

        return [
            *reversed((_written(server, clients, subscribes), kept_bytes())),
            _written(server, [publisher], messages, readers=clients),
            _written(server, clients, unsubscribes),
            kept_bytes(),
            _written(server, clients, subscribes),
            kept_bytes(),
        ]


def _written(
    server: Server,
    clients: Sequence[socket.socket],
    commands: Sequence[bytes],
    readers: Sequence[socket.socket] = (),
) -> float:
    """Write commands in turn by some clients, and return the server's microseconds for each."""
    before = _processor_seconds(server)
    for number, client in enumerate(clients):
        client.sendall(b"".join(commands[number :: len(clients)]))
    for client in clients:
        client.sendall(_command(Header("flush", command_id="end", acks="completed")))
    for client in clients:
        received = b""
        while b'"end"' not in received:
            received = received[-8:] + client.recv(1 << 20)
    for client in readers:
        client.setblocking(False)
        with suppress(BlockingIOError):
            while client.recv(1 << 20):
                pass
        client.setblocking(True)
    return round((_processor_seconds(server) - before) / len(commands) * 1e6, 1)


def _processor_seconds(server: Server) -> float:
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


_PARTS: Final = (
    f"a message, the first {MESSAGES:,}",
    f"the next {MESSAGES:,}",
    "while others subscribe",
)


def _measured(topic: str, count: int, connections: int, changes: int) -> list[float]:
    """What is in the columns, with so many subscriptions, of which some are made anew."""
    engine = _engine()
    subscribers = [_log_on(engine, f"subscriber-{n}") for n in range(connections)]
    publisher = _log_on(engine, "publisher")
    numbers = random.Random(1).choices(range(count), k=MESSAGES)
    messages = [_command(Header("publish", topic=topic), _body(n)) for n in numbers]

    def subscribe(number: int) -> None:
        subscribers[number % connections].input.feed(_subscribe(topic, number))

    def unsubscribe(number: int) -> None:
        header = Header("unsubscribe", sub_id=str(number))
        subscribers[number % connections].input.feed(_command(header))

    def publish(number: int) -> None:
        publisher.input.feed(messages[number])
        engine.flush()

    def resubscribe(number: int) -> None:
        unsubscribe(number)
        subscribe(number)
        publish(number)

    return [
        _microseconds(subscribe, count),
        _microseconds(publish, MESSAGES),
        _microseconds(publish, MESSAGES),
        _microseconds(resubscribe, changes),
        _microseconds(unsubscribe, count),
    ]


def _microseconds(step: Callable[[int], None], count: int) -> float:
    begin = time.process_time()
    for number in range(count):
        step(number)
    return round((time.process_time() - begin) / count * 1e6, 1)


def _subscribe(topic: str, number: int) -> bytes:
    text = f"/symbol = 'SYM{number:06}'"
    return _command(Header("subscribe", topic=topic, sub_id=str(number), short_filter=text))


def _body(number: int) -> bytes:
    return b'{"id":%d,"symbol":"SYM%06d","qty":%d}' % (number, number, number * 3)


def _command(header: Header, body: bytes = b"") -> bytes:
    return frame(encode_header(header) + body)


def _log_on(engine: Engine, name: str) -> Session:
    entrance = ConnectionContext("any-tcp", None, OPEN, FixedEntitlement(ALL_PERMISSIONS))
    session = engine.begin_session(entrance, ConnectionHandle("here", lambda _: None, lambda: None))
    session.input.feed(_command(Header("logon", client_name=name, message_type="json")))
    return session


def _engine() -> Engine:
    json = MessageTypes().get("json")
    settings = EngineSettings(
        "benchmark", {"json": json}, {"json": "json"}, frozenset(), BUILTINS, regex_topics=True
    )
    engine = Engine(settings, _Silence(), _Standstill(), time.perf_counter)
    sow = SowTopicRecords(_KEPT, json, MemoryStore(), BUILTINS)
    engine.sow_registry.add(sow, sow.table.store.commit)
    return engine


_KEPT: Final = topic_spec("kept")


class _Silence:
    """A log that is not written."""

    def emit(self, message_id: str, /, **fields: object) -> None:
        """Write nothing."""

    def enabled(self, message_id: str) -> bool:  # noqa: ARG002 - the same for all
        """Nothing would be written."""
        return False


class _Standstill:
    """A time in which nothing falls due."""

    wall_offset_s = 0.0

    def now(self) -> WallSeconds:
        """Return the time."""
        return WallSeconds(1e9)

    def steady(self) -> SteadySeconds:
        """Return the same time."""
        return SteadySeconds(self.now())

    steady_unpaused = steady

    def on_wall_clock_step(self, _notify: Callable[[float], None]) -> Callable[[], None]:
        """Ignore the function: this clock is never set."""
        return lambda: None

    def call_later(self, delay: float, callback: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002 - never
        """Never call back."""
        return lambda: None


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
