"""Journals as rows: what is read, what is left out, and that nothing damaged gets through.

These drive the data source as Spark does, without Spark; test_journal_spark does it with.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pipeline.errors import PipelineError
from pipeline.filters import OPTION, write_filters
from pipeline.journal.source import AmpsJournalDataSource
from pipeline.journal.stream import AmpsJournalStreamReader
from server.storage.journal.format.entry import JournalEntryKind
from tests.pipeline.journals import columns, journal, message, read
from tests.storage.journal.support import START

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six thousand messages on three topics in several files, the last of them not full."""
    directory = tmp_path_factory.mktemp("journal")
    with journal(directory, with_topic_index=True) as writer:
        for number in range(6000):
            topic = "rare" if number % 1000 == 0 else "orders" if number % 2 else "trades"
            body = message(number, name=f"n{number % 10}", price=number / 4)
            writer.publish(topic, body, client=7 + number % 2, key=number % 50 + 1)
    assert len(list(directory.glob("*.journal"))) > 2
    return directory


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] if "id" in row else json.loads(row["body"])["id"] for row in rows]


def test_every_message_is_a_row_with_all_that_is_known_of_it(orders: Path) -> None:
    rows = read(orders)
    assert ids(rows) == list(range(6000))
    first = rows[0]
    assert first["topic"] == "rare"
    assert first["message_type"] == "json"
    assert first["command"] == "publish"
    assert (first["client"], first["sequence"], first["bookmark"]) == ("7", 1, "7|1|")
    assert first["timestamp"] == EPOCH + timedelta(microseconds=START + 1000)
    assert first["sow_key"] == "1"
    assert first["length"] == len(first["body"])
    assert first["instance"] == "TEST"
    assert first["correlation_id"] is None
    assert first["expiration"] is None
    assert [row["txid"] for row in rows] == sorted(row["txid"] for row in rows)


def test_fields_of_the_messages_are_columns_of_a_given_schema(orders: Path) -> None:
    rows = read(orders, "id long, name string, price double, missing string, _topic string")
    assert len(rows) == 6000
    assert rows[7] == {
        "id": 7, "name": "n7", "price": 1.75, "missing": None, "_topic": "orders",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"topic": "rare"}, range(0, 6000, 1000)),
        ({"topic": "^(rare|orders)$"}, [n for n in range(6000) if n % 2 or n % 1000 == 0]),
        ({"topic": "nothing"}, []),
        ({"message_type": "nvfix"}, []),
        ({"instance": "TEST", "topic": "rare"}, range(0, 6000, 1000)),
        ({"bookmark": "0", "topic": "rare"}, range(0, 6000, 1000)),
        ({"bookmark": "7|2000|"}, range(3999, 6000)),
        ({"bookmark": "[7|2000|:8|2001|)"}, range(3998, 4001)),
        ({"bookmark": "[7|2000|:8|2001|]"}, range(3998, 4002)),
        ({"bookmark": "(7|2000|:8|2001|)"}, range(3999, 4001)),
        ({"bookmark": "20250615T150645.000000Z"}, range(4999, 6000)),
        ({"bookmark": "[20250615T150642Z:20250615T150643Z)"}, range(1999, 2999)),
        ({"filter": "/price > 1490 AND /name = 'n3'"}, range(5963, 6000, 10)),
        ({"filter": "/missing IS NULL AND /id < 3"}, range(3)),
        ({"filter": "1 = 1"}, range(6000)),
        ({"filter": "1 = 2"}, []),
        ({"piece_size": "64KB"}, range(6000)),
    ],
)
def test_options_say_which_entries(
    orders: Path, options: dict[str, str], expected: list[int]
) -> None:
    assert ids(read(orders, "id long", options=options)) == list(expected)


