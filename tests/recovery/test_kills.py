"""A real server, publishers that keep what is not acknowledged, and SIGKILL at random moments.

After every kill the publishers do what a client with a publish store does: they log on again, and
send everything again that has not been acknowledged. In the end, and after every restart, the log
must hold what was acknowledged, once, in the order of its publisher, and the records must be what
the log comes to.

AMPERAGE_KILLS sets how often the server is killed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.raw import RawPeer, frame
from tests.support.server import RunningServer, running_server
from tests.support.sow import query

KILLS = int(os.environ.get("AMPERAGE_KILLS", "10"))
PUBLISHERS = 3
KEYS = 20
ELEMENTS = """
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>orders.sow</FileName>
  </Topic>
  <Topic>
    <Name>quotes</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory>
  <JournalSize>10MB</JournalSize>
  <FlushInterval>{flush}</FlushInterval>
  <Topic><Name>.*</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
TOPICS = ("orders", "quotes", "events")

Command = tuple[dict[str, object], bytes]


@dataclass
class Publisher:
    """A publisher with a publish store.

    Attributes:
        name: its client name.
        chance: decides what it publishes.
        sent: every command, by sequence number.
        acknowledged: the sequence number up to which all is safe.
        failures: what went wrong on its thread.
    """

    name: str
    chance: random.Random
    sent: dict[int, Command] = field(default_factory=dict)
    acknowledged: int = 0
    failures: list[AssertionError] = field(default_factory=list)

    def make(self) -> bytes:
        """The next command, as bytes."""
        sequence = len(self.sent) + 1
        key = f"{self.name}-{self.chance.randrange(KEYS)}"
        header: dict[str, object] = {"s": sequence, "a": "persisted"}
        header["t"] = topic = self.chance.choice(TOPICS)
        body = json.dumps({"id": key, "n": sequence}).encode()
        if topic != "events" and self.chance.random() < 0.1:
            header |= {"c": "sow_delete", "f": f"/id = '{key}'"}
            body = b""
        else:
            header["c"] = "publish"
        self.sent[sequence] = header, body
        return frame(header, body)

    def run(self, server: RunningServer, seconds: float) -> None:
        """Send again what is not safe, then publish until the server is gone."""
        try:
            with server.connect() as peer:
                self._publish(peer, time.monotonic() + seconds)
        except (OSError, EOFError):
            pass  # killed
        except AssertionError as error:
            self.failures.append(error)

    def _publish(self, peer: RawPeer, end: float) -> None:
        logon = {"c": "logon", "cid": "1", "client_name": self.name, "mt": "json"}
        ack = peer.ask(logon | {"a": "processed", "o": "ack_conflation=20ms"})
        assert self.acknowledged <= ack["s"], "what was acknowledged is lost"
        again = [frame(*self.sent[one]) for one in range(self.acknowledged + 1, len(self.sent) + 1)]
        peer.socket.sendall(b"".join(again))
        while time.monotonic() < end:
            peer.socket.sendall(b"".join(self.make() for _ in range(self.chance.randrange(1, 40))))
            self._take_acks(peer, 0.005)
        while self.acknowledged < len(self.sent):
            self._take_acks(peer, 10.0)

    def _take_acks(self, peer: RawPeer, wait: float) -> None:
        try:
            ack = peer.receive(wait)[0]
        except TimeoutError:
            return
        assert ack["status"] == "success" or ack["reason"] == "duplicate", ack
        self.acknowledged = max(self.acknowledged, ack["s"])


def work(
    server: RunningServer, publishers: list[Publisher], seconds: float, kill_after: float | None
) -> None:
    """Let all publishers publish; kill the server meanwhile, if that is asked for."""
    threads = [threading.Thread(target=one.run, args=(server, seconds)) for one in publishers]
    for thread in threads:
        thread.start()
    if kill_after is not None:
        time.sleep(kill_after)
        server.stop(signal.SIGKILL)
    for thread in threads:
        thread.join()
    assert [failure for one in publishers for failure in one.failures] == []


def check(server: RunningServer, publishers: list[Publisher], *, finished: bool) -> None:
    """Compare the log with what was published, and the records with the log."""
    with server.log_on("auditor") as peer:
        peer.send({"c": "subscribe", "sub_id": "a", "t": "^.*$", "bm": "0", "a": "completed"})
        log: list[tuple[str, str, int]] = []
        marks: list[tuple[str, int]] = []
        while True:
            header, body = peer.receive(20)
            if header["c"] == "ack":
                break
            message = json.loads(body)
            log.append((header["t"], message["id"], message["n"]))
            client, sequence, _ = header["bm"].split("|")
            marks.append((client, int(sequence)))
        assert len(set(marks)) == len(marks), "a message is in the log twice"
        for one in publishers:
            mine = [entry for entry in log if entry[1].startswith(f"{one.name}-")]
            numbers = [number for _, _, number in mine]
            assert numbers == sorted(numbers), "the order of a publisher is lost"
            published = {
                number for number, (header, _) in one.sent.items() if header["c"] == "publish"
            }
            safe = {number for number in published if number <= one.acknowledged}
            assert safe <= set(numbers) <= published, "something acknowledged is lost"
        records = {
            topic: {record["id"]: record["n"] for record in query(peer, topic).messages}
            for topic in ("orders", "quotes")
        }
    if finished:
        assert records == model(publishers)
    else:
        for topic, found in records.items():
            assert found.items() <= {(key, n) for where, key, n in log if where == topic}


def model(publishers: list[Publisher]) -> dict[str, dict[str, int]]:
    """What the records are when every command has been carried out once, in order."""
    records: dict[str, dict[str, int]] = {"orders": {}, "quotes": {}}
    for one in publishers:
        for number, (header, body) in one.sent.items():
            topic = str(header["t"])
            if topic not in records:
                continue
            if header["c"] == "publish":
                records[topic][json.loads(body)["id"]] = number
            else:
                records[topic].pop(str(header["f"]).split("'")[1], None)
    return records


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    """See above."""
    seed = int(os.environ.get("AMPERAGE_SEED", "0")) or random.randrange(1 << 32)
    print(f"AMPERAGE_SEED={seed}")
    chance = random.Random(seed)
    publishers = [Publisher(f"p{n}", random.Random(seed + n)) for n in range(PUBLISHERS)]
    for _ in range(KILLS):
        elements = ELEMENTS.format(flush=chance.choice(("10us", "2ms")))
        with running_server(tmp_path, elements=elements) as server:
            check(server, publishers, finished=False)
            work(server, publishers, 30.0, chance.uniform(0.05, 0.3))
    with running_server(tmp_path, elements=ELEMENTS.format(flush="2ms")) as server:
        work(server, publishers, 0.1, None)
        check(server, publishers, finished=True)
        server.stop()
    with running_server(tmp_path, elements=ELEMENTS.format(flush="2ms")) as server:
        check(server, publishers, finished=True)
    assert all(one.acknowledged == len(one.sent) for one in publishers)
