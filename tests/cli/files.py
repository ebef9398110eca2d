"""Files of an instance for tools to read, whole and damaged."""

from __future__ import annotations

import gzip
import random
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from amperage.wire.bookmarks import client_hash
from server.process.minidump import write_minidump
from server.storage.journal.queue_points import QueuePoint, QueuePointTable, pack_queues
from server.storage.sow.records import Record
from tests.storage.journal.support import opened
from tests.storage.sow.support import Disk

MOMENT: Final = 1_750_000_000_000_000

LOG: Final = b"""2026-01-01T00:00:00.1234560+00:00 [3] info: 00-0015 a is here
2026-01-01T00:00:01.1234560+00:00 [4] error: 07-0013 client[B] disconnected
 with a second line
"""

USERS: Final = """# Who may log on.
[users.ann]
logon = true
topic = [{ topic = "orders", read = true }]
"""

CONFIGURATION: Final = """<AMPSConfig>
  <Name>TEST</Name>
  <Transports>
    <Transport>
      <Name>any</Name>
      <Type>tcp</Type>
      <InetAddr>localhost:0</InetAddr>
      <MessageType>json</MessageType>
      <Protocol>amps</Protocol>
    </Transport>
  </Transports>
</AMPSConfig>
"""


def make_files(directory: Path) -> Mapping[str, Path]:
    """Make one file of each kind that tools read, all of them good.

    Returns:
        The files by the end of their name.
    """
    _make_journals(directory)
    _make_records(directory)
    queues = QueuePointTable(
        77,
        [
            QueuePoint("json", "jobs", "epoch", 1, 70, [((5, 9), MOMENT)]),
            QueuePoint("nvfix", "caf\u00e9", "now", 20, 78, []),
        ],
    )
    (directory / "TEST.queues.ack").write_bytes(pack_queues(queues, MOMENT))
    (directory / "server.log").write_bytes(LOG * 100)
    (directory / "server.log.gz").write_bytes(gzip.compress(LOG * 100))
    (directory / "users.toml").write_text(USERS)
    (directory / "users.toml").chmod(0o600)
    (directory / "config.xml").write_text(CONFIGURATION)
    dump = write_minidump(str(directory), 0o600, "TEST", {"sessions": 3})
    dump.rename(directory / "minidump.txt")
    with closing(sqlite3.connect(directory / "stats.db")) as database:
        database.execute("CREATE TABLE HCPUS_STATIC (static_id INTEGER, oid TEXT)")
        database.execute("CREATE TABLE HCPUS_DYNAMIC (timestamp INTEGER, static_id INTEGER)")
        database.executemany("INSERT INTO HCPUS_STATIC VALUES (?, 'cpu')", ((n,) for n in range(9)))
        rows = ((212_391_936_000_000 + n, n % 9) for n in range(3000))
        database.executemany("INSERT INTO HCPUS_DYNAMIC VALUES (?, ?)", rows)
        database.commit()
    return {path.name.removeprefix("TEST."): path for path in directory.iterdir()}


def _make_journals(directory: Path) -> None:
    """The first is full and compressed, the second is in use."""
    publisher = client_hash("pub")
    with opened(directory, with_topic_index=True) as bench:
        topic = bench.journal.topic_handle("json", "orders")
        origin = bench.journal.origin_handle("ann")
        for sequence in range(1, 50):
            bench.journal.append(
                topic, publisher, sequence, b"%d" % sequence * 15_000, origin=origin
            )
        bench.journal.commit()
        bench.journal.compress(0)


def _make_records(directory: Path) -> None:
    disk = Disk(directory)
    store, _ = disk.open(slab_size=8192)
    for number in range(60):
        store.put(f"{number}", Record(f"{number}", b"body %d " % number * 30, "t", MOMENT * 1000))
    store.close()
    disk.close()


def _flipped(data: bytes) -> bytes:
    """Every hundredth byte is another one."""
    return bytes(byte ^ 0x5A if number % 100 == 50 else byte for number, byte in enumerate(data))


def _one_flipped(data: bytes) -> bytes:
    """A bit in the middle of what is used of a file."""
    place = len(data.rstrip(b"\0")) * 2 // 3
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


DAMAGE: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "empty": lambda _: b"",
    "one byte": lambda data: data[:1],
    "cut after some bytes": lambda data: data[:33],
    "cut in half": lambda data: data[: len(data) // 2],
    "cut at the end": lambda data: data[:-5],
    "one bit": _one_flipped,
    "many bytes": _flipped,
    "its end in zeros": lambda data: data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
    "its beginning in zeros": lambda data: bytes(4096) + data[4096:],
    "zeros": lambda data: bytes(max(len(data), 5000)),
    "a text": lambda _: b"hello\nworld\n" * 1000,
    "a long line": lambda _: b"hello" * 500_000,
    "anything": lambda _: random.Random(1).randbytes(20_000),
    "compressed": gzip.compress,
    "compressed and cut": lambda data: gzip.compress(data)[: len(gzip.compress(data)) // 2],
    "compressed and overwritten": lambda data: _one_flipped(gzip.compress(data)),
}
"""What can have become of a file."""
