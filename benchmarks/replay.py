"""Bookmark subscriptions of a real server: replays of history, and of what is published meanwhile.

    python -m benchmarks.replay

Messages a second that arrive, all subscribers together, and microseconds of the server's CPU for
each message that arrives. `history` is a replay of everything from the beginning; `tail` is what
subscribers get that have caught up, while a publisher publishes as fast as it can. Mixed messages
are each for a random one of 100 topics, with a quarter to 1.75 times the size.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.harness import Server, amperage
from benchmarks.tables import print_table

MESSAGES: Final = 100_000
SIZE: Final = 256
SUBSCRIBERS: Final = (1, 5)
SECONDS: Final = 60.0
"""How long a measurement may take."""

ELEMENTS: Final = """
  <TransactionLog>
    <JournalDirectory>{directory}</JournalDirectory>
    <JournalSize>200MB</JournalSize><PreallocatedJournalFiles>1</PreallocatedJournalFiles>
    <Topic><Name>.*</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
"""

_TICK: Final = os.sysconf("SC_CLK_TCK")


class Client:
    """A connection that counts what it gets without reading it."""

    def __init__(self, server: Server, name: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), SECONDS)
        self.send(b'{"c":"logon","cid":"1","client_name":"%s","mt":"json"}' % name.encode())

    def send(self, header: bytes, body: bytes = b"") -> None:
        """Send a command."""
        self.socket.sendall(struct.pack(">I", len(header) + len(body)) + header + body)

    def subscribe(self, topic: bytes, bookmark: bytes, more: bytes = b"") -> None:
        """Begin a replay that says when it is complete."""
        self.send(
            b'{"c":"subscribe","cid":"s","sub_id":"s","a":"completed","t":"%s","bm":"%s"%s}'
            % (topic, bookmark, more)
        )

    def read_until(self, marks: Sequence[bytes]) -> None:
        """Read until the last bytes have one of these marks.

        Raises:
            EOFError: the server closed the connection.
        """
        last = b""
        while not any(mark in last for mark in marks):
            chunk = self.socket.recv(1 << 20)
            if not chunk:
                raise EOFError("the server closed the connection")
            last = (last + chunk)[-1000:]


def publish(client: Client, topic: bytes, count: int) -> None:
    """Publish numbered messages, the last with a mark; mixed ones below a topic with a slash."""
    is_mixed, source = topic.endswith(b"/"), random.Random(1)
    topics = [b"%b%d" % (topic, number) for number in range(100)] if is_mixed else [topic]
    headers = [b'{"c":"p","t":"%s"}' % one for one in topics]
    for start in range(0, count, 500):
        frames = []
        for number in range(start, min(start + 500, count)):
            header = source.choice(headers)
            size = source.randrange(SIZE // 4, SIZE * 7 // 4) if is_mixed else SIZE
            mark = b"last" if number == count - 1 else b"next"
            body = (b'{"id":%d,"mark":"%s","fill":"' % (number, mark)).ljust(size - 2, b"x") + b'"}'
            frames.append(struct.pack(">I", len(header) + len(body)) + header + body)
        client.socket.sendall(b"".join(frames))


def persist(client: Client) -> None:
    """Wait until everything that a client has published is safe."""
    client.send(b'{"c":"flush","cid":"flushed","a":"persisted"}')
    client.read_until([b"flushed"])


def cpu(server: Server) -> float:
    """Seconds of CPU that a server has used."""
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def measured(server: Server, count: int, work: Callable[[], None]) -> tuple[float, float]:
    """Messages a second that arrive, and microseconds of CPU for each."""
    used, started = cpu(server), time.perf_counter()
    work()
    elapsed = time.perf_counter() - started
    return count / elapsed, (cpu(server) - used) / count * 1e6


def in_parallel(jobs: Sequence[Callable[[], None]]) -> None:
    """Do several things at the same time."""
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def history(server: Server, subscribers: int, topic: bytes, more: bytes) -> tuple[float, float]:
    """Replay everything to some subscribers at once."""
    clients = [Client(server, f"h-{topic.decode()}-{n}-{subscribers}") for n in range(subscribers)]

    def read(client: Client) -> None:
        client.subscribe(topic, b"0", more)
        client.read_until([b'"completed"'])
        client.socket.close()

    jobs = [partial(read, client) for client in clients]
    return measured(server, MESSAGES * subscribers, lambda: in_parallel(jobs))


def tail(server: Server, subscribers: int, end: bytes = b"") -> tuple[float, float]:
    """Publish to subscribers that have caught up; mixed messages if the topic ends with a slash."""
    topic = b"tail-%d%b" % (subscribers, end)
    publisher = Client(server, f"t-publisher-{subscribers}")
    clients = [Client(server, f"t-{n}-{subscribers}") for n in range(subscribers)]
    for client in clients:
        client.subscribe(b"^" + topic if end else topic, b"0|1|")
        client.read_until([b'"completed"'])
    jobs: list[Callable[[], None]] = [
        partial(client.read_until, [b'"mark":"last"']) for client in clients
    ]
    jobs.append(partial(publish, publisher, topic, MESSAGES))
    result = measured(server, MESSAGES * subscribers, lambda: in_parallel(jobs))
    for client in (publisher, *clients):
        client.socket.close()
    return result


def publishing(server: Server) -> tuple[float, float]:
    """Publish to nobody: what of the other figures is not replay."""
    publisher = Client(server, "alone")

    def run() -> None:
        publish(publisher, b"alone", MESSAGES)
        persist(publisher)

    return measured(server, MESSAGES, run)


def main() -> None:
    """Measure and print."""
    directory = Path("build", "benchmarks", f"journal-{os.getpid()}")
    with amperage(ELEMENTS.format(directory=directory.resolve())) as server:
        publisher = Client(server, "publisher")
        for topic in (b"history", b"mixed/"):
            publish(publisher, topic, MESSAGES)
        persist(publisher)
        few = b',"f":"/id % 1000 = 1"'
        rows = [
            *((f"history, {n} to read", *history(server, n, b"history", b"")) for n in SUBSCRIBERS),
            ("history, 1 in 1000 matches", *history(server, 1, b"history", few)),
            ("history, mixed, 1 to read", *history(server, 1, b"^mixed/", b"")),
            ("published, nobody reads", *publishing(server)),
            *((f"tail, {n} to read", *tail(server, n)) for n in SUBSCRIBERS),
            ("tail, mixed, 1 to read", *tail(server, 1, b"/")),
        ]
        head = (f"{MESSAGES:,} messages of {SIZE} bytes", "messages/s", "CPU us/message")
        print_table("Bookmark subscriptions", head, rows)
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()


if __name__ == "__main__":
    main()
