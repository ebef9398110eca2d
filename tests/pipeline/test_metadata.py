"""What is known of a message besides its body is the same wherever it is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from amperage.client import Client
from amperage.client.blocks import BlockTexts, MessageBlock
from pipeline.errors import PipelineError
from pipeline.inference import infer_schema
from pipeline.message_columns import MessageColumns
from pipeline.rows import RowFormat, default_schema
from tests.pipeline.streams import read_all
from tests.pipeline.topics import TOPICS, publish, reading, streaming, uri
from tests.support.server import RunningServer, running_server

DOOR = """
from server.security.authentication import Admission

class Open:
    async def authenticate(self, credentials, previous):
        return Admission(True, credentials.user, "")

def create_authentication(name, options):
    return Open()
"""
GUARDED = f"""
<Modules><Module><Name>door</Name><Library>./door.py</Library></Module></Modules>
<Authentication><Module>door</Module></Authentication>
{TOPICS}
"""
TOPIC = "both-metadata"
OF_ALL = "topic STRING, message_type STRING, timestamp TIMESTAMP, length BIGINT, sow_key STRING"
OF_THE_LOG = "correlation_id STRING, bookmark STRING, client STRING, sequence BIGINT, user STRING"


@pytest.fixture
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that knows who publishes."""
    directory = tmp_path_factory.mktemp("guarded")
    (directory / "door.py").write_text(DOOR)
    with running_server(directory, elements=GUARDED) as running:
        yield running


def test_streams_journals_and_queries_agree(
    spark: SparkSession, guarded: RunningServer, tmp_path: Path
) -> None:
    server = guarded
    for name in ("ann", "bob"):
        with Client() as client:
            client.connect(uri(server).replace("tcp://", f"tcp://{name}:secret@"))
            client.logon()
            client.publish(TOPIC, b'{"id":"%b"}' % name.encode(), correlation_id=f"by {name}")
            client.confirmed_publish(TOPIC, b'{"id":"\xc3\xbc%b"}' % name.encode())
    schema = f"body STRING, {OF_ALL}, {OF_THE_LOG}"
    frame = streaming(spark, server, TOPIC).schema(schema).load()
    found = read_all(spark, frame, tmp_path)
    journals = spark.read.format("amps-journal").schema(schema).option("topic", TOPIC)
    there = journals.load(str(server.log_file.parent / "journal")).collect()
    assert sorted(found) == sorted(there)
    assert [row.user for row in sorted(found, key=lambda row: row.timestamp)] == [
        *("ann", "ann"),
        *("bob", "bob"),
    ]
    assert {row.length - len(row.body) for row in found} == {0, 1}
    assert all(row.bookmark == f"{row.client}|{row.sequence}|" for row in found)
    queried = reading(spark, server, TOPIC).schema(f"body STRING, {OF_ALL}").load().collect()
    assert sorted(queried) == sorted(row[: len(queried[0])] for row in found)


def test_fields_of_the_same_names_are_read_beside_them(
    spark: SparkSession, server: RunningServer
) -> None:
    publish(server, "sow-namesakes", [{"id": 1, "length": "long", "user": "me"}])
    schema = "length STRING, _length BIGINT, user STRING, _user STRING, _message_type STRING"
    (row,) = reading(spark, server, "sow-namesakes").schema(schema).load().collect()
    assert tuple(row) == ("long", 41, "me", None, "json")


def test_a_sample_has_no_field_that_is_taken_for_metadata() -> None:
    with pytest.raises(PipelineError, match="the messages have a field '_user'"):
        infer_schema([b'{"_user":"x"}'])


def test_nobody_gets_more_columns_than_before() -> None:
    names = ["body", "topic", "sow_key", "bookmark", "timestamp", "correlation_id"]
    assert default_schema("json").names == names


@pytest.mark.parametrize(
    ("bookmark", "client", "sequence"),
    [
        ("12|34|", "12", 34),
        ("18446744073709551615|9223372036854775807|", "18446744073709551615", 2**63 - 1),
        ("1|9223372036854775808|", "1", None),
        ("0|1", None, None),
        ("20260102T030405Z", None, None),
        (None, None, None),
    ],
)
def test_publishers_of_bookmarks(
    bookmark: str | None, client: str | None, sequence: int | None
) -> None:
    columns = {"body": StringType(), "client": StringType(), "sequence": LongType()}
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    text = (bookmark or "").encode()
    offsets = b"".join(number.to_bytes(4, "little") for number in (0, len(text)))
    texts = {"bookmark": BlockTexts(bytes([bookmark is not None]), offsets, text)}
    block = MessageBlock(b"{}", bytes(8), (2).to_bytes(8, "little"), texts)
    batch = RowFormat(schema, "json").batch(MessageColumns([block]))
    assert batch.to_pylist() == [{"body": "{}", "client": client, "sequence": sequence}]
