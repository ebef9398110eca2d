"""spark sow, sow_and_subscribe and sow_delete with a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.server import RunningServer, running_server
from tests.support.sow import TOPICS
from tests.tools.test_spark import spark, start

RECORDS = b'{"id":1,"qty":10}\n{"id":2,"qty":20}\n{"id":3,"qty":30}\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server"), elements=TOPICS) as running:
        yield running


@pytest.fixture
def at(server: RunningServer) -> list[str]:
    """How to reach the server, whose orders are those of RECORDS."""
    words = ["-server", f"localhost:{server.port}", "-type", "json"]
    assert spark("sow_delete", *words, "-topic", "orders", "-filter", "1=1")[0] == 0
    assert spark("publish", *words, "-topic", "orders", data=RECORDS)[0] == 0
    return words


def test_records_are_printed(at: list[str]) -> None:
    code, said, complaint = spark(
        "sow", *at, "-topic", "orders", "-filter", "/qty > 15", "-orderby", "/id DESC"
    )
    assert (code, [json.loads(line)["id"] for line in said.splitlines()]) == (0, [3, 2])
    assert "2" in complaint


def test_records_are_deleted(at: list[str]) -> None:
    assert spark("sow_delete", *at, "-topic", "orders", "-filter", "/qty > 15")[0] == 0
    assert spark("sow_delete", *at, "-topic", "orders", data=b'{"id":1}\n')[0] == 0
    assert spark("sow", *at, "-topic", "orders")[:2] == (0, "")


def test_records_are_followed(server: RunningServer, at: list[str]) -> None:
    follower = start(
        "sow_and_subscribe", *at, "-topic", "orders", "-filter", "/id = 2", "-format",
        "{command} {data}",
    )  # fmt: skip
    try:
        assert follower.stdout is not None
        assert follower.stdout.readline() == b'sow {"id":2,"qty":20}\n'
        with server.log_on() as peer:
            peer.publish("orders", b'{"qty":25,"id":2}', c="delta_publish")
            assert json.loads(follower.stdout.readline().partition(b" ")[2]) == {
                "id": 2,
                "qty": 25,
            }
    finally:
        follower.kill()
        follower.wait()


def test_a_topic_without_records_is_told(at: list[str]) -> None:
    code, said, complaint = spark("sow", *at, "-topic", "adhoc")
    assert (code, said) == (1, "")
    assert complaint.startswith("spark sow: invalid topic: ")
