"""`amps-pipeline view`: a view of a configuration, computed from journals or from a server."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from config_schema.spec import InstanceSpec, TopicRef, ViewSpec
from pipeline.configuration import read_configuration
from pipeline.errors import PipelineError
from pipeline.jobs.files import new_path, refuse_existing
from pipeline.jobs.history import end_of, range_up_to

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame

    from pipeline.jobs.run import Run

HELP: Final = "compute a view, as of any time or bookmark"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the job wants to know."""
    parser.add_argument("config", help="configuration with the view")
    parser.add_argument("view", help="its Name")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--journals", type=Path, help="compute it from this directory of journals")
    source.add_argument(
        "--server", help="compute it from the topics of this server: tcp://host:port/amps"
    )
    parser.add_argument("--archive", type=Path, help="directory of archived journals")
    parser.add_argument(
        "--at", default="", help="time such as 20260102T030405Z, or bookmark; needs --journals"
    )
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--output", type=Path, help="new directory for Parquet files")
    target.add_argument(
        "--publish",
        metavar="URI",
        help="publish its records to a server: tcp://host:port/amps/type",
    )
    parser.add_argument("--topic", help="topic to publish to; that of the view's name if left out")


def run(options: argparse.Namespace, run: Run) -> None:
    """Do it.

    Raises:
        PipelineError: it cannot be done.
    """
    spec = read_configuration(options.config)
    view = _view(spec, options.view)
    if options.at and not options.journals:
        raise PipelineError("--at: needs --journals: a server is asked for the present")
    if options.output is not None:
        refuse_existing(options.output)
    bookmark = range_up_to(options.at)
    if run.is_dry:
        run.say(f"{view} from {options.journals or options.server} {bookmark or 'at the end'}")
        return
    records = _records(options, run, spec, view, bookmark)
    if options.output is not None:
        with new_path(options.output) as directory:
            records.write.parquet(str(directory))
        run.say(f"{options.output}: written")
    elif options.publish:
        messages = records.select("body").sortWithinPartitions("body")
        writer = messages.write.format("amps").mode("append")
        writer.save(server=options.publish, topic=options.topic or view.name)
        run.say(f"{options.publish}: published")
    else:
        for row in records.orderBy("key").toLocalIterator():
            run.say(f"{row.key}\t{bytes(row.body).decode('utf-8', 'backslashreplace')}")


def _view(spec: InstanceSpec, name: str) -> TopicRef:
    views = {topic.name: topic.ref for topic in spec.sow if isinstance(topic, ViewSpec)}
    if name not in views:
        known = ", ".join(views) or "it has none"
        raise PipelineError(f"view: {name} is no view of the configuration: {known}")
    return views[name]


def _records(
    options: argparse.Namespace, run: Run, spec: InstanceSpec, view: TopicRef, bookmark: str
) -> DataFrame:
    from pipeline.views import view_records
    from pipeline.views.sources import journal_records, server_records

    spark, moment = run.spark(), end_of(bookmark)
    if options.server:
        return view_records(spec, view, partial(server_records, spark, options.server))
    archive = None if options.archive is None else options.archive.resolve()
    path = options.journals.resolve()

    def records_of(ref: TopicRef) -> DataFrame:
        return journal_records(spark, spec, ref, path, archive, bookmark, moment)

    return view_records(spec, view, records_of, None if moment is None else moment.timestamp())