def moment(milliseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=START + 1000 * milliseconds)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(("_topic",), "rare")], range(0, 6000, 1000)),
        ([Not(EqualTo(("_topic",), "trades")), LessThan(("id",), 5)], [0, 1, 3]),
        ([In(("_topic",), ("rare", "x")), IsNotNull(("_topic",))], range(0, 6000, 1000)),
        ([EqualTo(("_client",), "8"), LessThan(("id",), 6)], [1, 3, 5]),
        ([EqualTo(("_bookmark",), "8|2|")], [3]),
        ([EqualTo(("_timestamp",), moment(2000))], [1999]),
        ([GreaterThan(("_timestamp",), moment(5998))], [5998, 5999]),
        ([LessThanOrEqual(("_timestamp",), moment(2))], [0, 1]),
        ([Not(GreaterThanOrEqual(("_timestamp",), moment(3)))], [0, 1]),
        ([In(("_timestamp",), (moment(2), moment(9)))], [1, 8]),
        ([EqualTo(("_sow_key",), "50"), LessThan(("id",), 190)], [49, 99, 149]),
        ([IsNull(("_correlation_id",)), LessThan(("id",), 2)], [0, 1]),
        ([EqualTo(("_instance",), "OTHER")], []),
        ([EqualTo(("id",), 17)], [17]),
        ([GreaterThan(("price",), 1499.0), Not(EqualTo(("name",), "n8"))], [5997, 5999]),
        ([IsNotNull(("missing",)), LessThan(("id",), 5)], []),
        (
            [
                IsNotNull(("name",)),
                IsNotNull(("id",)),
                EqualNullSafe(("missing",), None),
                EqualTo(("name",), "n3"),
                LessThan(("id",), 20),
            ],
            [3, 13],
        ),
        ([IsNotNull(("missing",)), EqualNullSafe(("missing",), None)], []),
        ([StringStartsWith(("name",), "n3"), LessThan(("id",), 20)], [3, 13]),
        ([StringEndsWith(("name",), "9"), LessThan(("id",), 20)], [9, 19]),
        ([StringContains(("name",), "4"), LessThan(("id",), 20)], [4, 14]),
        ([Not(StringContains(("name",), "n")), LessThan(("id",), 20)], []),
        ([IsNull(("missing",)), LessThan(("id",), 2)], [0, 1]),
        ([EqualNullSafe(("missing",), None), LessThan(("id",), 2)], [0, 1]),
        ([Not(EqualNullSafe(("missing",), "x")), LessThan(("id",), 2)], [0, 1]),
        ([Not(EqualTo(("missing",), "x"))], []),
        ([Not(In(("id",), tuple(range(3, 6000))))], [0, 1, 2]),
    ],
)
def test_predicates_are_tested_while_reading(
    orders: Path, filters: list[Filter], expected: list[int]
) -> None:
    metadata = "_topic string, _client string, _bookmark string, _timestamp timestamp"
    more = "_sow_key string, _correlation_id string, _instance string"
    schema = f"id long, name string, price double, missing string, {metadata}, {more}"
    assert ids(read(orders, schema, filters)) == list(expected)


def test_what_would_not_mean_the_same_goes_back_to_spark(orders: Path) -> None:
    everything = len(read(orders, "id long"))
    refused: list[Filter] = [
        EqualTo(("id",), "17"),
        EqualTo(("name", "inner"), "x"),
        EqualTo(("id",), None),
        LessThan(("name",), b"x"),
    ]
    assert len(read(orders, "id long, name string", refused)) == everything
    assert ids(read(orders, "id long, name string", [*refused, EqualTo(("id",), 17)])) == [17]


def test_files_and_pieces_without_wanted_entries_are_not_planned(orders: Path) -> None:
    def pieces(filters: list[Filter], **options: str) -> int:
        given = {"path": str(orders), "piece_size": "64KB", OPTION: write_filters(filters)}
        source = AmpsJournalDataSource(given | options)
        reader = source.reader(columns("_txid long, _timestamp timestamp, _topic string"))
        return len([piece for piece in reader.partitions() if hasattr(piece, "path")])

    everything = pieces([])
    assert 0 < pieces([GreaterThan(("_timestamp",), moment(5960))]) < everything / 2
    assert 0 < pieces([], bookmark="(20250615T150645.96Z:0|1|)") < everything / 2
    assert 0 < pieces([], bookmark="7|2999|") < everything / 2
    assert pieces([EqualTo(("_topic",), "nothing")]) == 0
    assert pieces([], topic="nothing") == 0


