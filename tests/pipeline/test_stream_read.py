"""Messages of the transaction log as a stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import IntegerType, StructField, StructType

from pipeline.amps.offsets import LogOffset
from pipeline.amps.options import read_options
from pipeline.amps.stream import AmpsStreamReader
from tests.pipeline.streams import read_all, to_file, until
from tests.pipeline.topics import bookmarks, publish, streaming, uri
from tests.support.long_form import ONLY_LONG, spread
from tests.support.server import RunningServer

SCHEMA: Final = StructType([StructField("id", IntegerType())])


def test_all_there_is_in_batches_and_again_from_the_checkpoint(
    spark: SparkSession, server: RunningServer, tmp_path: Path
) -> None:
    """Large batches are divided; a batch that was not committed is repeated as it was."""
    publish(server, "log-now", [{"id": i} for i in range(12_500)])
    options = {"max_rows_per_trigger": 11_000, "partitions": 2}
    frame = streaming(spark, server, "log-now", **options).schema("id INT, _bookmark STRING").load()
    rows = read_all(spark, frame, tmp_path)
    assert sorted(row.id for row in rows) == list(range(12_500))
    assert len({row._bookmark for row in rows}) == 12_500
    offsets = sorted((tmp_path / "checkpoint" / "offsets").glob("[01]"))
    assert [len(json.loads(one.read_text().splitlines()[-1])["ranges"]) for one in offsets] == [
        2,
        2,
    ]
    # As if it had been killed after the last batch was written and before that was noted down.
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    publish(server, "log-now", [{"id": 12_500}])
    rows = read_all(spark, frame, tmp_path)
    assert sorted(row.id for row in rows) == list(range(12_501))


def test_a_stream_goes_on_with_another_column(
    spark: SparkSession, server: RunningServer, tmp_path: Path
) -> None:
    """Messages have got a field that they did not have before; the checkpoint is the same."""
    publish(server, "log-evolves", [{"id": 1}, {"id": 2}])
    first = streaming(spark, server, "log-evolves").schema("id INT").load()
    read_all(spark, first, tmp_path)
    publish(server, "log-evolves", [{"id": 3, "qty": 5}, {"id": 4}])
    second = streaming(spark, server, "log-evolves").schema("id INT, qty INT").load()
    read_all(spark, second, tmp_path)
    rows = spark.read.schema("id INT, qty INT").parquet(str(tmp_path / "rows")).collect()
    assert sorted(map(tuple, rows), key=str) == [(1, None), (2, None), (3, 5), (4, None)]


def test_what_comes_is_followed(spark: SparkSession, server: RunningServer, tmp_path: Path) -> None:
    """From now on, over several topics, filtered by the server, as bodies with metadata."""
    publish(server, "log-follow-1", [{"id": -1}])
    options = {"bookmark": "0|1|", "filter": "/id % 2 = 0"}
    frame = streaming(spark, server, "^log-follow-", **options).load()
    found: list[Row] = []
    writer = frame.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        until(lambda: bool(query.recentProgress) or _publish_probe(server, found), query)
        publish(server, "log-follow-1", [{"id": i} for i in range(4)])
        publish(server, "log-follow-2", [{"id": i} for i in range(4, 8)])
        until(lambda: [row.body for row in found if "probe" not in row.body][3:] != [], query)
    finally:
        query.stop()
    rows = [row for row in found if "probe" not in row.body]
    assert [(row.topic, json.loads(row.body)["id"]) for row in rows] == [
        ("log-follow-1", 0),
        ("log-follow-1", 2),
        ("log-follow-2", 4),
        ("log-follow-2", 6),
    ]
    assert all(row.bookmark.count("|") == 2 and row.timestamp is not None for row in rows)


@pytest.mark.parametrize("now", spread(["0|1|", "0|1", "1|0|"], 1))
def test_the_now_of_a_stream_is_that_of_its_first_start(
    spark: SparkSession, server: RunningServer, tmp_path: Path, now: str
) -> None:
    """Also if there was nothing to read then: what comes between two runs is not left out."""
    topic = f"log-later-{now.count('|')}{now[0]}"
    publish(server, topic, [{"id": -1}])
    frame = streaming(spark, server, topic, bookmark=now).schema("id INT").load()
    to_file(frame, tmp_path, availableNow=True).awaitTermination()
    for number in range(2):
        publish(server, topic, [{"id": number}])
        rows = read_all(spark, frame, tmp_path)
        assert sorted(row.id for row in rows) == list(range(number + 1))


def _publish_probe(server: RunningServer, found: list[Row]) -> bool:
    """Publish something that tells by its arrival that the query is listening."""
    publish(server, "log-follow-1", [{"id": 0, "probe": True}])
    return bool(found)


def test_records_that_are_followed_have_their_keys(
    spark: SparkSession, server: RunningServer, tmp_path: Path
) -> None:
    """Of a topic that keeps records."""
    publish(server, "both-keys", [{"id": i % 3} for i in range(6)])
    frame = streaming(spark, server, "both-keys").schema("id INT, _sow_key STRING").load()
    rows = read_all(spark, frame, tmp_path)
    assert sorted(row.id for row in rows) == [0, 0, 1, 1, 2, 2]
    assert len({(row.id, row._sow_key) for row in rows}) == 3


def test_offsets_of_an_earlier_version_count(server: RunningServer) -> None:
    """They have bookmarks of messages: batches are repeated, and the stream goes on."""
    publish(server, "log-older", [{"id": i} for i in range(8)])
    marks = bookmarks(server, "log-older")
    given = {"server": uri(server), "topic": "log-older"}
    reader = AmpsStreamReader(read_options(given, "readStream"), SCHEMA)
    before, after = (
        {"bookmark": marks[last], "ranges": {f"[{marks[last - 2]}:{marks[last]}]": 3}}
        for last in (2, 5)
    )
    try:
        assert ids_of(reader, before, after) == [3, 4, 5]
        end = reader.latestOffset(after, ReadAllAvailable())
        assert ids_of(reader, after, end) == [6, 7]
        assert list(end["ranges"].values()) == [2]
    finally:
        reader.stop()


def ids_of(reader: AmpsStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """What the tasks of a micro-batch read."""
    return [
        number
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for number in batch.column("id").to_pylist()
    ]


def test_offsets_get_on_where_others_publish(
    spark: SparkSession, server: RunningServer, tmp_path: Path
) -> None:
    """So that a stream of a quiet topic does not need the journals that it has passed."""
    publish(server, "log-still", [{"id": 1}])
    frame = streaming(spark, server, "log-still").schema("id INT").load()
    places = []
    for _ in range(2):
        assert [row.id for row in read_all(spark, frame, tmp_path)] == [1]
        offsets = (tmp_path / "checkpoint" / "offsets").glob("[0-9]*")
        last = max(offsets, key=lambda path: int(path.name)).read_text().splitlines()[-1]
        places.append(int(json.loads(last)["bookmark"].split("|")[1]))
        publish(server, "log-loud", [{"id": i} for i in range(10)])
    assert places[1] >= places[0] + 10


@pytest.mark.parametrize(
    ("options", "batches"),
    [
        ({"max_rows_per_trigger": 40}, [40, 40, 20]),
        ({"max_bytes_per_trigger": 300}, [30, 30, 30, 10]),
        ({"max_bytes_per_trigger": 300, "max_rows_per_trigger": 25}, [25, 25, 25, 25]),
        pytest.param({"max_bytes_per_trigger": 1}, [1] * 100, marks=ONLY_LONG),
        ({"min_rows_per_trigger": 1000}, [100]),
        ({"filter": "/id >= 50", "max_rows_per_trigger": 40}, [40, 20]),
    ],
    ids=str,
)
def test_limits_of_micro_batches(
    server: RunningServer, options: dict[str, Any], batches: list[int]
) -> None:
    """A batch ends with the message that fills it; all there is comes in the end."""
    topic = f"log-limits-{'-'.join(options)}-{batches[0]}"
    publish(server, topic, [{"id": i} for i in range(10, 110)])  # ten bytes each, or eleven
    given = {"server": uri(server), "topic": topic, **{k: str(v) for k, v in options.items()}}
    reader = AmpsStreamReader(read_options(given, "readStream"), SCHEMA)
    reader.prepareForTriggerAvailableNow()
    offset, found = reader.initialOffset(), []
    try:
        while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
            found.append(sum(end["ranges"].values()))
            offset = end
    finally:
        reader.stop()
    assert [rows for rows in found if rows] == batches


def test_progress_tells_how_far_a_stream_is_behind(
    spark: SparkSession, server: RunningServer, tmp_path: Path
) -> None:
    publish(server, "log-behind", [{"id": i} for i in range(10, 40)])
    frame = streaming(spark, server, "log-behind", max_rows_per_trigger=10).schema("id INT").load()
    writer = frame.writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    query.awaitTermination()
    told = [
        json.loads(progress["sources"][0]["latestOffset"])
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]
    assert [(one["rows_behind"], one["bytes_behind"]) for one in told] == [
        (20, 200),
        (10, 100),
        (0, 0),
    ]
    assert told[0]["seconds_behind"] > 0 == told[-1]["seconds_behind"]
    assert len({one["bookmark"] for one in told}) == 1


def test_a_stream_with_several_servers_tells_how_far_it_is_behind(server: RunningServer) -> None:
    """As the one counts it that it reads from; again when there is more."""
    given = {"server": f"{uri(server)},{uri(server)}", "topic": "log-far", "filter": "/id > 0"}
    publish(server, "log-far", [{"id": i} for i in range(10, 40)])
    reader = AmpsStreamReader(read_options(given, "readStream"), SCHEMA)
    offset, told = reader.initialOffset(), []
    try:
        assert reader.reportLatestOffset() is None
        for more in ((), (), (), range(40, 60), ()):
            if more:
                publish(server, "log-far", [{"id": i} for i in more])
            offset = planned_behind(reader, offset)
            behind = reader.reportLatestOffset()
            assert behind is not None
            told.append((behind["rows_behind"], behind["bytes_behind"]))
    finally:
        reader.stop()
    assert told == [(20, 200), (10, 100), (0, 0), (10, 100), (0, 0)]


def planned_behind(reader: AmpsStreamReader, offset: LogOffset) -> LogOffset:
    """Where the next micro-batch of ten rows ends."""
    while (end := reader.latestOffset(offset, ReadMaxRows(10))) == offset:
        pass
    return end


def test_a_micro_batch_waits_for_enough(server: RunningServer) -> None:
    """Until it has waited for long enough."""
    given = {"server": uri(server), "topic": "log-enough", "min_rows_per_trigger": "5"}
    publish(server, "log-enough", [{"id": i} for i in range(4)])
    assert planned(given | {"max_trigger_delay": "0.0001"}) == 4
    assert planned(given) == 0
    publish(server, "log-enough", [{"id": 4}])
    assert planned(given) == 5


def planned(given: dict[str, str]) -> int:
    """How many rows the first micro-batch of a stream has."""
    reader = AmpsStreamReader(read_options(given, "readStream"), SCHEMA)
    try:
        end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
        return sum(end["ranges"].values())
    finally:
        reader.stop()


def test_a_stream_with_deletions(
    spark: SparkSession, server: RunningServer, tmp_path: Path
) -> None:
    """They are rows in their place, whether tasks read them or they travel with these."""
    publish(server, "both-gone", [{"id": i} for i in range(12_000)])
    with server.log_on("deleter") as peer:
        peer.publish("both-gone", b'{"id":-1}', e=60)
        peer.ask(
            {"c": "sow_delete", "cid": "d", "t": "both-gone", "f": "/id = 3", "a": "processed"}
        )
        peer.flush()
    frame = streaming(spark, server, "both-gone", commands="all", partitions="2").load()
    assert frame.columns[-2:] == ["command", "expiration"]
    rows = read_all(spark, frame, tmp_path)
    with server.log_on("deleter") as peer:
        peer.ask(
            {"c": "sow_delete", "cid": "d", "t": "both-gone", "f": "/id = 4", "a": "processed"}
        )
    rows = read_all(spark, frame, tmp_path)
    keys = {row.body: row.sow_key for row in rows}
    gone = [row for row in rows if row.command == "sow_delete"]
    assert sorted(json.loads(row.body) for row in gone) == sorted(
        [keys[f'{{"id": {number}}}']] for number in (3, 4)
    )
    assert all(row.sow_key is None and row.expiration is None for row in gone)
    assert [row.expiration for row in rows if row.body == '{"id":-1}'] == [60]
    assert len(rows) == 12_003


@pytest.mark.parametrize(
    ("schema", "options", "problem"),
    [
        ("id INT, _command STRING", {}, "expected the columns body and command"),
        (None, {"filter": "/id = 1"}, "option commands='all': it excludes the option filter"),
        (None, {"consume": "true"}, "option commands='all': messages of a queue are not records"),
        (None, {"commands": "most"}, "expected publish or all"),
    ],
)
def test_what_deletions_do_not_go_with(
    spark: SparkSession, server: RunningServer, schema: str | None, options: Any, problem: str
) -> None:
    """It is refused where the stream is made."""

    def run() -> None:
        reader = streaming(spark, server, "both-gone", **({"commands": "all"} | options))
        frame = (reader if schema is None else reader.schema(schema)).load()
        frame.writeStream.format("noop").start().awaitTermination()

    with pytest.raises(Exception, match=problem):
        run()


def test_duplicates_are_forgotten_behind_the_watermark(
    spark: SparkSession, server: RunningServer, tmp_path: Path
) -> None:
    """What Spark keeps to know them by is that of the last minutes of events."""
    events = [
        {"id": number, "at": f"2026-01-02T03:{number // 10:02}:{number % 10:02}Z"}
        for number in range(100)
    ]
    rounds = [events[begin : begin + 10] for begin in range(0, 100, 10)]
    publish(server, "log-twice", [event for some in rounds for event in some * 2])
    reader = streaming(spark, server, "log-twice", max_rows_per_trigger=20)
    frame = reader.schema("id INT, at TIMESTAMP").load().withWatermark("at", "90 seconds")
    query = to_file(frame.dropDuplicatesWithinWatermark(["id"]), tmp_path, availableNow=True)
    query.awaitTermination()
    rows = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert sorted(row.id for row in rows) == list(range(100))
    kept = [one["stateOperators"][0]["numRowsTotal"] for one in query.recentProgress]
    assert 0 < max(kept) <= 40


def test_no_real_time_mode(spark: SparkSession, server: RunningServer, tmp_path: Path) -> None:
    """Spark has none for sources in Python, nor for sinks."""
    publish(server, "log-real-time", [{"id": 1}])
    frame = streaming(spark, server, "log-real-time").schema("id INT").load()
    writer = frame.writeStream.format("console").outputMode("update")
    writer.trigger(realTime="5 minutes")  # type: ignore[call-overload]  # Spark's own stub lacks it
    with pytest.raises(PySparkException, match="INPUT_STREAM_NOT_SUPPORTED"):
        writer.start(checkpointLocation=str(tmp_path / "checkpoint")).awaitTermination()
