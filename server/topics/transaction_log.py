"""The transaction log, as topics, commands and replays use it on the engine's thread.

    a publish:     append -> txid ... the commit thread writes and syncs ... advance_durable(txid)
    callbacks:     acks, in the order of txids; replays that have read the whole log

The journal's own threads never call this module. They post the entries that they have made durable
to the engine's thread. Only then do these entries count as durable, so that all events here have
one order.

A durable entry is on stable storage of this machine. A *settled* entry is durable at all other
instances, too, that have to acknowledge it (`ReplicationState`). Publishers get acks for
settled messages. Without such instances, durable and settled are the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from amperage.wire.bookmarks import client_hash
from server.expressions.topic_names import AUDIT
from server.storage.journal import (
    EVENTS,
    BookmarkError,
    JournalEntryKind,
    JournalTopic,
    JournalUnavailableError,
    JournalUnreadableError,
    LogSpan,
)
from server.storage.journal.errors import reason
from server.storage.journal.publisher_table import server_made_identity
from server.topics.refused_sequences import RefusedSequenceError, RefusedSequences

if TYPE_CHECKING:
    from pathlib import Path

    from config_schema.spec import JournaledTopicSpec
    from server.replication.links.replication_state import ReplicationState
    from server.replication.repair.body_repair import PeerBodyRepair
    from server.storage.journal import BookmarkRequest, Journal, MissingBookmarkPolicy
    from server.storage.sow.store import StoreCallback
    from server.topics.publish_tracker import PublishTracker
    from server.util.task import EngineTask
    from server.util.worker_thread import WorkerThread

_T = TypeVar("_T")

BookmarkResolution: TypeAlias = LogSpan | BookmarkError
"""A part of the log, or the reason why there is none."""

_RESERVED: Final = "/AMPS/"
"""Prefix of the server's own topics, of which only that of the audit trail can be recorded."""
_CALLBACK_BATCH_SIZE: Final = 128
"""Callbacks released in one time slice; each sends about one ack."""
_MAX_DAMAGED: Final = 1_000
"""Damaged entries that are remembered until there is a `PeerBodyRepair`."""
_MAX_LOOK_BACK: Final = 16
"""Entries to search backwards for the last one that has a bookmark."""

MAX_SEQUENCE: Final = (1 << 64) - 1
"""The highest valid sequence number."""

DUPLICATE: Final = "duplicate"
"""The reason for refusing a command that its publisher has sent before."""


class DuplicateError(Exception):
    """A publisher's sequence number is not above the highest one that it has used."""


OnJournalRetention: TypeAlias = Callable[["Path", int], None]
"""Called with a journal that cannot be removed, and the txid before which its entries are."""


class _Hold(NamedTuple):
    """A reader's claim to entries of the log. See `TransactionLog.hold_files`."""

    needed_from: Callable[[], int]
    reader_name: str
    on_retention: OnJournalRetention | None


