"""Every tool on the files of a server that is running, and is written to meanwhile."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

from amperage.client import Client
from tests.support.server import free_port, running_server
from tests.support.waiting import wait_until

ELEMENTS: Final = """
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>orders.sow</FileName><SlabSize>1MB</SlabSize>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>.</JournalDirectory>
  <JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<Admin>
  <InetAddr>localhost:{port}</InetAddr><FileName>stats.db</FileName><Interval>1s</Interval>
</Admin>
"""

PUBLISHED: Final = 500
"""Messages that are there before anything is looked at."""

KEYS: Final = 100


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a server runs that a client publishes to, without a pause."""
    path = tmp_path_factory.mktemp("server")
    with (
        running_server(path, elements=ELEMENTS.format(port=free_port())) as server,
        Client("publisher") as client,
    ):
        client.connect(f"tcp://localhost:{server.port}/amps/json")
        client.logon()
        client.publish_all("orders", [body(number) for number in range(PUBLISHED)])
        client.flush()
        has_seen_enough = threading.Event()

        def go_on() -> None:
            number = PUBLISHED
            while not has_seen_enough.wait(0.001):
                client.publish("orders", body(number))
                number += 1

        publishing = threading.Thread(target=go_on)
        publishing.start()
        try:
            wait_until((path / "stats.db").exists)
            journal = path / "test-instance.0000000000.journal"
            wait_until(lambda: body(PUBLISHED - 1) in journal.read_bytes())
            yield path
        finally:
            has_seen_enough.set()
            publishing.join()


def body(number: int) -> bytes:
    return json.dumps({"id": number % KEYS, "number": number}).encode()


READING: Final = {
    "amps_journal_dump": ("test-instance.0000000000.journal", "FILE --json", PUBLISHED),
    "amps_journal_search": ("test-instance.0000000000.journal", "FILE -d number --json", PUBLISHED),
    "amps_grep": ("test-instance.0000000000.journal", "--client publisher --json FILE", PUBLISHED),
    "amps_grep of logs": ("stdout.log", "00-0015 --json FILE", 1),
    "amps_sow_dump": ("orders.sow", "FILE --json", KEYS),
    "amps_sow_dump -v": ("orders.sow", "FILE -v --json", KEYS),
    "amps_sqlite3_report": ("stats.db", "FILE 20180501 --json", 1),
    "amps_sqlite3": ("stats.db", "FILE --size --json", 1),
    "amps_file": ("orders.sow", "FILE --json", 1),
}
"""Commands, what they are run on, and how many lines they print at least."""


@pytest.mark.parametrize("case", READING)
def test_what_is_there_is_read(
    case: str, directory: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Without a complaint, however often; and the server goes on."""
    file, words, lines = READING[case]
    main = import_module(f"server.cli.{case.split()[0]}").main
    line = words.replace("FILE", str(directory / file)).split()
    for _ in range(5):
        assert main(line) == 0
        captured = capsysbinary.readouterr()
        assert captured.err == b""
        printed = [json.loads(one) for one in captured.out.splitlines()]
        assert len(printed) >= lines
