"""`amps-pipeline export`: journals, or a topic of a server, to Parquet files.

The files lie in folders by topic and date, or belong to a Delta table (`pipeline.delta`). An export
of journals is incremental: each run adds the entries recorded since the previous one. An export of
a SOW topic replaces the previous one. With `--follow` new messages are added to the files
continuously (`export_follow`).
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amperage.client.uri import without_passwords
from pipeline.compaction import CompactedTable
from pipeline.errors import PipelineError
from pipeline.files import FOLDER, JobState, JobTarget, read_state

if TYPE_CHECKING:
    import argparse

    from pipeline.delta import DeltaTarget
    from pipeline.jobs.export_frames import ExportSelection
    from pipeline.jobs.run import JobRun

HELP: Final = "export journals, or a topic, to Parquet files by topic and date"
_JOB: Final = "export"
_FORMATS: Final = ("parquet", "delta")
_DEFAULT_POLL_INTERVAL_S: Final = 10.0
_DEFAULT_MAX_ROWS: Final = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the job."""
    parser.add_argument("source", help="directory of journals, or URI of a server")
    parser.add_argument("target", type=Path, help="directory for the files")
    parser.add_argument("--archive", type=Path, help="directory of archived journals")
    parser.add_argument(
        "--topic", default="", help="topic, or regular expression of topics; default: all"
    )
    parser.add_argument("--filter", default="", help="content filter")
    parser.add_argument(
        "--columns",
        default="",
        help="fields of messages to export as columns: 'id BIGINT, symbol STRING';"
        " default: whole messages",
    )
    parser.add_argument(
        "--partition-by",
        default="",
        metavar="FIELD",
        help="field to partition the files by, below topic and date",
    )
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        default=_FORMATS[0],
        help=f"format of the files: {' or '.join(_FORMATS)} (a table with a log, for Spark,"
        f" DuckDB and others); default: {_FORMATS[0]}",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of format('amps') or format('amps-journal'), such as mode=permissive",
    )
    parser.add_argument(
        "--accept-gap",
        action="store_true",
        help="continue although journals were removed before their export",
    )
    parser.add_argument(
        "--follow", action="store_true", help="continue with new entries, until interrupted"
    )
    parser.add_argument(
        "--every",
        type=float,
        default=_DEFAULT_POLL_INTERVAL_S,
        metavar="SECONDS",
        help=f"with --follow: poll interval; default: {_DEFAULT_POLL_INTERVAL_S:g}",
    )
    parser.add_argument(
        "--max-rows",
        type=int,
        default=_DEFAULT_MAX_ROWS,
        metavar="COUNT",
        help=f"with --follow: entries per batch; default: {_DEFAULT_MAX_ROWS:,}",
    )
    parser.add_argument(
        "--until-caught-up",
        action="store_true",
        help="end --follow at the current end of the log",
    )


def run(options: argparse.Namespace, run: JobRun) -> None:
    """Run the job.

    Raises:
        PipelineError: the job failed; nothing has changed.
    """
    selection = _selection(options, run)
    _check(options, selection)
    if run.is_dry:
        _print_plan(options, selection, run)
        return
    target = _target(options, selection)
    with target.lock():
        state = target.read_state() or _new_state(selection, target)
        _check_state(state, selection, target)
        state.columns = _columns(selection)
        if options.follow:
            from pipeline.jobs.export_follow import follow

            follow(options, run, selection, target, state)
        elif selection.is_server:
            _check_stays_followed(state, target)
            _export_topic(selection, run, target, state)
        else:
            from pipeline.jobs.export_journals import export_round, logs_of

            logs = logs_of(selection)
            if not export_round(
                selection, run, target, state, logs, accepts_gap=options.accept_gap
            ):
                run.print_text("nothing new")


def _target(
    options: argparse.Namespace, selection: ExportSelection
) -> CompactedTable | DeltaTarget:
    if options.format == "parquet":
        return CompactedTable(options.target)
    from pipeline.delta import DeltaTarget

    return DeltaTarget(options.target, selection.partition_columns)


def _selection(options: argparse.Namespace, run: JobRun) -> ExportSelection:
    from pipeline.jobs.export_frames import ExportSelection, read_columns

    more = {}
    for text in options.option:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise PipelineError(f"--option={text}: expected NAME=VALUE")
        more[name] = value
    if options.columns:
        run.spark()  # parsing the types needs a Spark session
    columns = read_columns(options.columns, options.partition_by)
    return ExportSelection(
        options.source,
        options.archive,
        options.topic,
        options.filter,
        columns,
        options.partition_by,
        more,
    )


