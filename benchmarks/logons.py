"""What others wait for while 1,000 clients a second log on with passwords of a file of users.

    python -m benchmarks.logons

The quiet pair, a publisher and a subscriber, passes 1,000 messages a second over a transport of
its own. Over another one clients connect, log on and go: users whose passwords are remembered, and
users who log on for the first time, each of whom takes a scrypt hash of the usual cost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import struct
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.harness import Server, amperage, free_port
from benchmarks.tables import print_table
from server.security.users.password_hashes import hash_password

SECONDS = 5
RATE = 1_000
FIRST_LOGONS = 20_000
PASSWORD = "a password for all of them"

_MODULE = """<Modules>
  <Module>
    <Name>users</Name><Library>libamperage_users.so</Library>
    <Options><FileName>{file}</FileName></Options>
  </Module>
</Modules>"""
_TRANSPORT = """<Transport>
  <Name>passwords</Name><Type>tcp</Type><Protocol>amps</Protocol>
  <InetAddr>127.0.0.1:{port}</InetAddr><ReuseAddr>true</ReuseAddr>
  <Authentication><Module>users</Module></Authentication>
  <Entitlement><Module>users</Module></Entitlement>
</Transport>"""


async def log_on(port: int, user: str) -> bool:
    """Connect, log on and go; whether that succeeds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    header = {"c": "logon", "mt": "json", "a": "processed", "user_id": user, "pw": PASSWORD}
    content = json.dumps(header | {"client_name": user}).encode()
    writer.write(struct.pack(">I", len(content)) + content)
    try:
        (size,) = struct.unpack(">I", await reader.readexactly(4))
        return b'"status":"success"' in await reader.readexactly(size)
    finally:
        writer.close()


async def offer(port: int, users: Sequence[str], stop: object, counted: object) -> None:
    """Have users log on at the rate, the first again after the last, until told to stop."""
    assert isinstance(stop, multiprocessing.synchronize.Event)
    tasks: set[asyncio.Task[bool]] = set()
    start, begun, done = time.perf_counter(), 0, 0

    def take_note(task: asyncio.Task[bool]) -> None:
        nonlocal done
        tasks.discard(task)
        if not task.cancelled() and task.exception() is None and task.result():
            done += 1

    while not stop.is_set():
        while begun < (time.perf_counter() - start) * RATE:
            task = asyncio.create_task(log_on(port, users[begun % len(users)]))
            tasks.add(task)
            task.add_done_callback(take_note)
            begun += 1
        await asyncio.sleep(0.001)
    elapsed = time.perf_counter() - start
    counted.put((begun / elapsed, done / elapsed))  # type: ignore[attr-defined]  # a queue
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def run_offer(port: int, users: Sequence[str], stop: object, counted: object) -> None:
    """The same as a process."""
    asyncio.run(offer(port, users, stop, counted))


@contextlib.contextmanager
def beside(port: int, users: Sequence[str], rates: list[tuple[float, float]]) -> Iterator[None]:
    """Have users log on meanwhile; then tell how many began to, and did, each second."""
    if not users:
        yield
        rates.append((0.0, 0.0))
        return
    context = multiprocessing.get_context("spawn")
    stop, counted = context.Event(), context.Queue()
    process = context.Process(target=run_offer, args=(port, users, stop, counted))
    process.start()
    try:
        time.sleep(1.5)  # until it is at its rate
        yield
    finally:
        stop.set()
        rates.append(counted.get())
        process.join()


def processor_seconds(server: Server) -> float:
    """What a server's threads have used."""
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print."""
    hashed = str(hash_password(PASSWORD))
    known = [f"known{number}" for number in range(100)]
    first = [f"first{number}" for number in range(FIRST_LOGONS)]
    rows: list[Sequence[object]] = []
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "users.toml")
        tables = (f'[users.{one}]\npassword = "{hashed}"\nlogon = true\n' for one in known + first)
        file.write_text("\n".join(tables))
        file.chmod(0o600)
        port = free_port()
        with amperage(_MODULE.format(file=file), transports=_TRANSPORT.format(port=port)) as server:
            asyncio.run(_know(port, known))
            cases: Sequence[tuple[str, Sequence[str]]] = (
                ("nothing", ()),
                ("users who have logged on before", known),
                ("users who log on for the first time", first),
            )
            for name, users in cases:
                rates: list[tuple[float, float]] = []
                with beside(port, users, rates):
                    before = processor_seconds(server)
                    run = server.load("-mode", "latency", "-rate", "1000", "-secs", str(SECONDS))
                    used = processor_seconds(server) - before
                latencies = (run["p50_us"], run["p99_us"], run["max_us"])
                rows.append((name, *map(round, rates[0]), *latencies, f"{used / SECONDS:.2f}"))
    head = ("beside", "begun/s", "done/s", "p50 us", "p99 us", "max us", "processors")
    print_table("A quiet pair at 1,000 messages a second, beside logons", head, rows)


async def _know(port: int, users: Sequence[str]) -> None:
    """Let passwords be remembered."""
    assert all(await asyncio.gather(*(log_on(port, user) for user in users)))


if __name__ == "__main__":
    main()
