"""The Python on the pages does what it says, with a real server.

What is written to a file is used by what stands beside it: a command (test_console.py), or a
configuration (test_fragments.py). Pages about Spark are run in tests/pipeline/test_walkthrough.py.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import pytest

from amperage.client import Client
from tests.documentation.fences import ROOT, fences, python_files
from tests.support.server import running_server
from tests.support.sow import TOPICS

CLIENT_PAGES = (
    "docs/client.md",
    "docs/queues.md",
    "docs/replication.md",
)
SPARK_PAGES = ("docs/pipeline.md", "docs/pipeline_journals.md")
QUEUE = "<Queue><Name>jobs</Name><MessageType>json</MessageType></Queue></SOW>"
LOG = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
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
        for fence in (one for page in CLIENT_PAGES for one in fences("python", page=page)):
            text = re.sub(r"[\w.]+:9\d{3}\b", address, fence.text)
            with Client() as client, contextlib.suppress(EnoughSeenError):
                client.connect(f"tcp://{address}/amps/json")
                client.logon()
                namespace["client"] = client
                exec(compile(text, str(fence), "exec"), namespace)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "orders {'id': 1, 'qty': 5}"
    assert said[1].endswith(" 5"), "the record, with its key"
    assert "job 4" in said
    assert "working on 1" in said
    assert priced == [{"id": 1, "qty": 5}]
    assert (tmp_path / "pricing.messages").exists()
    assert (tmp_path / "pricing.bookmarks").exists()


def test_no_block_is_left_out() -> None:
    run = (*CLIENT_PAGES, *SPARK_PAGES)
    left = [fence for fence in fences("python") if fence.page not in run]
    assert [
        str(fence) for fence in left if fence.text not in python_files(fence.page).values()
    ] == []


def test_the_page_of_queues_names_every_option() -> None:
    """Of those that the schema has for a queue."""
    schema = (ROOT / "docs" / "configuration.md").read_text()
    options = set(re.findall(r"^### SOW/Queue/(\w+)$", schema, re.MULTILINE))
    named = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "queues.md").read_text()))
    assert options - named == {"Name", "MessageType"}
