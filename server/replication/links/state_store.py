"""Stores the replication state during a run, and reads it at the next start.

With the file `replication.ack` in the journal directory, a start need not read the whole log, nor
request other instances' state; see `server.replication.core.persistent_state`. It is stored about
once a second, when something has changed, and at the close. The entries that it covers are on
stable storage before. A failed store is retried indefinitely, and everything else continues.

The file also has the identity of the log: the first txid that the log ever had, and a random
number. Other instances use it to store their position in this log. It is renewed when the log is
another one, or has lost entries that the file covers: then they query the position anew.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from server.replication.core import (
    DedupWindowRecovery,
    PersistentState,
    RecentEntries,
    pack,
    unpack,
)
from server.replication.core.recent_entries import MAX_RECENT_ENTRIES
from server.replication.links.replication_state import RecoveredState
from server.storage.journal import EVENTS, JournalError, LogSpan
from server.storage.journal.format.layout import CLIENT, SEQUENCE, TXID, JournalFormatError
from server.topics.durable_watermark import DurableWatermarks

if TYPE_CHECKING:
    from server.replication.core import PublisherWindow
    from server.replication.links.replication_state import ReplicationState
    from server.storage.journal import EntryBatch, Journal
    from server.topics.transaction_log import TransactionLog
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog
    from server.util.task import EngineTask

_CHECK_INTERVAL_S: Final = 1.0
"""Interval of the checks for changes to store."""
_BATCH_SIZE: Final = 500
"""Publishers processed in a time slice."""
_READ_BATCH_SIZE: Final = 4096
_MAX_BYTES: Final = 4 << 20


def recover_replication_state(
    journal: Journal, check: Callable[[], None], events: ServerLog
) -> RecoveredState:
    """Return the replication state, from the stored file and from the log.

    Args:
        journal: the log, which has been recovered.
        check: called periodically; an exception that it raises ends the start.
        events: the event log, for the position from which the log is read, and for the reason why
            the stored file is unusable.

    Raises:
        JournalUnreadableError: the log cannot be read.
    """
    state = _load_state(journal, events)
    log_id = state.log
    log_start_txid = _log_start_of(log_id)
    recent_entries = RecentEntries()
    is_complete = journal.first_txid <= max(state.txid + 1, log_start_txid)
    recovery = DedupWindowRecovery(state, recent_entries, is_log_complete=is_complete)
    start = min([state.txid, *state.acknowledged.values()])
    start = max(start, state.txid - MAX_RECENT_ENTRIES, journal.first_txid - 1)
    if state.acknowledged:
        lowest = min(state.acknowledged.values())
        events.emit("1D-0002", lowest_txid=lowest, last_txid=journal.last_txid)
    # The sequence numbers of messages before the first entry that is read are not known.
    is_cut = start > min(state.acknowledged.values(), default=start)
    watermarks = DurableWatermarks()
    cursor = journal.replay(LogSpan(start), kinds=EVENTS)
    while not cursor.is_caught_up:
        check()
        for batch in cursor.read_entry_range(_READ_BATCH_SIZE, _MAX_BYTES).batches():
            recovery.replay_batch(batch)
            if not batch.origin.path:
                _record_publishes(watermarks, batch, is_cut=is_cut)
    recovery.dedup_window.highest_sequence = journal.last_sequence
    return RecoveredState(
        log_id,
        log_start_txid,
        recovery.dedup_window,
        recent_entries,
        watermarks,
        state.cursors,
        state.acknowledged,
        state.logs,
    )


def _record_publishes(watermarks: DurableWatermarks, batch: EntryBatch, *, is_cut: bool) -> None:
    """Record the last sequence number of each publisher in a batch of the log."""
    rows = [row for row in batch.rows if row[SEQUENCE] != row[TXID]]
    first = {row[CLIENT]: row[SEQUENCE] for row in reversed(rows)}
    for client, row in {row[CLIENT]: row for row in rows}.items():
        previous_sequence = 0 if is_cut else first[client] - 1
        watermarks.record_publish(client, previous_sequence, row[SEQUENCE], row[TXID], 0)


def _load_state(journal: Journal, events: ServerLog) -> PersistentState:
    """Return the stored state, if it is of this log; else an empty one with a new identity."""
    oldest = journal.files[0]
    # If journals have been removed, only the file knows where the log begins. Entries before the
    # first remaining one count as received: they must not be recorded again.
    log_start_txid = 1 if oldest.number else oldest.first_txid
    try:
        data = journal.read_replication_state()
        state = None if data is None else unpack(data)
    except (OSError, JournalFormatError) as problem:
        problem_text = problem.strerror if isinstance(problem, OSError) else problem
        events.emit("21-0022", file=journal.replication_state_path, problem=problem_text)
        state = None
    if (
        state is None
        or not journal.first_txid - 1 <= state.txid <= journal.last_txid
        or (not oldest.number and _log_start_of(state.log) != log_start_txid)
    ):
        return PersistentState(f"{log_start_txid}-{secrets.token_hex(8)}", 0)
    return state


def _log_start_of(log_id: str) -> int:
    number = log_id.partition("-")[0]
    return int(number) if number.isdecimal() else 0


class ReplicationStateStore:
    """Stores the replication state.

    Args:
        replication: the replication state.
        highest_sequences: returns all publishers in the log with their highest sequence numbers.
        log: the transaction log, which has the file in its directory.
        clock: timers.
        event_log: the event log, for failures to store it.
        start_task: schedules work that is done in time slices.
    """

    def __init__(
        self,
        replication: ReplicationState,
        highest_sequences: Callable[[], Mapping[int, int]],
        log: TransactionLog,
        clock: Clock,
        event_log: ServerLog,
        start_task: Callable[[EngineTask], None],
    ) -> None:
        self._replication: Final = replication
        self._highest_sequences: Final = highest_sequences
        self._log: Final = log
        self._clock: Final = clock
        self._event_log: Final = event_log
        self._start_task: Final = start_task
        self._is_storing = False
        self._last_problem = ""  # of the last attempt to store it
        self._next_head = self._state_head()  # the state being collected, without the publishers
        self._remaining_windows: Iterator[PublisherWindow] = iter(())
        self._collected_windows: list[PublisherWindow] = []
        self._stored_head = PersistentState("", 0)  # the stored state, without the publishers
        self._cancel_timer: Callable[[], None]
        self._finish_write(self._next_head, self._write_state(self._full_state()))
        self._schedule_check()

    def close(self) -> None:
        """Stop checking, and store the current state."""
        self._cancel_timer()
        self._log.journal.store_replication_at_close(pack(self._full_state()))

    def _schedule_check(self) -> None:
        self._cancel_timer = self._clock.call_later(_CHECK_INTERVAL_S, self._check)

    def _check(self) -> None:
        self._schedule_check()
        if self._is_storing:
            return
        self._next_head = self._state_head()
        if self._next_head != self._stored_head:
            self._is_storing = True
            self._remaining_windows, self._collected_windows = self._publisher_windows(), []
            self._start_task(self)

    @property
    def task_label(self) -> tuple[str, str]:
        """See `EngineTask.task_label`."""
        return "", "replication.ack"

    def step(self) -> bool:
        """Collect some publishers; see `EngineTask.step`.

        Entries appended meanwhile are in the log behind the covered ones. They are added from there
        a second time, which changes nothing. But they must not be lost, either.
        """
        batch = list(islice(self._remaining_windows, _BATCH_SIZE))
        self._collected_windows += batch
        if len(batch) == _BATCH_SIZE:
            return True
        store = partial(
            self._write_state, replace(self._next_head, publisher_windows=self._collected_windows)
        )
        done = partial(self._finish_write, self._next_head)
        self._log.when_durable(lambda: self._log.run_on_worker(store, done))
        return False

    def _write_state(self, state: PersistentState) -> str:
        """Store a state with durable entries; return the reason of a failure, empty on success."""
        try:
            self._log.journal.store_replication_state(pack(state))
        except JournalError as error:
            return str(error)
        return ""

    def _finish_write(self, head: PersistentState, problem: str) -> None:
        if not problem:
            self._stored_head = head
        elif not self._last_problem:
            file = self._log.journal.replication_state_path
            self._event_log.emit("21-0024", file=file, problem=problem)
        self._last_problem = problem
        self._is_storing = False

    def _full_state(self) -> PersistentState:
        return replace(self._state_head(), publisher_windows=list(self._publisher_windows()))

    def _state_head(self) -> PersistentState:
        """Return the state without the publishers."""
        replication = self._replication
        return PersistentState(
            replication.log_id,
            self._log.last_txid,
            replication.cursors(),
            {
                name: destination.sender.first_needed_txid - 1
                for name, destination in replication.destinations.items()
            },
            logs=replication.peer_identities.known_logs(),
        )

    def _publisher_windows(self) -> Iterator[PublisherWindow]:
        return self._replication.dedup_window.publisher_windows(dict(self._highest_sequences()))