def test_deletes_are_rows_if_asked_for(tmp_path: Path) -> None:
    with journal(tmp_path) as writer:
        writer.publish("t", b'{"id":1}', key=5)
        writer.publish("t", b'{"id":2}', key=6, kind=JournalEntryKind.DELTA_PUBLISH)
        writer.publish("t", b'["5"]', kind=JournalEntryKind.SOW_DELETE)
    commands = [row["command"] for row in read(tmp_path, commands="all")]
    assert commands == ["publish", "delta_publish", "sow_delete"]
    assert len(read(tmp_path)) == 2
    assert [row["command"] for row in read(tmp_path, commands="sow_delete")] == ["sow_delete"]


def test_bodies_stay_apart_from_what_lies_between_them(tmp_path: Path) -> None:
    with journal(tmp_path) as writer:
        for number in range(300):
            correlation = b"c%d" % number if number % 3 else b""
            writer.publish("t", message(number), correlation_id=correlation)
    rows = read(tmp_path)
    assert ids(rows) == list(range(300))
    expected = [f"c{number}" if number % 3 else None for number in range(300)]
    assert [row["correlation_id"] for row in rows] == expected


def test_message_types_have_their_own_readers(tmp_path: Path) -> None:
    with journal(tmp_path) as writer:
        for number in range(10):
            if number % 2:
                writer.publish(
                    "f", f"id={number}\x01name=n{number}\x01".encode(), message_type="nvfix"
                )
            else:
                writer.publish("j", message(number, name=f"n{number}"))
    rows = read(tmp_path, "id long, name string")
    assert sorted((row["id"], row["name"]) for row in rows) == [(n, f"n{n}") for n in range(10)]
    assert isinstance(read(tmp_path)[0]["body"], str)
    chosen = read(tmp_path, "_txid long, _topic string", filter="/id > 4 AND /name != 'n8'")
    assert [row["_topic"] for row in chosen] == ["f", "j", "f", "f"]
    assert chosen == sorted(chosen, key=lambda row: row["_txid"])


def test_a_filter_reads_each_message_type_as_the_server_does(tmp_path: Path) -> None:
    """Two texts of JSON are compared by their bytes, numbers of nvfix as numbers."""
    with journal(tmp_path) as writer:
        writer.publish("f", b"a=9\x01b=10\x01", message_type="nvfix")
        writer.publish("j", b'{"a":"9","b":"10"}')
    assert [row["topic"] for row in read(tmp_path, filter="/a < /b")] == ["f"]
    assert [row["topic"] for row in read(tmp_path, filter="/a > /b")] == ["j"]


def test_a_message_without_a_body_has_no_fields(tmp_path: Path) -> None:
    with journal(tmp_path) as writer:
        for body in (b"", b'{"id":1}', b"", b"", b'{"id":2}', b""):
            writer.publish("t", body)
    assert [row["id"] for row in read(tmp_path, "id long")] == [None, 1, None, None, 2, None]
    assert ids(read(tmp_path, "id long", [GreaterThan(("id",), 0)])) == [1, 2]


def test_a_message_that_does_not_fit_is_named_with_its_entry(tmp_path: Path) -> None:
    with journal(tmp_path) as writer:
        for number in range(2000):
            body = b'{"id":"much"}' if number == 1500 else b"" if number == 3 else message(number)
            bad = writer.publish("t", body) - (1999 - 1500)
    with pytest.raises(PipelineError, match=rf'entry {bad} of topic t: .*message: .*"much"'):
        read(tmp_path, "id long")


def test_bodies_that_are_no_text_are_binary(tmp_path: Path) -> None:
    with journal(tmp_path) as writer:
        writer.publish("b", b"\xff\x00", message_type="binary")
    assert read(tmp_path)[0]["body"] == b"\xff\x00"
    with pytest.raises(PipelineError, match=r"fields id cannot be read from messages of type bin"):
        read(tmp_path, "id long")


