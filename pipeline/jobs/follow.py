"""`amps-pipeline view --follow`: a view that is kept up as its topics change."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from threading import Event, current_thread, main_thread
from typing import TYPE_CHECKING, Final

from pipeline.errors import PipelineError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from pyspark.sql.streaming.query import StreamingQuery

    from config_schema.spec import InstanceSpec, TopicRef
    from pipeline.jobs.run import Progress, Run
    from pipeline.views.streaming.sources import Source
    from pipeline.views.streaming.targets import Target

_LOOK: Final = 1
"""Seconds between two looks at how far it is."""


def follow(options: argparse.Namespace, run: Run, spec: InstanceSpec, view: TopicRef) -> None:
    """Keep a view up, until it has caught up or is interrupted.

    Args:
        options: the arguments of the job `view`.
        run: the run.
        spec: the configuration.
        view: the view.

    Raises:
        PipelineError: it cannot be done.
    """
    if options.checkpoint is None:
        raise PipelineError("--follow: needs --checkpoint, where the next run goes on")
    if options.at:
        raise PipelineError("--at: does not go with --follow, which is about the present")
    if options.archive is not None and options.server:
        raise PipelineError("--archive: needs --journals")
    from pipeline.views import stream_view
    from pipeline.views.streaming.plan import topics_below

    source, target = _source(options), _target(options, run, view)
    topics = topics_below(spec, view)
    if run.is_dry:
        below = ", ".join(str(topic.ref) for topic in topics)
        run.say(f"{view} over {below} from {source.name} to {target.name}")
        return
    spark = run.spark()
    progress = run.progress("follow", 0)
    query = stream_view(
        spark,
        spec,
        view,
        source,
        target,
        options.checkpoint,
        until_caught_up=options.until_caught_up,
    )
    with _interruption() as is_interrupted, query as running:
        _watch(running, progress, is_interrupted)
    progress.end()
    if is_interrupted():
        raise KeyboardInterrupt
    if options.output is not None or options.publish:
        run.say(f"{progress.done} entries taken in, {target.name} is up to date")


def _watch(query: StreamingQuery, progress: Progress, is_interrupted: Callable[[], bool]) -> None:
    """Show how far a query is until it ends."""
    seen = -1
    is_over = False
    while not (is_over or is_interrupted()):
        is_over = bool(query.awaitTermination(_LOOK))
        for batch in query.recentProgress:
            if batch.batchId > seen:
                seen = batch.batchId
                progress.add(batch.numInputRows)


@contextmanager
def _interruption() -> Iterator[Callable[[], bool]]:
    """Takes note of being interrupted; gives whether that has happened.

    Spark's own way with an interrupt is to call Java from within a call of Java, which fails.
    """
    interrupted = Event()
    if current_thread() is not main_thread():  # only that one is interrupted
        yield interrupted.is_set
        return
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        yield interrupted.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def _source(options: argparse.Namespace) -> Source:
    from pipeline.views.streaming.sources import Journals, Server

    if options.server:
        return Server(options.server)
    return Journals(options.journals, options.archive)


def _target(options: argparse.Namespace, run: Run, view: TopicRef) -> Target:
    from pipeline.views.streaming.targets import Lines, ParquetFiles, publication

    if options.publish:
        return publication(options.publish, options.topic or view.name)
    if options.output is not None:
        return ParquetFiles(options.output)

    def tell(key: str, body: bytes | None) -> None:
        if options.json:
            run.say_object({"sow_key": key, "data": body})
        else:
            text = "deleted" if body is None else body.decode("utf-8", "backslashreplace")
            run.say(f"{key}\t{text}")

    return Lines(tell)
