"""`amps-pipeline history`: an earlier state of a SOW topic, from its journals."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.errors import PipelineError
from pipeline.files import new_path, refuse_existing
from pipeline.jobs.sources import add_source, source_of
from server.storage.journal import BookmarkError, parse_bookmark
from server.storage.journal.read.bookmarks import LogTimestamp

if TYPE_CHECKING:
    import argparse

    from pipeline.entries import EntrySource
    from pipeline.jobs.run import JobRun

HELP: Final = "list the records that a topic had at a time or bookmark"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the job."""
    add_source(parser)
    parser.add_argument(
        "--at",
        default="",
        help="time such as 20260102T030405Z, or bookmark; default: the end of the journals",
    )
    parser.add_argument("--output", type=Path, help="new directory for Parquet files")
    parser.add_argument("--json", action="store_true", help="print JSON, one line per record")


def run(options: argparse.Namespace, run: JobRun) -> None:
    """Run the job.

    Raises:
        PipelineError: the job failed.
    """
    if not options.topic:
        raise PipelineError("--topic: missing; expected the topic of the records")
    if options.output is not None:
        refuse_existing(options.output)
    source = source_of(options)
    if options.at and source.is_export:
        raise PipelineError(
            f"--at={options.at}: requires journals, and {options.source} is an export"
        )
    source.require_topic()
    bookmark = range_up_to(options.at, source)
    source = replace(source, bookmark=bookmark)
    if run.is_dry:
        run.print_text(
            f"{options.source}: the records of {options.topic} {bookmark or 'at the end'}"
        )
        return
    from pipeline.entries import state_of  # imports Spark, which parsing a command line must not

    records = state_of(run.spark(), source, end_of(bookmark))
    if options.output is None:
        for row in records.orderBy("topic", "sow_key").toLocalIterator():
            body = bytes(row.body)
            if options.json:
                run.print_json({"topic": row.topic, "sow_key": row.sow_key, "data": body})
            else:
                run.print_text(f"{row.topic}\t{row.sow_key}\t{body.decode('utf-8', 'replace')}")
        return
    with new_path(options.output) as directory:
        records.write.parquet(str(directory))
    run.print_text(f"{options.output}: written")


def end_of(bookmark: str) -> datetime | None:
    """Return the time at which a range ends; None if it does not end at a time."""
    ends = parse_bookmark(bookmark).ends if bookmark else ()
    times = [end.timestamp for end in ends if isinstance(end, LogTimestamp)]
    return datetime.fromtimestamp(max(times) / 1e6, UTC) if times else None


def range_up_to(at: str, source: EntrySource | None) -> str:
    """Return the bookmark range from the beginning to a point.

    Args:
        at: the point; empty for the end.
        source: the journals that must contain the point, if it is a bookmark.

    Raises:
        PipelineError: the point is not valid, or not in these journals.
    """
    if not at:
        return ""
    bookmark = f"[0:{at}]"
    try:
        parse_bookmark(bookmark)
    except BookmarkError as problem:
        raise PipelineError(f"--at={at}: {problem}") from problem
    if source is not None:
        source.require_bookmark(at)
    return bookmark
