"""`amps-pipeline view`: a view of a configuration, computed from journals or from a server.

It is computed once, as of any time, or for as long as the job runs (`follow`).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amperage.client.uri import without_passwords
from config_schema.spec import InstanceSpec, TopicRef, ViewSpec
from pipeline.configuration import read_configuration
from pipeline.errors import PipelineError
from pipeline.files import new_path, refuse_existing
from pipeline.jobs.follow import follow
from pipeline.jobs.history import end_of, range_up_to

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame

    from pipeline.entries import EntrySource
    from pipeline.jobs.run import JobRun

HELP: Final = "compute a view, as of any time or bookmark, or keep it up to date"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the job."""
    parser.add_argument("config", help="configuration with the view")
    parser.add_argument("view", help="its Name")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--journals", type=Path, help="compute the view from these journals")
    source.add_argument(
        "--server", help="compute it from the topics of a server: tcp://host:port/amps"
    )
    parser.add_argument("--archive", type=Path, help="directory of archived journals")
    parser.add_argument(
        "--at", default="", help="time such as 20260102T030405Z, or bookmark; needs --journals"
    )
    add_target(parser)
    parser.add_argument("--topic", help="topic to publish to; default: the name of the view")
    parser.add_argument(
        "--follow", action="store_true", help="keep the view up to date; requires --checkpoint"
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="DIR",
        help="directory for the state of --follow, from which the next run resumes",
    )
    parser.add_argument(
        "--until-caught-up",
        action="store_true",
        help="end --follow at the current end of the log",
    )


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that select the destination of a view."""
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--output", type=Path, help="directory for Parquet files")
    target.add_argument(
        "--publish",
        metavar="URI",
        help="publish its records to a server: tcp://host:port/amps/type",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, one line per record")


def run(options: argparse.Namespace, run: JobRun) -> None:
    """Run the job.

    Raises:
        PipelineError: the job failed.
    """
    spec = read_configuration(options.config)
    view = find_view(spec, options.view)
    if options.topic and not options.publish:
        raise PipelineError("--topic: requires --publish: it is the topic to publish to")
    if options.follow:
        follow(options, run, spec, view)
        return
    for name, used in (
        ("checkpoint", options.checkpoint),
        ("until-caught-up", options.until_caught_up),
    ):
        if used:
            raise PipelineError(f"--{name}: requires --follow")
    if options.at and not options.journals:
        raise PipelineError("--at: requires --journals: a server has only the present records")
    if options.output is not None:
        refuse_existing(options.output)
    bookmark = range_up_to(options.at, _journals(options))
    if run.is_dry:
        source = options.journals or without_passwords(options.server)
        run.print_text(f"{view} from {source} {bookmark or 'at the end'}")
        return
    if options.server:
        from pipeline.views import view_records
        from pipeline.views.sources import server_records

        records = view_records(spec, view, partial(server_records, run.spark(), options.server))
    else:
        records = from_journals(run, spec, view, options.journals, options.archive, bookmark)
    topic = options.topic or view.name
    deliver(records, run, options.output, options.publish, topic, as_json=options.json)


def _journals(options: argparse.Namespace) -> EntrySource | None:
    """Return the journals that the view is computed from; None with a server."""
    if not options.journals:
        return None
    from pipeline.entries import EntrySource

    return EntrySource(options.journals, options.archive)


def find_view(spec: InstanceSpec, name: str) -> TopicRef:
    """Return the view with a name.

    Raises:
        PipelineError: the configuration has none.
    """
    views = {topic.name: topic.ref for topic in spec.sow if isinstance(topic, ViewSpec)}
    if name not in views:
        known = ", ".join(views) or "none"
        raise PipelineError(f"view: the configuration has no view {name}; it has {known}")
    return views[name]


def from_journals(
    run: JobRun,
    spec: InstanceSpec,
    view: TopicRef,
    journals: Path,
    archive: Path | None,
    bookmark: str = "",
) -> DataFrame:
    """Return the records of a view, computed from journals.

    Args:
        run: provides Spark.
        spec: the instance.
        view: the view.
        journals: the directory of journals.
        archive: the directory of archived journals.
        bookmark: the part of the log to use, from its beginning; all of it if empty.
    """
    from pipeline.views import view_records
    from pipeline.views.sources import journal_records

    spark, moment = run.spark(), end_of(bookmark)
    # Spark's workers have another working directory.
    path = journals.resolve()
    archived = None if archive is None else archive.resolve()

    def records_of(ref: TopicRef) -> DataFrame:
        return journal_records(spark, spec, ref, path, archived, bookmark, moment)

    return view_records(spec, view, records_of, None if moment is None else moment.timestamp())


def deliver(
    records: DataFrame,
    run: JobRun,
    output: Path | None,
    publish: str | None,
    topic: str,
    *,
    as_json: bool = False,
) -> None:
    """Write the records of a view to their destination.

    Args:
        records: the records.
        run: prints them, if there is no other destination.
        output: a new directory.
        publish: the URI of a server.
        topic: the topic there.
        as_json: print them as JSON.
    """
    if output is not None:
        with new_path(output) as directory:
            records.write.parquet(str(directory))
        run.print_text(f"{output}: written")
    elif publish:
        messages = records.select("body").sortWithinPartitions("body")
        writer = messages.write.format("amps").mode("append")
        writer.save(server=publish, topic=topic)
        run.print_text(f"{without_passwords(publish)}: published")
    else:
        for row in records.orderBy("key").toLocalIterator():
            body = bytes(row.body)
            if as_json:
                run.print_json({"sow_key": row.key, "data": body})
            else:
                run.print_text(f"{row.key}\t{body.decode('utf-8', 'backslashreplace')}")
