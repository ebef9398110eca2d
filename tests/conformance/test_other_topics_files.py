"""Files of SOW topics that have records of other topics: the start says so."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.support.server import running_server

SOW: Final = """
<SOW><Topic>
  <Name>orders</Name>{pattern}<MessageType>json</MessageType><Key>/id</Key>
  <FileName>data.sow</FileName>
</Topic></SOW>
"""
PLAIN: Final = ""
EUROPE: Final = "<Pattern>^eu-</Pattern>"
ALL: Final = "<Pattern>^(eu|us)-|^orders$</Pattern>"

CHANGES: Final = [
    (EUROPE, PLAIN, "contains 2 records of other topics, such as 'eu-1'"),
    (ALL, EUROPE, "contains 2 records of other topics, such as 'orders'"),
    (PLAIN, EUROPE, "contains 1 records of other topics, such as 'orders'"),
    (EUROPE, ALL, None),
    (PLAIN, ALL, None),
]


@pytest.mark.parametrize(("before", "after", "said"), CHANGES)
def test_records_of_other_topics_are_told(
    tmp_path: Path, before: str, after: str, said: str | None
) -> None:
    elements = SOW.format(pattern=before)
    with running_server(tmp_path, elements=elements) as server, server.log_on("client") as peer:
        for topic in ("eu-1", "eu-2", "us-1", "orders"):
            peer.send({"c": "p", "t": topic}, b'{"id":1}')
        peer.flush()
    for pattern, expected in ((before, None), (after, said), (before, None)):
        with running_server(tmp_path, elements=SOW.format(pattern=pattern)) as server:
            told = [line for line in server.log().splitlines() if "15-0018" in line]
        assert len(told) == (expected is not None)
        assert all(f"SOW topic 'orders' (json): data.sow {expected}" in line for line in told)


def test_records_that_are_gone_are_not_told(tmp_path: Path) -> None:
    """Though their entries are in the file still."""
    elements = SOW.format(pattern=EUROPE)
    with running_server(tmp_path, elements=elements) as server, server.log_on("client") as peer:
        for topic in ("eu-1", "eu-2"):
            peer.send({"c": "p", "t": topic}, b'{"id":1}')
        header = {"c": "sow_delete", "cid": "d", "t": "eu-1", "filter": "1 = 1", "a": "stats"}
        assert peer.ask(header)["records_deleted"] == 1
    told = "contains 1 records of other topics, such as 'eu-2'"
    with running_server(tmp_path, elements=SOW.format(pattern=PLAIN)) as server:
        assert server.logs(told)
    with running_server(tmp_path, elements=elements) as server, server.log_on("client") as peer:
        assert peer.ask(header | {"t": "eu-2"})["records_deleted"] == 1
    with running_server(tmp_path, elements=SOW.format(pattern=PLAIN)) as server:
        assert "15-0018" not in server.log()