def test_archived_and_compressed_files_are_read_like_any_other(
    orders: Path, tmp_path: Path
) -> None:
    here, archive = tmp_path / "here", tmp_path / "archive"
    shutil.copytree(orders, here)
    archive.mkdir()
    first, second, *_ = sorted(here.glob("*.journal"))
    (here / f"{first.name}.gz").write_bytes(gzip.compress(first.read_bytes(), 1))
    first.unlink()
    (archive / f"{second.name}.gz").write_bytes(gzip.compress(second.read_bytes(), 1))
    second.unlink()
    with pytest.raises(PipelineError, match=r"has a gap.*option archive"):
        read(here)
    assert ids(read(here, "id long", archive=str(archive))) == list(range(6000))
    assert ids(read(here, "id long", archive=str(archive), topic="rare")) == list(
        range(0, 6000, 1000)
    )


def test_a_file_that_moves_after_planning_is_found_again(orders: Path, tmp_path: Path) -> None:
    here, archive = tmp_path / "here", tmp_path / "archive"
    shutil.copytree(orders, here)
    archive.mkdir()
    options = {"path": str(here), "archive": str(archive)}
    reader = AmpsJournalDataSource(options).reader(columns("id long"))
    pieces = reader.partitions()
    first = min(here.glob("*.journal"))
    (archive / f"{first.name}.gz").write_bytes(gzip.compress(first.read_bytes(), 1))
    first.unlink()
    assert sum(batch.num_rows for piece in pieces for batch in reader.read(piece)) == 6000
    (archive / f"{first.name}.gz").unlink()
    with pytest.raises(PipelineError, match=rf"{first.name}.*removed after the query was planned"):
        list(reader.read(pieces[0]))


def test_what_is_written_after_planning_does_not_belong_to_the_query(tmp_path: Path) -> None:
    with journal(tmp_path) as writer:
        for number in range(100):
            writer.publish("t", message(number))
        writer.journal.commit()
        reader = AmpsJournalDataSource({"path": str(tmp_path)}).reader(columns("id long"))
        pieces = reader.partitions()
        for number in range(100, 6000):
            writer.publish("t", message(number))
        writer.journal.commit()
        assert sum(batch.num_rows for piece in pieces for batch in reader.read(piece)) == 100
        assert ids(read(tmp_path, "id long")) == list(range(6000))


def damaged_copy(orders: Path, target: Path, offset: int) -> Path:
    shutil.copytree(orders, target)
    first = min(target.glob("*.journal"))
    data = bytearray(first.read_bytes())
    data[offset] ^= 0x55
    first.write_bytes(data)
    return first


