"""What tests of backups have in common: an instance with all kinds of data, clients, commands."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.admin.support import Admin, running_admin
from tests.support.quick import quick_command
from tests.support.raw import RawPeer
from tests.support.server import RunningServer, running_configuration
from tests.support.sow import query
from tests.support.waiting import WAIT_SECONDS

ELEMENTS: Final = """
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>sow/%n.sow</FileName><SlabSize>1MB</SlabSize>
  </Topic>
  <Topic>
    <Name>unlogged</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>sow/%n.sow</FileName>
  </Topic>
  <Queue>
    <Name>work</Name><MessageType>json</MessageType><UnderlyingTopic>jobs</UnderlyingTopic>
    <MaxPerSubscriptionBacklog>1000000</MaxPerSubscriptionBacklog>
  </Queue>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders|jobs|work</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
KEYS: Final = 40
_ALL: Final = "1000000"


def amps_backup(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    command = [*quick_command("server.cli.amps_backup"), *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=WAIT_SECONDS
    )


def create(admin: Admin, *words: object) -> Path:
    """Have an instance make a backup; return its directory."""
    done = amps_backup("create", "--instance", f"http://127.0.0.1:{admin.port}", "--json", *words)
    assert done.returncode == 0, done.stderr
    return Path(json.loads(done.stdout)["path"])


@contextmanager
def instance(directory: Path, elements: str = ELEMENTS, admin: str = "") -> Iterator[Admin]:
    """An instance with statistics in a file."""
    directory.mkdir(exist_ok=True)
    statistics = "<FileName>stats/stats.db</FileName>"
    with running_admin(directory, statistics + admin, elements) as running:
        yield running


@contextmanager
def restored_instance(directory: Path) -> Iterator[RunningServer]:
    """The instance that a restored directory makes, where the original one has ended."""
    text = (directory / "config.xml").read_text()
    transports = text.partition("<Transports>")[2]
    port = transports.partition("<InetAddr>")[2].partition("<")[0].rpartition(":")[2]
    with running_configuration(directory, text, int(port)) as server:
        yield server


@dataclass
class Known:
    """What a client knows of the instance.

    Attributes:
        sent: the highest number sent.
        persisted: the highest number acknowledged as persisted.
    """

    sent: int = 0
    persisted: int = 0


@dataclass
class Clients:
    """A publisher of records and jobs, and a consumer of jobs, at work until they are stopped.

    Message n goes to `orders` if n is odd, else to `jobs`.

    Attributes:
        known: what the publisher knows.
        taken: numbers of jobs whose acknowledgement is persisted.
        asked: numbers of jobs that were acknowledged, persisted or not.
        problems: what has gone wrong.
    """

    server: RunningServer
    known: Known = field(default_factory=Known)
    taken: set[int] = field(default_factory=set)
    asked: set[int] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    pad: int = 2000
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """They work meanwhile."""
        threads = [threading.Thread(target=one) for one in (self._publish, self._consume)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def _publish(self) -> None:
        with suppress(OSError, EOFError), self.server.connect() as peer:
            logon = {"c": "logon", "cid": "1", "client_name": "world", "mt": "json"}
            peer.ask(logon | {"a": "processed", "o": "ack_conflation=10ms"})
            while not self._stop.is_set():
                with peer.at_once():
                    for number in range(self.known.sent + 1, self.known.sent + 21):
                        topic, body = message(number, self.pad)
                        peer.publish(topic, body, s=number, a="persisted")
                        peer.publish("unlogged", body)
                self.known.sent += 20
                while self.known.persisted < self.known.sent - 200:
                    self._take_persisted(peer)

    def _take_persisted(self, peer: RawPeer) -> None:
        ack, _ = peer.receive()
        if ack.get("status") != "success":
            self.problems.append(str(ack))
        self.known.persisted = max(self.known.persisted, ack.get("s", 0))

    def _consume(self) -> None:
        with suppress(OSError, EOFError), self.server.connect() as peer:
            peer.log_on("consumer")
            peer.send({"c": "subscribe", "sub_id": "1", "t": "work", "o": f"max_backlog={_ALL}"})
            pending: dict[str, int] = {}
            while not self._stop.is_set():
                with suppress(TimeoutError):
                    header, body = peer.receive(0.1)
                    if header["c"] == "ack":
                        self.taken.add(pending.pop(header["cid"]))
                        continue
                    number = json.loads(body)["n"]
                    if number % 3 == 0:
                        self.asked.add(number)
                        pending[f"a{number}"] = number
                        keys = {"cid": f"a{number}", "a": "persisted"}
                        peer.send({"c": "sow_delete", "t": "work", "bm": header["bm"]} | keys)


def message(number: int, pad: int) -> tuple[str, bytes]:
    """The topic and the body of a message."""
    value = {"id": number % KEYS, "n": number, "pad": "x" * pad}
    return ("orders" if number % 2 else "jobs"), json.dumps(value).encode()


@dataclass(frozen=True)
class Content:
    """What an instance has.

    Attributes:
        log: numbers of the messages of both topics, in the order of the log.
        records: the numbers of the records of `orders`, by their ids.
        queue: numbers of the jobs in the queue.
    """

    log: list[int]
    records: dict[int, int]
    queue: set[int]


def content_of(server: RunningServer) -> Content:
    """What an instance has."""
    with server.log_on("reader") as peer:
        records = records_of(peer, "orders")
        peer.send(
            {"c": "subscribe", "sub_id": "a", "t": "orders|jobs", "bm": "0", "a": "completed"}
        )
        log = [body["n"] for body in _until_ack(peer)]
    with server.log_on("consumer") as peer:
        peer.send({"c": "subscribe", "sub_id": "q", "t": "work", "o": f"max_backlog={_ALL}"})
        peer.publish("jobs", b'{"id": -1, "n": 0}')
        queue = set[int]()
        while (number := json.loads(peer.receive()[1])["n"]) != 0:
            queue.add(number)
    return Content(log, records, queue)


def records_of(peer: RawPeer, topic: str) -> dict[int, int]:
    """The numbers of the records of a topic, by their ids."""
    return {body["id"]: body["n"] for body in query(peer, topic).messages}


def _until_ack(peer: RawPeer) -> list[dict[str, Any]]:
    bodies: list[dict[str, Any]] = []
    while True:
        header, body = peer.receive()
        if header["c"] == "ack":
            return bodies
        bodies.append(json.loads(body))