class TransactionLog:
    """An open journal, and the callbacks that wait for it.

    Args:
        journal: the journal.
        topic_specs: the topics to record.
        instance: the instance's name.
        worker: thread for long reads.

    Attributes:
        publish_tracker: registers publishes of this instance's clients for replication; None
            without it.
        refused_sequences: the missing messages to report to publishers.
        durable_txid: the last entry on stable storage, as far as this thread has been notified.
    """

    def __init__(
        self,
        journal: Journal,
        topic_specs: Sequence[JournaledTopicSpec],
        instance: str,
        worker: WorkerThread,
    ) -> None:
        self.journal: Final = journal
        self.publish_tracker: PublishTracker | None = None  # set before the first entry is recorded
        self.refused_sequences: Final = RefusedSequences(journal, lambda: self.publish_tracker)
        self.durable_txid = journal.durable_txid
        self.instance: Final = instance
        self._topic_specs = topic_specs
        self._worker = worker
        self._last_bookmark: tuple[int, str | None] = 0, None
        self._durable_callbacks: deque[tuple[int, Callable[[], None]]] = deque()
        self._settled_callbacks: deque[tuple[int, Callable[[], None]]] = deque()
        self._replication_state: ReplicationState | None = None
        self._start_task: Callable[[EngineTask], None] | None = None  # set before the first entry
        self._is_scheduled = False
        self._advance_callbacks: list[Callable[[], None]] = []
        self._holds: dict[int, _Hold] = {}
        self._body_repair: PeerBodyRepair | None = None
        self._damaged_txids: list[int] = []  # found before there was a `PeerBodyRepair`
        self._hold_count = 0
        self._delayed_searches: list[Callable[[], None]] | None = (
            None  # None: no removal in progress
        )

    def is_recorded(self, message_type: str, name: str) -> bool:
        """Return whether messages published to a topic are recorded.

        The server's own event topics are not (AMPS User Guide, Using the Transaction Log); the
        audit trail, which AMPS does not have, is recorded if it is configured by its name.

        Args:
            message_type: the topic's message type.
            name: its name; for a topic of a Pattern, the name of the topic that has the Pattern.
        """
        covering = [spec for spec in self._topic_specs if spec.covers(message_type, name)]
        if name.startswith(_RESERVED):
            return name == AUDIT and any(spec.name == name for spec in covering)
        return bool(covering)

    def use_topics(self, topic_specs: Sequence[JournaledTopicSpec]) -> None:
        """Record messages of these topics from now on; topics in use are to be recreated."""
        self._topic_specs = topic_specs

    @property
    def named_topics(self) -> Sequence[JournalTopic]:
        """The topics that the configuration names to be recorded, without those of expressions."""
        return [
            JournalTopic(spec.message_type, spec.name)
            for spec in self._topic_specs
            if not spec.is_expression
        ]

    def generated_identity(self, client: int) -> int:
        """Return the identity of a publisher in bookmarks of messages that it does not number.

        Args:
            client: its client hash.
        """
        return server_made_identity(client, self.instance, self.journal.run_history.current)

    def instance_runs(self) -> Sequence[tuple[int, int]]:
        """Return the first txid and the number of each run that has recorded, and of this one."""
        return self.journal.run_history.rows_with_current(self.journal.last_txid + 1)

    @property
    def last_txid(self) -> int:
        """The txid of the last entry appended."""
        return self.journal.last_txid

    def last_sequence(self, client_name: str) -> int:
        """Return the highest sequence number that a publisher has used, 0 for none."""
        return self.journal.last_sequence(client_hash(client_name))

    def settled_sequence(self, client_name: str) -> int:
        """Return the sequence number up to which a publisher's messages are settled, 0 for none.

        Without other instances that have to acknowledge messages, it is the publisher's highest.
        """
        client = client_hash(client_name)
        last_sequence = self.journal.last_sequence(client)
        if self.publish_tracker is None:
            return last_sequence
        return self.publish_tracker.watermarks.settled_sequence(
            client, last_sequence, self.settled_txid()
        )

    def has_reached(self, bookmark: tuple[int, int]) -> bool:
        """Return whether a publisher has reached a bookmark: its message will not come any more.

        Args:
            bookmark: the bookmark as two numbers. Identities made by the server count in txids.
        """
        client, sequence = bookmark
        last_sequence = self.journal.last_sequence(client)
        if last_sequence:
            may_arrive = self.publish_tracker is not None and self.publish_tracker.may_still_arrive(
                client, sequence
            )
            return sequence <= last_sequence and not may_arrive
        return self.journal.first_txid <= sequence <= self.journal.last_txid

    def refuse_duplicate(self, client: int, sequence: int) -> None:
        """Refuse a command that its publisher has sent before.

        Source: AMPS User Guide, Message Sequence Numbers.

        Raises:
            DuplicateError: its sequence number is too low.
            RefusedSequenceError: its sequence number is too low, and the command was refused then.
            JournalUnavailableError: the number is not a valid sequence number.
        """
        if not 0 < sequence <= MAX_SEQUENCE:
            raise JournalUnavailableError(f"{sequence} is not a sequence number: expected 64 bits")
        last_sequence = self.journal.last_sequence(client)
        if sequence <= last_sequence and self.refused_sequences.is_missing(client, sequence):
            raise RefusedSequenceError(
                f"sequence number {sequence}: was refused when it came first, or got lost; this"
                f" publisher has got as far as {last_sequence}; send the message with a new number"
            )
        if sequence <= last_sequence:
            raise DuplicateError(
                f"sequence number {sequence}: the last one of this publisher is {last_sequence}"
            )

    def advance_durable(self, txid: int) -> None:
        """Note that everything up to an entry is on stable storage."""
        self.durable_txid = max(self.durable_txid, txid)
        if self._replication_state is not None:
            self._replication_state.process_commit()
        self._schedule_callbacks()

    def notify_settled(self) -> None:
        """Note that more entries are settled than before."""
        self._schedule_callbacks()

    def _schedule_callbacks(self) -> None:
        if not self._is_scheduled and self._start_task is not None:
            self._is_scheduled = True
            self._start_task(self)

    def use_replication_state(self, settlement: ReplicationState) -> None:
        """Make publishers wait for other instances, too. Called before the first publish."""
        self._replication_state = settlement

    def use_scheduler(self, start: Callable[[EngineTask], None]) -> None:
        """Run the waiting callbacks in time slices.

        Args:
            start: starts work that is done in time slices; see `Scheduler.start_task`.
        """
        self._start_task = start

    @property
    def task_label(self) -> tuple[str, str]:
        """See `EngineTask.task_label`; it is for all publishers."""
        return "", "commit"

    def step(self) -> bool:
        """Run some of the waiting callbacks; see `EngineTask.step`."""
        self._is_scheduled = False  # if a callback raises, the others run with the next commit
        if _run_due_callbacks(self._durable_callbacks, self.durable_txid) or (
            self._settled_callbacks
            and _run_due_callbacks(self._settled_callbacks, self.settled_txid())
        ):
            self._is_scheduled = True
            return True
        advance_callbacks, self._advance_callbacks = self._advance_callbacks, []
        for reader in advance_callbacks:
            reader()
        return False

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back when everything appended so far is on stable storage; at once if it is."""
        last_txid = self.journal.last_txid
        if (
            last_txid <= self.durable_txid and not self._durable_callbacks
        ):  # do not overtake callbacks that wait
            callback()
        else:
            self._durable_callbacks.append((last_txid, callback))

    def when_settled(self, callback: Callable[[], None], *topics: JournalTopic) -> None:
        """Call back when everything appended so far is settled; at once if it is.

        Args:
            callback: the callback.
            topics: the topics concerned; if no other instance has to acknowledge messages
                published to these, stable storage is enough. None: all.
        """
        replication_state = self._replication_state
        if replication_state is None or (
            topics and not any(map(replication_state.awaits_topic, topics))
        ):
            self.when_durable(callback)
            return
        last_txid = self.journal.last_txid
        if last_txid <= replication_state.settled_txid and not self._settled_callbacks:
            callback()
        else:
            self._settled_callbacks.append((last_txid, callback))

    def when_advanced(self, callback: Callable[[], None]) -> None:
        """Call back once, when more entries are on stable storage, or settled."""
        self._advance_callbacks.append(callback)

    def close(self) -> None:
        """Flush everything to stable storage, and end the threads."""
        self._worker.close()
        self.journal.close()

    def journal_durable_txid(self) -> int:
        """Return the txid of the last entry on stable storage of this machine."""
        return self.journal.durable_txid

    def settled_txid(self) -> int:
        """Return the last txid that is stored wherever it must be before its publisher is acked."""
        replication_state = self._replication_state
        return (
            self.journal.durable_txid
            if replication_state is None
            else replication_state.settled_txid
        )

    def bookmark_at(self, txid: int) -> str | None:
        """Return the bookmark of the last event up to a durable entry; None if none is near."""
        if txid != self._last_bookmark[0]:
            span = LogSpan(txid - _MAX_LOOK_BACK, last_txid=txid)
            try:
                entries = self.journal.replay(span, kinds=EVENTS).read(_MAX_LOOK_BACK)
            except JournalUnreadableError:
                return None  # not available at the moment
            self._last_bookmark = txid, entries[-1].bookmark if entries else None
        return self._last_bookmark[1]

    def resume_positions(self, txid: int) -> list[str]:
        """Return the positions, here and elsewhere, to resume from after an entry of this log.

        Args:
            txid: the entry, on stable storage; the reader has this log up to it.

        Returns:
            For each log a bookmark that is known where the log is: its publisher stands for the
            log (`Journal.position_bookmark`), its sequence is a txid there. This log lacks nothing
            that precedes that position.
        """
        other_positions = (
            ()
            if self._replication_state is None
            else self._replication_state.resume_positions(txid)
        )
        return [
            f"{log}|{last}|"
            for log, last in (self.journal.position_bookmark(txid), *other_positions)
        ]

    def timestamp_us_of(self, txid: int) -> int | None:
        """Return the time at which a durable entry was recorded, in microseconds; None if absent.

        Raises:
            JournalUnreadableError: the entry cannot be read at the moment.
        """
        entries = self.journal.replay(
            LogSpan(txid - 1, last_txid=txid), kinds=frozenset(JournalEntryKind)
        ).read(1)
        return entries[0].timestamp if entries else None

    def resolve_bookmark(
        self,
        client: int,
        request: BookmarkRequest,
        not_found: MissingBookmarkPolicy,
        callback: Callable[[BookmarkResolution], None],
    ) -> None:
        """Resolve a bookmark to a part of the log.

        This may require reading files. The worker thread does so, once everything appended so far
        is readable; `0|1|` stands for the end of the log as it is now.

        Args:
            client: the number of the requesting session; sessions are served in rotation.
            request: the bookmark.
            not_found: the fallback when none of the starts is in the log.
            callback: called with the part found, or with the reason why there is none; at once if
                no search is needed.
        """
        now = self.journal.last_txid
        if request.needs_no_lookup:
            callback(self.journal.resolve_bookmark(request, not_found, now))
        else:
            self._search_bookmark(client, request, not_found, now, callback)

    def _search_bookmark(
        self,
        client: int,
        request: BookmarkRequest,
        not_found: MissingBookmarkPolicy,
        now: int,
        callback: Callable[[BookmarkResolution], None],
    ) -> None:
        """Search for a bookmark on the worker thread; retain all files until `callback` returns.

        Otherwise the file that has been found could be removed before the caller holds it. While
        a file is being removed, no search begins.
        """

        def begin() -> None:
            if self._delayed_searches is not None:
                self._delayed_searches.append(begin)
                return
            first_txid = self.journal.first_txid
            release = self.hold_files(
                lambda: first_txid, f"search for a bookmark of session {client}"
            )

            def on_resolved(position: BookmarkResolution) -> None:
                try:
                    callback(position)
                finally:
                    release()

            steps = self._resolve_in_steps(request, not_found, now)
            self._worker.submit_incremental(client, steps, on_resolved)

        self.when_durable(begin)

    @contextmanager
    def during_removal(self) -> Iterator[None]:
        """Delay searches for bookmarks while the oldest file of the log is being removed."""
        delayed = self._delayed_searches = []
        try:
            yield
        finally:
            self._delayed_searches = None
            for begin in delayed:
                begin()

    def report_damaged(self, txid: int) -> None:
        """Note an entry that cannot be read although it has been on stable storage."""
        if self._body_repair is not None:
            self._body_repair.scan_damage(txid)
        elif len(self._damaged_txids) < _MAX_DAMAGED:
            self._damaged_txids.append(txid)

    def is_unrecoverable(self, txid: int) -> bool:
        """Return whether an unreadable entry cannot be repaired."""
        return self._body_repair is None or self._body_repair.is_lost(txid)

    def use_body_repair(self, body_repair: PeerBodyRepair) -> None:
        """Report damaged entries for repair, including those known already."""
        self._body_repair = body_repair
        damaged_txids, self._damaged_txids = self._damaged_txids, []
        for txid in damaged_txids:
            body_repair.scan_damage(txid)

    def run_on_worker(self, work: Callable[[], _T], callback: Callable[[_T], None]) -> None:
        """Run long work on the helper thread, and call back with its result.

        See `WorkerThread.submit`; `work` must not raise.
        """
        self._worker.submit(work, callback)

    def _resolve_in_steps(
        self, request: BookmarkRequest, not_found: MissingBookmarkPolicy, now: int
    ) -> Generator[None, None, BookmarkResolution]:
        try:
            return (yield from self.journal.resolve_bookmark_in_steps(request, not_found, now))
        except BookmarkError as error:
            return error
        except JournalUnreadableError as error:
            return BookmarkError(f"the transaction log cannot be read: {error}")
        except OSError as error:
            return BookmarkError(f"the transaction log cannot be read: {reason(error)}")

    def hold_files(
        self,
        needed_from: Callable[[], int],
        reader_name: str,
        on_retention: OnJournalRetention | None = None,
    ) -> Callable[[], None]:
        """Retain the files of the log that a reader still needs.

        A reader that takes longer than one time slice calls this: replays, queues, replication.

        Args:
            needed_from: returns the first txid that is still needed.
            reader_name: the reader's name for operators, as in `queue orders`.
            on_retention: called with a journal that has to stay for this reader, repeatedly.

        Returns:
            A function that releases the hold; calling it again does nothing.
        """
        number = self._hold_count = self._hold_count + 1
        self._holds[number] = _Hold(needed_from, reader_name, on_retention)

        def release() -> None:
            self._holds.pop(number, None)

        return release

    @property
    def needed_from(self) -> int:
        """The txid before which no reader needs the log any more."""
        holds = (hold.needed_from() for hold in self._holds.values())
        return min(holds, default=self.last_txid + 1)

    def holders(self) -> list[tuple[int, str]]:
        """Return the readers that need the log, with their first txids, the lowest one first."""
        return sorted((hold.needed_from(), hold.reader_name) for hold in self._holds.values())

    def notify_holders(self, path: Path, end: int) -> None:
        """Notify the readers that need a journal that it is due for removal.

        Args:
            path: the journal.
            end: the txid before which its entries are.
        """
        for hold in self._holds.values():
            if hold.on_retention is not None and hold.needed_from() < end:
                hold.on_retention(path, end)


@dataclass(slots=True, unsafe_hash=True)  # frozen ones take longer to make
class SettledTopics:
    """Calls back when everything published to some topics so far is settled.

    Attributes:
        log: the transaction log.
        topics: the topics, at least one.
    """

    log: TransactionLog
    topics: frozenset[JournalTopic]

    def __call__(self, then: StoreCallback, /) -> None:
        """Call back when everything is settled; see `TransactionLog.when_settled`."""
        self.log.when_settled(partial(then, None), *self.topics)


def _run_due_callbacks(callbacks: deque[tuple[int, Callable[[], None]]], txid: int) -> bool:
    """Run some of the callbacks that wait for entries up to a txid; return whether more are due."""
    for _ in range(_CALLBACK_BATCH_SIZE):
        if not callbacks or callbacks[0][0] > txid:
            return False
        callbacks.popleft()[1]()
    return True
