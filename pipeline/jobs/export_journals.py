"""Exports the journal entries that a table does not have yet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import PipelineError
from pipeline.jobs.export_frames import ExportSelection, journal_entries, union_frames, write
from pipeline.journal.log import JournalSnapshot, snapshot
from pipeline.journal.marks import UNKNOWN, check_place, entry_mark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.files import JobState, JobTarget
    from pipeline.jobs.run import JobRun


def export_round(
    selection: ExportSelection,
    run: JobRun,
    target: JobTarget,
    state: JobState,
    logs: Sequence[JournalSnapshot],
    *,
    accepts_gap: bool,
    max_entries: int | None = None,
) -> int:
    """Export the journal entries that the target does not have yet.

    Args:
        selection: the selection to export.
        run: provides Spark.
        target: the target, which the caller has locked.
        state: the position of the export; it is updated.
        logs: the journals; later entries are left to the next round.
        accepts_gap: whether entries may be missing.
        max_entries: the maximum number of entries per instance; None for all.

    Returns:
        The number of entries, including those not selected; 0 if nothing is new.

    Raises:
        PipelineError: the export failed; nothing has changed.
    """
    ranges = {}
    for log in logs:
        first, last = range_of(log, state, selection, accepts_gap=accepts_gap)
        if last > first:
            ranges[log.instance] = (
                first,
                last if max_entries is None else min(last, first + max_entries),
            )
    if not ranges:
        return 0
    spark = run.spark()
    frame = union_frames(
        [journal_entries(spark, selection, name, *txids) for name, txids in ranges.items()]
    )
    count = write(frame, target, selection)
    state.reached |= {name: last for name, (_, last) in ranges.items()}
    state.marks |= {
        log.instance: entry_mark(log, ranges[log.instance][1], selection.archive)
        for log in logs
        if log.instance in ranges
    }
    files = target.append_staged(state)
    if count or max_entries is None:
        run.print_text(f"{count} entries in {files} files")
    return sum(last - first for first, last in ranges.values())


def logs_of(selection: ExportSelection) -> list[JournalSnapshot]:
    """Return the journals as they are now.

    Raises:
        PipelineError: they cannot be read.
    """
    return snapshot(Path(selection.source), selection.archive)


def range_of(
    log: JournalSnapshot, state: JobState, selection: ExportSelection, *, accepts_gap: bool
) -> tuple[int, int]:
    """Return the txid after which to resume, and the last one."""
    first = log.files[0].first_txid - 1
    last = max(file.end_txid or 0 for file in log.files) - 1
    reached = state.reached.get(log.instance)
    if reached is None:
        return first, last
    if reached < first and not accepts_gap:
        raise PipelineError(
            f"{selection.source}: the entries {reached + 1} to {first} of {log.instance} have not "
            "been exported, and their journals are removed; give the directory of archived "
            "journals (--archive), or continue without them (--accept-gap)"
        )
    mark = state.marks.get(log.instance, UNKNOWN)
    advice = "export to another directory"
    check_place(log, reached, mark, selection.archive, "the export", advice)
    return max(first, reached), last
