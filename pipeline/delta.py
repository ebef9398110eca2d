"""A Delta table that a job maintains: the files of `pipeline.files`, with a transaction log.

As with plain files, a run stores a commit record before adding its rows to the table. The table's
log has the number of that run, in the same commit as its rows (Delta's transaction identifiers). So
the next run completes one that died in between, and does not add rows again that had been added.

Source: the Delta transaction log protocol, Transaction Identifiers.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import unquote

import msgspec
import pyarrow.dataset as ds

from pipeline.compaction import MERGE_FACTOR, MERGE_SIZE_LIMIT
from pipeline.errors import PipelineError
from pipeline.files import JobTarget, RunCommit, sync

if TYPE_CHECKING:
    from pipeline.files import JobState

try:
    import deltalake
    from deltalake.exceptions import DeltaError
except ImportError:
    raise PipelineError(
        "--format=delta: requires the package deltalake: pip install 'amperage[delta]'"
    ) from None

LOG: Final = "_delta_log"
"""The folder of the table's log."""


class DeltaTarget(JobTarget):
    """A directory with a Delta table that one job at a time adds rows to; see `JobTarget`.

    Args:
        path: the directory.
        folders: the columns that the table is partitioned by.
    """

    format = "delta"
    has_partition_folders = False  # the table partitions its rows itself

    def __init__(self, path: Path, folders: list[str]) -> None:
        super().__init__(path)
        self._folders = folders

    def is_used(self) -> bool:
        """See `JobTarget.is_used`."""
        return super().is_used() or (self.path / LOG).exists()

    def append_staged(self, state: JobState) -> int:
        """See `JobTarget.append_staged`; counts files before the table partitions them."""
        return self._commit_rows(state, "append")

    def replace_with_staged(self, state: JobState) -> int:
        """See `JobTarget.replace_with_staged`. The previous rows stay in the table's history."""
        return self._commit_rows(state, "overwrite")

    def _commit_rows(self, state: JobState, mode: Literal["append", "overwrite"]) -> int:
        if self._last_run(state) > state.runs:
            raise PipelineError(
                f"{self.path}: the table has rows of runs without a stored state; export to another"
                " directory"
            )
        staged = self._sync_staged_files()
        state.runs += 1
        self.commit(RunCommit([], [], state, rows=mode))
        return len(staged)

    def _apply_commit(self, commit: RunCommit) -> None:
        """Add the rows of a run to the table, unless they have been added."""
        if self._last_run(commit.state) >= commit.state.runs:
            return
        if not self.staging_folder.exists():
            raise PipelineError(
                f"{self.staging_folder}: removed before its rows were added to the table; export to"
                " another directory"
            )
        rows = ds.dataset(self.staging_folder, format="parquet").scanner().to_reader()
        mark = deltalake.Transaction(_application(commit.state), commit.state.runs)
        try:
            deltalake.write_deltalake(
                self.path,
                rows,
                mode=commit.rows or "append",
                schema_mode="overwrite" if commit.rows == "overwrite" else "merge",
                partition_by=self._folders,
                commit_properties=deltalake.CommitProperties(app_transactions=[mark]),
            )
        except (DeltaError, OSError) as problem:
            raise PipelineError(f"{self.path}: cannot be written: {problem}") from problem
        self._sync_last_commit()

    def _last_run(self, state: JobState) -> int:
        """Return the number of the last run with rows in the table; 0 if there is none."""
        table = self._open_table()
        return 0 if table is None else table.transaction_version(_application(state)) or 0

    def _sync_last_commit(self) -> None:
        """Sync the last commit and its files, which the library does not do."""
        entry = self.path / LOG / f"{deltalake.DeltaTable(self.path).version():020}.json"
        folders = {entry.parent, self.path}
        for line in entry.read_bytes().splitlines():
            action = msgspec.json.decode(line)
            if "add" in action:
                file = self.path / unquote(action["add"]["path"])
                sync(file)
                folders.update(one for one in file.parents if one.is_relative_to(self.path))
        sync(entry)
        for folder in folders:
            sync(folder)

    def compact(self, state: JobState) -> None:  # noqa: ARG002 - the table has its own log
        """Merge small files, and remove files that have been unused for a week.

        Args:
            state: the state of the table.

        Raises:
            PipelineError: that failed. Nothing has changed.
        """
        table = self._open_table()
        if table is None:
            return
        actions = table.get_add_actions()
        files = zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True)
        small = Counter(path.rpartition("/")[0] for path, size in files if size < MERGE_SIZE_LIMIT)
        if max(small.values(), default=0) < MERGE_FACTOR:
            return
        try:
            table.optimize.compact(target_size=MERGE_SIZE_LIMIT)
            table.vacuum(dry_run=False)
        except (DeltaError, OSError) as problem:
            raise PipelineError(f"{self.path}: cannot be compacted: {problem}") from problem

    def _open_table(self) -> deltalake.DeltaTable | None:
        """Return the table; None if there is none yet.

        Raises:
            PipelineError: it cannot be read.
        """
        if not (self.path / LOG).exists():
            return None
        try:
            return deltalake.DeltaTable(self.path)
        except (DeltaError, OSError) as problem:
            raise PipelineError(f"{self.path}: cannot be read: {problem}") from problem


def _application(state: JobState) -> str:
    """Return the application id of an export in the table's log."""
    return f"amps-pipeline-{state.id}"
