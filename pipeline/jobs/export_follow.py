"""`amps-pipeline export --follow`: a table that new messages are added to continuously.

Journals are polled; each round adds the new entries (`export_journals`). A server is followed by a
stream. Either way rows and position are committed together, so that the next run resumes exactly
there, however the last one ended.
"""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

from pipeline.errors import PipelineError
from pipeline.foreach_batch import shorten_java_errors
from pipeline.jobs.export_frames import ExportSelection, published, write
from pipeline.jobs.export_journals import export_round, logs_of
from pipeline.jobs.watcher import catch_interrupts, watch

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame

    from pipeline.compaction import CompactedTable
    from pipeline.delta import DeltaTarget
    from pipeline.files import JobState
    from pipeline.jobs.run import JobRun


def follow(
    options: argparse.Namespace,
    run: JobRun,
    selection: ExportSelection,
    target: CompactedTable | DeltaTarget,
    state: JobState,
) -> None:
    """Add new messages to a table, until it has caught up or is interrupted.

    Args:
        options: the arguments of the job `export`.
        run: the run.
        selection: the selection to export.
        target: the target, which the caller has locked.
        state: the position of the export.

    Raises:
        PipelineError: the job failed. The rows written stay, and the next run resumes.
    """
    with catch_interrupts() as interrupted:
        if selection.is_server:
            _follow_server(options, run, selection, target, state, interrupted)
        else:
            _follow_journals(options, run, selection, target, state, interrupted)
    if interrupted.is_set():
        raise KeyboardInterrupt


def _follow_journals(
    options: argparse.Namespace,
    run: JobRun,
    selection: ExportSelection,
    target: CompactedTable | DeltaTarget,
    state: JobState,
    interrupted: Event,
) -> None:
    progress = run.start_progress("export", 0)
    logs = logs_of(selection)
    while not interrupted.is_set():
        count = export_round(
            selection,
            run,
            target,
            state,
            logs,
            accepts_gap=options.accept_gap,
            max_entries=options.max_rows,
        )
        if count:
            target.compact(state)
            progress.add(count)
            continue
        if options.until_caught_up:
            break
        interrupted.wait(options.every)
        logs = logs_of(selection)
    progress.end()


def _follow_server(
    options: argparse.Namespace,
    run: JobRun,
    selection: ExportSelection,
    target: CompactedTable | DeltaTarget,
    state: JobState,
    interrupted: Event,
) -> None:
    if state.batch >= 0 and not target.checkpoint_folder.exists():
        raise PipelineError(
            f"{target.checkpoint_folder}: removed, with the position of this export; export to"
            " another directory"
        )

    if state.runs == 0:  # else a checkpoint made before the first rows would belong to no export
        target.store_state(state)

    def add_batch(frame: DataFrame, batch: int) -> None:
        """Add a micro-batch, unless an earlier run added it before Spark could commit it."""
        if batch <= state.batch:
            return
        count = write(frame, target, selection)
        state.batch = batch
        files = target.append_staged(state)
        target.compact(state)
        if count:
            run.print_text(f"{count} entries in {files} files")

    writer = published(run.spark(), selection, options.max_rows).writeStream.foreachBatch(
        shorten_java_errors(add_batch)
    )
    writer = writer.option("checkpointLocation", str(target.checkpoint_folder.resolve()))
    if options.until_caught_up:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{options.every} seconds")
    progress = run.start_progress("export", 0)
    query = writer.start()
    try:
        watch(query, progress, interrupted)
    finally:
        query.stop()
    progress.end()