def _check(options: argparse.Namespace, selection: ExportSelection) -> None:
    if selection.is_server and not selection.topic:
        raise PipelineError("--topic: missing; expected a topic of the server")
    if options.until_caught_up and not options.follow:
        raise PipelineError("--until-caught-up: requires --follow")
    if options.every <= 0:
        raise PipelineError(f"--every={options.every:g}: expected seconds")
    if options.max_rows < 1:
        raise PipelineError(f"--max-rows={options.max_rows}: expected a number from 1")


def _print_plan(options: argparse.Namespace, selection: ExportSelection, run: JobRun) -> None:
    """Print the work that a run without --dry-run would do."""
    if selection.is_server:
        what = "the messages published to" if options.follow else "the records of"
        run.print_text(f"{without_passwords(selection.source)}: {what} {selection.topic}")
        return
    from pipeline.jobs.export_journals import logs_of, range_of

    state = read_state(options.target / FOLDER / "state.json") or JobState(_JOB, "", "")
    for log in logs_of(selection):
        first, last = range_of(log, state, selection, accepts_gap=options.accept_gap)
        run.print_text(f"{log.instance}: {max(last - first, 0)} entries to export, up to {last}")


def _export_topic(
    selection: ExportSelection, run: JobRun, target: JobTarget, state: JobState
) -> None:
    from pipeline.jobs.export_frames import records, write

    count = write(records(run.spark(), selection), target, selection)
    files = target.replace_with_staged(state)
    run.print_text(f"{count} records in {files} files")


def _new_state(selection: ExportSelection, target: JobTarget) -> JobState:
    if target.is_used():
        raise PipelineError(
            f"{target.path}: has no stored state of its earlier export; export to another directory"
        )
    return JobState(
        _JOB,
        uuid.uuid4().hex,
        _source(selection),
        columns=_columns(selection),
        partition_by=selection.partition_by,
        format=target.format,
    )


def _source(selection: ExportSelection) -> str:
    if selection.is_server:
        where = without_passwords(selection.source)
    else:
        where = str(Path(selection.source).resolve())
    return f"{where} topic={selection.topic} filter={selection.filter}"


def _columns(selection: ExportSelection) -> str:
    return "" if selection.columns is None else selection.columns.json()


def _check_state(state: JobState, selection: ExportSelection, target: JobTarget) -> None:
    if without_passwords(state.source) != _source(selection):
        raise PipelineError(
            f"{target.path}: contains the export of {without_passwords(state.source)}; "
            f"export {_source(selection)} to another directory"
        )
    if state.partition_by != selection.partition_by:
        raise PipelineError(
            f"{target.path}: its files are partitioned by"
            f" {state.partition_by or 'topic and date only'}, and --partition-by is"
            f" {selection.partition_by or 'not given'}; export to another directory"
        )
    if state.format != target.format:
        raise PipelineError(
            f"{target.path}: contains {state.format or _FORMATS[0]}; use --format="
            f"{state.format or _FORMATS[0]}, as before, or export to another directory"
        )
    _check_columns(state, selection, target)


def _check_stays_followed(state: JobState, target: JobTarget) -> None:
    """Refuse to replace a streamed table, which has messages, by the current records of a topic."""
    if state.batch >= 0:
        raise PipelineError(
            f"{target.path}: contains published messages; continue with --follow, or export the"
            " current records to another directory"
        )


def _check_columns(state: JobState, selection: ExportSelection, target: JobTarget) -> None:
    """Check that columns were only added, and that existing columns have kept their types."""
    from pyspark.sql.types import StructType

    if bool(state.columns) != (selection.columns is not None):
        has, how = (
            ("fields of messages", "with") if state.columns else ("whole messages", "without")
        )
        raise PipelineError(
            f"{target.path}: contains {has}; export {how} --columns, as before, or to"
            " another directory"
        )
    if selection.columns is None:
        return
    kinds = {column.name: column.dataType for column in selection.columns}
    for column in StructType.fromJson(json.loads(state.columns)):
        if kinds.get(column.name) != column.dataType:
            raise PipelineError(
                f"{target.path}: has the column {column.name} {column.dataType.simpleString()},"
                " which is missing in --columns; add columns only, or export to another directory"
            )
