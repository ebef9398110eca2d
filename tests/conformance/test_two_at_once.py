"""Two instances on the same files: the second one does not start, and says who has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server import RunningServer, running_server, why_no_start
from tests.support.sow import CHAINED_TOPIC, CHAINING

JOURNAL = """
<TransactionLog>
  <JournalDirectory>{base}/journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>.*</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
RECORDS = """
<SOW><Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
  <FileName>{base}/orders.sow</FileName></Topic></SOW>
"""
CHAINS = CHAINING + (
    f"<SOW>{CHAINED_TOPIC}</SOW>".replace("ids.chain", "{base}/ids.chain").replace(
        "chained.sow", "%n.sow"
    )
)
STATISTICS = "<Admin><FileName>{base}/stats.db</FileName></Admin>"


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """An instance that has files of all kinds."""
    directory = tmp_path_factory.mktemp("first")
    chained = f"{CHAINED_TOPIC}</SOW>{CHAINING}"
    elements = "".join((RECORDS, JOURNAL, STATISTICS)).replace("</SOW>", chained)
    with running_server(directory, elements=elements.format(base=".")) as server:
        yield server


@pytest.mark.parametrize(
    ("elements", "file"),
    [(JOURNAL, "journal"), (RECORDS, "orders.sow"), (CHAINS, "ids.chain")],
    ids=["journal", "records", "chains"],
)
def test_the_second_one_says_who_the_first_is(
    tmp_path: Path, first: RunningServer, elements: str, file: str
) -> None:
    base = first.log_file.parent
    said = why_no_start(tmp_path, elements.format(base=base))
    assert f"{base / file}" in said
    assert f"is in use by process {first.process.pid} (" in said


def test_statistics_are_recorded_elsewhere(tmp_path: Path, first: RunningServer) -> None:
    """They keep no instance from starting."""
    base = first.log_file.parent
    with running_server(tmp_path, elements=STATISTICS.format(base=base)) as second:
        assert second.logs(f"{base}/stats.db: process {first.process.pid} (")
        assert second.logs("records statistics in it. Recording in memory")
        assert second.stop() == 0
