"""The Python of docs/client.md and other pages does what it says, with a real server."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import pytest

from client import Client
from tests.support.server import running_server
from tests.support.sow import TOPICS

DOCS = Path(__file__).parents[2] / "docs"
BLOCKS = [
    (page, block)
    for page in ("client.md", "queues.md", "replication.md")
    for block in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
]
QUEUE = "<Queue><Name>jobs</Name><MessageType>json</MessageType></Queue></SOW>"
LOG = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory>
  <Topic><Name>^(orders|prices|jobs)$</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


class EnoughSeenError(Exception):
    """Ends a loop that has no end of its own."""


def test_every_block_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    priced: list[dict[str, Any]] = []

    def price(order: dict[str, Any]) -> str:
        if priced:
            raise EnoughSeenError
        priced.append(order)
        return '{"price": 1}'

    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"price": price}
    with running_server(tmp_path, elements=TOPICS.replace("</SOW>", QUEUE) + LOG) as server:
        address = f"127.0.0.1:{server.port}"
        for page, block in BLOCKS:
            text = re.sub(r"[\w.]+:9\d{3}\b", address, block)
            with Client() as client, contextlib.suppress(EnoughSeenError):
                client.connect(f"tcp://{address}/amps/json")
                client.logon()
                namespace["client"] = client
                exec(compile(text, page, "exec"), namespace)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "orders {'id': 1, 'qty': 5}"
    assert said[1].endswith(" 5"), "the record, with its key"
    assert "job 4" in said
    assert "working on 1" in said
    assert priced == [{"id": 1, "qty": 5}]
    assert (tmp_path / "pricing.messages").exists()
    assert (tmp_path / "pricing.bookmarks").exists()


def test_the_page_of_queues_names_every_option() -> None:
    """Of those that the schema has for a queue."""
    schema = (DOCS / "configuration.md").read_text()
    options = set(re.findall(r"^### SOW/Queue/(\w+)$", schema, re.MULTILINE))
    named = set(re.findall(r"`(\w+)`", (DOCS / "queues.md").read_text()))
    assert options - named == {"Name", "MessageType"}
