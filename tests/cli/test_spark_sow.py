"""spark sow, sow_and_subscribe and sow_delete with a real server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.cli.test_spark import spark, start
from tests.support.server import RunningServer, running_server
from tests.support.sow import TOPICS

RECORDS = b'{"id":1,"qty":10}\n{"id":2,"qty":20}\n{"id":3,"qty":30}\n'

ENRICHED = """
  <Topic>
    <Name>enriched</Name>
    <MessageType>json</MessageType>
    <Key>/id</Key>
    <Durability>transient</Durability>
    <Enrichment><Field>COALESCE(/n OF PREVIOUS, 0) + 1 AS /n</Field></Enrichment>
  </Topic>
"""
"""A topic that refuses what is no JSON."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    elements = TOPICS.replace("</SOW>", ENRICHED + "</SOW>")
    with running_server(tmp_path_factory.mktemp("server"), elements=elements) as running:
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


@pytest.mark.parametrize(
    ("lines", "published", "complaint"),
    [
        (
            b'{"id":4}\ngarbage\n{"id":5}\n',
            2,
            (
                r"spark publish: warning: message 2 is not valid JSON\..*: garbage\n"
                r"spark publish: refused: .*: garbage\nspark publish: 1 message was refused\n"
            ),
        ),
        (
            b"garbage 1\n" + b'{"id":6}\n' * 500 + b"garbage 2\n" * 600,
            500,
            (
                r"spark publish: warning: message 1 is not valid JSON\..*: garbage 1\n"
                r"(spark publish: refused: .*: garbage [12]\n){3}"
                r"spark publish: 601 messages were refused\n"
            ),
        ),
    ],
)
def test_messages_that_are_refused_are_counted_and_told(
    at: list[str], lines: bytes, published: int, complaint: str
) -> None:
    code, said, complained = spark("publish", *at, "-topic", "enriched", data=lines)
    assert code == 1
    assert said.startswith(f"total messages published: {published} (")
    assert re.fullmatch(complaint, complained), complained
