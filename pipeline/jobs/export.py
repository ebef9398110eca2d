"""`amps-pipeline export`: journals, or a SOW topic of a server, to Parquet files.

The files lie in folders by topic and date. An export of journals is incremental: each run adds what
has come since the one before. An export of a SOW topic replaces the one before.
"""

from __future__ import annotations

import uuid
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.errors import PipelineError
from pipeline.files import State, Target, read_state

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame

    from pipeline.jobs.run import Run
    from pipeline.journal.log import Log

HELP: Final = "write journals, or a SOW topic, to Parquet files by topic and date"
_JOB: Final = "export"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the job wants to know."""
    parser.add_argument("source", help="directory of journals, or URI of a server")
    parser.add_argument("target", type=Path, help="directory for the files")
    parser.add_argument("--archive", type=Path, help="directory of archived journals")
    parser.add_argument(
        "--topic", default="", help="topic, or regular expression of topics; all if left out"
    )
    parser.add_argument("--filter", default="", help="content filter")
    parser.add_argument(
        "--accept-gap",
        action="store_true",
        help="go on although journals have been removed that were not exported",
    )


def run(options: argparse.Namespace, run: Run) -> None:
    """Do it.

    Raises:
        PipelineError: it cannot be done; nothing has changed.
    """
    if "://" in options.source:
        _export_topic(options, run)
    else:
        _export_journals(options, run)


def _export_journals(options: argparse.Namespace, run: Run) -> None:
    from pipeline.journal.log import snapshot

    logs = snapshot(Path(options.source), options.archive)
    target = Target(options.target)
    if run.is_dry:
        state = read_state(options.target / "_amps_pipeline" / "state.json") or _new_state(options)
        for log in logs:
            first, last = _range(log, state, options)
            run.say(f"{log.instance}: {max(last - first, 0)} entries to export, up to {last}")
        return
    with target.possession():
        state = target.state() or _new_state(options)
        _check_state(state, options)
        ranges = {log.instance: _range(log, state, options) for log in logs}
        new = {name: one for name, one in ranges.items() if one[1] > one[0]}
        if not new:
            run.say("nothing new")
            return
        frame = reduce(_union, [_entries(options, run, name, *one) for name, one in new.items()])
        count = _write(frame, target)
        state.reached |= {name: last for name, (_, last) in new.items()}
        files = target.finish(state)
        run.say(f"{count} entries in {files} files")


def _union(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.unionByName(other)


def _entries(
    options: argparse.Namespace, run: Run, instance: str, first: int, last: int
) -> DataFrame:
    """The entries of one instance behind `first` up to `last`."""
    from pyspark.sql import functions as F
    from pyspark.sql.datasource import GreaterThan, LessThanOrEqual

    from pipeline.filters import OPTION, write_filters

    given = {
        "archive": "" if options.archive is None else str(options.archive.resolve()),
        "topic": options.topic,
        "filter": options.filter,
        "instance": instance,
        "commands": "all",
        OPTION: write_filters([GreaterThan(("txid",), first), LessThanOrEqual(("txid",), last)]),
    }
    reader = run.spark().read.format("amps-journal")
    frame = reader.options(**{name: text for name, text in given.items() if text})
    entries = frame.load(str(Path(options.source).resolve()))
    return entries.where((F.col("txid") > first) & (F.col("txid") <= last))


def _export_topic(options: argparse.Namespace, run: Run) -> None:
    if not options.topic:
        raise PipelineError("--topic: missing: which topic of the server")
    if run.is_dry:
        run.say(f"{options.source}: the records of {options.topic}")
        return
    target = Target(options.target)
    with target.possession():
        state = target.state() or _new_state(options)
        _check_state(state, options)
        reader = run.spark().read.format("amps").option("server", options.source)
        reader = reader.option("topic", options.topic)
        if options.filter:
            reader = reader.option("filter", options.filter)
        count = _write(reader.load(), target)
        files = target.finish(state, replaces=True)
        run.say(f"{count} records in {files} files")


def _write(frame: DataFrame, target: Target) -> int:
    """Write entries into the staging folder; gives how many there were."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation("written")
    moment = F.coalesce(F.col("timestamp"), F.current_timestamp())
    dated = frame.withColumn("date", F.date_format(moment, "yyyy-MM-dd"))
    counted = dated.observe(seen, F.count(F.lit(1)).alias("rows"))
    counted.write.partitionBy("topic", "date").parquet(str(target.staging.resolve()))
    return int(seen.get["rows"])


def _range(log: Log, state: State, options: argparse.Namespace) -> tuple[int, int]:
    """The txid behind which to go on, and the last one."""
    first = log.files[0].first_txid - 1
    last = max(file.end_txid or 0 for file in log.files) - 1
    reached = state.reached.get(log.instance)
    if reached is None:
        return first, last
    if reached < first and not options.accept_gap:
        raise PipelineError(
            f"{options.source}: the entries {reached + 1} to {first} of {log.instance} have not "
            "been exported, and their journals are gone; name the directory where they were "
            "archived (--archive), or go on without them (--accept-gap)"
        )
    if reached > last:
        raise PipelineError(
            f"{options.source}: the journals of {log.instance} end at entry {last}, but the export "
            f"has {reached}: they belong to another log; export to another directory"
        )
    return max(first, reached), last


def _new_state(options: argparse.Namespace) -> State:
    return State(_JOB, uuid.uuid4().hex, _source(options))


def _source(options: argparse.Namespace) -> str:
    where = options.source if "://" in options.source else str(Path(options.source).resolve())
    return f"{where} topic={options.topic} filter={options.filter}"


def _check_state(state: State, options: argparse.Namespace) -> None:
    if state.source != _source(options):
        raise PipelineError(
            f"{options.target}: holds the export of {state.source}; "
            f"export {_source(options)} to another directory"
        )
