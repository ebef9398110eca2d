"""`amps-pipeline rebuild` beside the server whose log it reads: both make the same of it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from amperage.client import Client
from pipeline.cli import main
from server.cli import amps_sow_dump
from tests.pipeline.topics import uri
from tests.support.server import RunningServer, running_server
from tests.support.waiting import wait_until

TOPICS: Final = {
    "plain": "",
    "lived": "<Expiration>enabled</Expiration>",
    "past": "<History><Window>1h</Window><Granularity>0s</Granularity></History>",
    "several": "<Pattern>^several-</Pattern>",
}
"""Topics with records, and what is special about each."""

FILED: Final = "".join(
    f"<Topic><Name>{name}</Name>{more}<MessageType>json</MessageType><Key>/id</Key>"
    f"<FileName>{name}.sow</FileName></Topic>"
    for name, more in TOPICS.items()
)
ELEMENTS: Final = f"""
<SOW>{FILED}
  <Topic>
    <Name>named</Name><MessageType>json</MessageType><FileName>named.sow</FileName>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>1MB</JournalSize>
  <Topic><Name>.*</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""

STEPS: Final = 600
IDS: Final = 40
GONE: Final = "/id >= 1000"
"""Records that live for a second."""


def body(chance: random.Random, number: int) -> bytes:
    """A message of some size; journals have several files of them."""
    some = {"id": number, "n": chance.randrange(100), "p": "x" * chance.randrange(1500)}
    return json.dumps(some).encode()


def publish_everything(client: Client) -> None:
    """Messages, changes, deletions and lifetimes, in stretches and one by one."""
    chance = random.Random(24)
    for number in range(1000, 1020):
        client.publish("lived", body(chance, number), expiration=1)
    for _ in range(STEPS):
        topic = chance.choice(["plain", "lived", "past", "several-1", "several-2"])
        number = chance.randrange(IDS)
        match chance.randrange(12):
            case 0:
                client.delta_publish(topic, b'{"id":%d,"more":%d}' % (number, number))
            case 1:
                client.sow_delete(topic, filter=f"/id = {number}")
            case 2:
                client.sow_delete(topic, body=b'{"id":%d}' % number)
            case 3:
                client.publish(topic, body(chance, IDS + number), correlation_id="YWJj")
            case 4:
                client.publish("lived", body(chance, number), expiration=3600)
            case 5:
                client.publish("named", body(chance, number), sow_key=f"key {number}")
            case 6:
                client.publish_all(topic, [body(chance, one) for one in range(number)])
            case _:
                client.publish(topic, body(chance, number))
    client.publish("lived", body(chance, 1001), expiration=3600)  # in the place of one that went
    client.flush()


@contextmanager
def connected(server: RunningServer) -> Iterator[Client]:
    with Client("tester") as client:
        client.connect(uri(server))
        client.logon()
        yield client


def dumped(path: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The records of a file with all that is kept of them but where they are in it."""
    capsys.readouterr()
    assert amps_sow_dump.main(["--json", str(path)]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    places = {"file", "crc", "slab_offset", "allocated", "flags"}
    known = [{k: v for k, v in one.items() if k not in places} for one in records]
    return sorted(known, key=lambda one: (one["topic"] or "", one["key"]))


def test_a_topic_is_made_of_the_log_as_the_server_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a server that was killed; beside what it has after it has come back, and in its files."""
    monkeypatch.chdir(tmp_path)
    names = [*TOPICS, "named"]
    with running_server(tmp_path, elements=ELEMENTS) as server:
        with connected(server) as client:
            publish_everything(client)
            wait_until(lambda: len(list(client.sow("lived", filter=GONE))) == 1)
        server.process.kill()
        server.process.wait()
    assert len(list(tmp_path.glob("journal/*.journal"))) > 1
    for name in names:
        rebuild = ["rebuild", "config.xml", "--topic", name, "--output", f"{name}.rebuilt"]
        assert main(rebuild) == 0, capsys.readouterr().err
    queried = {}
    with running_server(tmp_path, elements=ELEMENTS) as server:
        with connected(server) as client:
            for name in names:
                topic = "^several-" if name == "several" else name
                queried[name] = sorted(one.body for one in client.sow(topic))
        server.stop()
    for name in names:
        rebuilt = dumped(tmp_path / f"{name}.rebuilt", capsys)
        assert rebuilt, name
        assert rebuilt == dumped(tmp_path / f"{name}.sow", capsys)
        assert sorted(one["data"].encode() for one in rebuilt) == queried[name]