def test_a_damaged_message_is_named_or_skipped(orders: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    first = damaged_copy(orders, target, 200_000)
    with pytest.raises(PipelineError, match=rf"{first.name}: entry \d+ \(number \d+ of the file"):
        read(target, "id long")
    assert len(read(target, "id long", damaged="skip")) == 5999
    assert len(read(target, "_txid long")) == 6000, "bodies that are not read are not checked"
    undamaged_topic = "trades" if len(read(target, "id long", topic="rare")) == 6 else "rare"
    assert read(target, "id long", topic=undamaged_topic, damaged="skip")


def test_a_damaged_record_is_named_or_skipped(orders: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    first = damaged_copy(orders, target, -96 * 500)
    with pytest.raises(PipelineError, match=rf"{first.name}: entry \d+.*its record is damaged"):
        read(target, "_txid long")
    assert len(read(target, "_txid long", damaged="skip")) == 5999


def test_a_torn_file_is_an_error_that_names_it(orders: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    shutil.copytree(orders, target)
    first = min(target.glob("*.journal"))
    whole = first.read_bytes()
    first.write_bytes(whole[:700_000])
    with pytest.raises(PipelineError, match=rf"{first.name}: truncated: it has 700000 bytes"):
        read(target)
    first.unlink()
    packed = gzip.compress(whole, 1)
    (target / f"{first.name}.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(PipelineError, match=rf"{first.name}.gz: truncated"):
        read(target)


def test_a_message_that_does_not_fit_the_schema_is_named(tmp_path: Path) -> None:
    with journal(tmp_path) as writer:
        for number in range(20):
            writer.publish("t", message(number, qty="many" if number == 13 else number))
    with pytest.raises(PipelineError, match=r"\.journal: entry \d+ of topic t: .*qty"):
        read(tmp_path, "qty long")


@pytest.mark.parametrize(
    ("schema", "options", "text"),
    [
        (None, {"topics": "x"}, "option topics: .*did you mean topic"),
        (None, {"topic": "(x"}, r"option topic='\(x'"),
        (None, {"bookmark": "yesterday"}, "option bookmark='yesterday'"),
        (None, {"bookmark": "5|5|"}, "option bookmark='5|5|': bookmark not found"),
        (None, {"filter": "/a >"}, "option filter='/a >'"),
        (None, {"commands": "subscribe"}, "option commands='subscribe'"),
        (None, {"damaged": "maybe"}, "option damaged='maybe': expected fail or skip"),
        (None, {"piece_size": "much"}, "option piece_size='much'"),
        (None, {"archive": "/nowhere"}, "option archive='/nowhere': no such directory"),
        (None, {"path": "/nowhere"}, "/nowhere: no such directory"),
        (None, {"path": ""}, r"option path: missing; .*CREATE TEMPORARY VIEW name USING format"),
        (None, {"path": "s3a://bucket/journal"}, "option path='s3a:.*of this machine"),
        (None, {"path": "/a/*,/b"}, "option path='/a/.*expected one directory or one journal"),
        (None, {"instance": "OTHER"}, "has no journal files of the instance OTHER"),
        ("body long", {}, "column 'body' is bigint, expected string or binary"),
        ("body string, other long", {}, "column 'other': with a column body, only topic"),
        ("_timestamp string", {}, "column '_timestamp' is string, expected timestamp"),
    ],
)
def test_what_is_wrong_is_said_with_its_name(
    orders: Path, schema: str | None, options: dict[str, str], text: str
) -> None:
    with pytest.raises(PipelineError, match=text):
        read(orders, schema, options=options)


def test_a_stream_does_not_open_full_files_again(orders: Path, tmp_path: Path) -> None:
    """But others that come in their place."""
    target = tmp_path / "copy"
    shutil.copytree(orders, target)
    source = AmpsJournalDataSource({"path": str(target), "provider": "amps-journal"})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, AmpsJournalStreamReader)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    full = sorted(target.glob("*.journal"))[1]
    size, stat = full.stat().st_size, full.stat()
    with full.open("r+b") as file:
        file.write(bytes(size))
    os.utime(full, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert reader.latestOffset(begin, ReadAllAvailable()) == end
    full.unlink()
    full.write_bytes(bytes(size))
    with pytest.raises(PipelineError, match="the transaction log has a gap"):
        reader.latestOffset(begin, ReadAllAvailable())


def test_a_stream_that_cannot_be_tells_so_when_it_begins(orders: Path) -> None:
    """Spark loses what is raised before."""
    source = AmpsJournalDataSource({"path": str(orders), "bookmark": "[0:0|1|]"})
    reader = source.streamReader(source.schema())
    for ask in (reader.initialOffset, lambda: reader.latestOffset({}, ReadAllAvailable())):
        with pytest.raises(PipelineError, match="expected a start"):
            ask()


@pytest.mark.parametrize("step", [-3600, 3600])
@pytest.mark.parametrize("has_note", [True, False])
def test_a_range_of_times_across_a_step_of_the_clock(
    tmp_path: Path, step: int, has_note: bool
) -> None:
    """Moments count by the clock as it is set now.

    Without the note of the step, those before it are what the clock told then: there may be more.
    """
    with journal(tmp_path) as writer:
        for number in range(10):
            writer.publish("t", message(number))
        writer.clock.now += step * 1_000_000
        writer.journal.record_clock_step(step)
        for number in range(10, 20):
            writer.publish("t", message(number))
    path = tmp_path / "TEST.steps.ack"
    if not has_note:
        path.write_bytes(path.read_bytes()[:-1])

    def since(number: int, by: int) -> list[int]:
        moment = EPOCH + timedelta(microseconds=START + (number + 1) * 1000, seconds=by)
        return ids(read(tmp_path, bookmark=moment.strftime("[%Y%m%dT%H%M%S.%fZ:0|1|]")))

    assert ids(read(tmp_path)) == list(range(20))
    assert since(15, step)[-5:] == list(range(15, 20))
    if has_note:
        assert since(15, step) == list(range(15, 20))
        assert since(5, step) == list(range(5, 20))
