"""`amps-pipeline view --follow`: a view that is updated as its topics change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.errors import PipelineError
from pipeline.jobs.watcher import catch_interrupts, watch

if TYPE_CHECKING:
    import argparse

    from config_schema.spec import InstanceSpec, TopicRef
    from pipeline.jobs.run import JobRun
    from pipeline.views.streaming.sources import ViewEventSource
    from pipeline.views.streaming.targets import ViewEventTarget


def follow(options: argparse.Namespace, run: JobRun, spec: InstanceSpec, view: TopicRef) -> None:
    """Update a view, until it has caught up or is interrupted.

    Args:
        options: the arguments of the job `view`.
        run: the run.
        spec: the configuration.
        view: the view.

    Raises:
        PipelineError: the job failed.
    """
    if options.checkpoint is None:
        raise PipelineError("--follow: requires --checkpoint, from which the next run resumes")
    if options.at:
        raise PipelineError("--at: excludes --follow, which follows the present")
    if options.archive is not None and options.server:
        raise PipelineError("--archive: requires --journals")
    from pipeline.views import stream_view
    from pipeline.views.streaming.plan import topics_below

    source, target = _source(options), _target(options, run, view)
    topics = topics_below(spec, view)
    if run.is_dry:
        below = ", ".join(str(topic.ref) for topic in topics)
        run.print_text(f"{view} over {below} from {source.name} to {target.name}")
        return
    spark = run.spark()
    progress = run.start_progress("follow", 0)
    query = stream_view(
        spark,
        spec,
        view,
        source,
        target,
        options.checkpoint,
        until_caught_up=options.until_caught_up,
    )
    with catch_interrupts() as interrupted, query as running:
        watch(running, progress, interrupted)
    progress.end()
    if interrupted.is_set():
        raise KeyboardInterrupt
    if options.output is not None or options.publish:
        run.print_text(f"{progress.done_count} entries processed, {target.name} is up to date")


def _source(options: argparse.Namespace) -> ViewEventSource:
    from pipeline.views.streaming.sources import Journals, ServerEvents

    if options.server:
        return ServerEvents(options.server)
    return Journals(options.journals, options.archive)


def _target(options: argparse.Namespace, run: JobRun, view: TopicRef) -> ViewEventTarget:
    from pipeline.views.streaming.targets import LineTarget, ParquetFiles, publication

    if options.publish:
        return publication(options.publish, options.topic or view.name)
    if options.output is not None:
        return ParquetFiles(options.output)

    def tell(key: str, body: bytes | None) -> None:
        if options.json:
            run.print_json({"sow_key": key, "data": body})
        else:
            text = "deleted" if body is None else body.decode("utf-8", "backslashreplace")
            run.print_text(f"{key}\t{text}")

    return LineTarget(tell)
