"""The engine's side of writing: numbers entries and encodes them.

It does no file I/O, except for taking the next file when one is full. An appended entry is on
stable storage when the committer reports it, and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import starmap
from time import monotonic
from typing import Final

from server.storage.journal.clock_steps import MIN_STEP_US, ClockStep, ClockSteps
from server.storage.journal.errors import EntryTooLargeError, JournalUnavailableError
from server.storage.journal.files import FileTable, JournalFile
from server.storage.journal.format.entry import NO_TOPIC, JournalEntryKind
from server.storage.journal.format.layout import (
    CHECKSUM,
    HEAD,
    LAG_UNKNOWN,
    LATE_ENTRY_FLAG,
    PAGE,
    RECORD_SIZE,
    FileSeal,
    JournalFileHeader,
    capacity,
    crc32c,
    pack_extras,
    pack_header,
    split_extras,
)
from server.storage.journal.publisher_table import PublisherSequences, server_made_identity
from server.storage.journal.runs import RunHistory
from server.storage.journal.sequence_gaps import SequenceGaps
from server.storage.journal.write.blocks import (
    AppendPosition,
    AppendResult,
    EntryColumns,
    FieldColumn,
    WritePosition,
    each,
    handle_numbers,
    of_one,
    part_of,
)
from server.storage.journal.write.commit_queue import (
    MAX_UNCOMMITTED_BYTES,
    CommitQueue,
    CommitStream,
    LiveFile,
)
from server.storage.journal.write.entry_encoder import count_fitting, make_block
from server.storage.journal.write.handles import (
    Handles,
    OriginHandle,
    TopicHandle,
    pack_limited,
    reset_on_failure,
)

_pack_head: Final = HEAD.pack
_pack_checksum: Final = CHECKSUM.pack
_NO_SEQUENCE: Final = (0, 0)
_MAX_IN_BLOCK: Final = 1024
_MAX_COMMIT_WAIT_S: Final = 30.0  # for which a full commit queue may block the engine


class JournalWriter:
    """Appends entries.

    Args:
        instance: name of the instance.
        file: the file to write to.
        position: the end of its contents.
        sequences: the table of publishers, kept up to date here.
        sequence_gaps: missing sequence numbers of publishers; kept up to date by the caller of
            `append`.
        table: all files; a new one is added when it is taken into use.
        next_file: returns an empty file, or raises JournalUnavailableError.
        clock: returns microseconds since the Unix epoch.
        drain_commit_queue: commits waiting entries, or waits until the committer has taken some.
        run_history: the runs of the instance; this one begins with the first entry.
        clock_steps: the steps of the wall clock, by txid.
        on_clock_step: called when one has been added.

    Attributes:
        durable_txid: txid of the last entry on stable storage; set by the committer.
        write_error: why nothing can be recorded; None if the log is writable. Set by the committer.
        commit_queue: the entries that wait for a commit.
        file: the file that is written to.
        last_timestamp: of the last entry appended, in microseconds since the Unix epoch, by the
            wall clock as it is set now.
        clock_steps: the steps of the wall clock; the writer adds to them.
    """

    def __init__(
        self,
        instance: str,
        file: LiveFile,
        position: WritePosition,
        sequences: PublisherSequences,
        sequence_gaps: SequenceGaps,
        table: FileTable,
        next_file: Callable[[], LiveFile],
        clock: Callable[[], int],
        drain_commit_queue: Callable[[], None],
        run_history: RunHistory,
        clock_steps: ClockSteps,
        on_clock_step: Callable[[], None],
    ) -> None:
        self.clock_steps = clock_steps
        self._on_clock_step = on_clock_step
        self.durable_txid = position.next_txid - 1
        self.write_error: str | None = None
        self.file = file
        self.sequences = sequences
        self._sequence_gaps = sequence_gaps
        self._instance = instance
        self._table = table
        self._next_file = next_file
        self._clock = clock
        self._drain_commit_queue = drain_commit_queue
        self._run_history = run_history
        self._run_number = run_history.current
        self._has_run_history = False  # whether the current file has an entry with all runs
        self._next_numbers = [max(file.definitions.topics) + 1, max(file.definitions.origins) + 1]
        self._no_topic = TopicHandle(NO_TOPIC)
        self._next_txid = position.next_txid
        self._first_txid = position.next_txid - position.count
        self._bodies_end = position.bodies_end
        self._extras_count = position.extras_count
        self._first_timestamp = position.first_timestamp
        self.last_timestamp = position.last_timestamp
        self._appended_bytes = 0  # like `CommitQueue.taken_bytes`; without the current grant
        self._credit_bytes = 0  # bytes of the grant that may be appended without further checks
        self._granted_bytes = 0
        self.commit_queue = CommitQueue(
            CommitStream(file, position.next_txid, position.count, position.bodies_end)
        )
        self._append_to_stream = self.commit_queue.stream.blocks.append

    @property
    def last_txid(self) -> int:
        """The txid of the last entry appended."""
        return self._next_txid - 1

    @property
    def bodies_end(self) -> int:
        """The offset after the last body in the file that is written to."""
        return self._bodies_end

    @property
    def uncommitted_bytes(self) -> int:
        """Bytes that wait for a commit."""
        return (
            self._appended_bytes
            + self._granted_bytes
            - self._credit_bytes
            - self.commit_queue.taken_bytes
        )

    def append(
        self,
        topic: TopicHandle,
        client: int,
        sequence: int,
        body: bytes,
        kind: int = JournalEntryKind.PUBLISH,
        sow_key: int = 0,
        expiration: int = 0,
        origin: OriginHandle | None = None,
        correlation_id: bytes = b"",
        given_key: bytes = b"",
        source_txid: int = 0,
        source: int = 0,
    ) -> int:
        """Append one entry.

        Args:
            topic: where it was published; see `Journal.topic_handle`.
            client: the publisher's client hash.
            sequence: its sequence number, 0 if it gave none: then the entry is recorded under an
                identity made by the server, and with its txid as sequence.
            body: verbatim.
            kind: the kind of entry.
            sow_key: SOW key as a number below 2**64.
            expiration: lifetime in seconds, 0 for none.
            origin: user and replication path; see `Journal.origin_handle`.
            correlation_id: as the publisher gave it.
            given_key: the SOW key that the publisher gave.
            source_txid: of a replicated entry, where it was first published.
            source: of a replicated entry, hash of the instance that it came from.

        Returns:
            The entry's txid.

        Raises:
            JournalUnavailableError: the entry cannot be recorded; nothing has changed.
        """
        if self.write_error is not None:
            raise JournalUnavailableError(self.write_error)
        length = len(body)
        data, extras_length = body, 0
        if correlation_id or given_key:
            extras = pack_limited(pack_extras, correlation_id, given_key)
            data, extras_length = body + extras, len(extras)
        needed = length + extras_length + RECORD_SIZE
        while True:
            self._credit_bytes -= needed
            if self._credit_bytes < 0:
                self._extend_credit(needed - RECORD_SIZE)
            number = self.file.number
            if topic.file_number == number and (origin is None or origin.file_number == number):
                break
            self._credit_bytes += needed
            self._define_handles(topic, origin, needed - RECORD_SIZE)
        origin_number = 0 if origin is None else origin.number
        txid = self._next_txid
        now = self._clock()
        if now < self.last_timestamp:
            now = self._time_after_last(now)
        flags = 0
        if sequence:
            # An entry from another instance may fill a gap here, so its sequence may be lower.
            if not source or sequence > self.sequences.get(client, _NO_SEQUENCE)[0]:
                self.sequences[client] = (sequence, now)
            else:
                flags = LATE_ENTRY_FLAG
        elif kind < JournalEntryKind.NO_OP or kind == JournalEntryKind.MISSING:
            source_txid = source_txid or client
            client = server_made_identity(client, self._instance, self._run_number)
            sequence = txid
        lag = min(txid - self.durable_txid, LAG_UNKNOWN)
        bodies_end = self._bodies_end
        head = _pack_head(
            txid,
            now,
            client,
            sequence,
            source_txid,
            source,
            sow_key,
            bodies_end,
            length,
            extras_length,
            topic.number,
            origin_number,
            expiration,
            crc32c(data),
            kind,
            flags,
            lag,
        )
        self._append_to_stream((1, data, head + _pack_checksum(crc32c(head))))
        self._next_txid = txid + 1
        self._bodies_end = bodies_end + length + extras_length
        self.last_timestamp = now
        if extras_length:
            self._extras_count += 1
        if self.commit_queue.is_committer_asleep:
            self.commit_queue.wake()
        return txid

    def append_batch(
        self,
        handles: Handles,
        handle_keys: FieldColumn,
        client: int,
        sequences: Sequence[int],
        bodies: Sequence[bytes],
        start: int = 0,
        sow_keys: Sequence[int] = (),
        expirations: FieldColumn = 0,
        extras_length: FieldColumn = 0,
        kinds: FieldColumn = JournalEntryKind.PUBLISH,
    ) -> AppendResult:
        """Append publishes by one publisher; otherwise see `append`.

        One call appends as many as can share one timestamp; the caller repeats it for the others.

        Args:
            handles: their topics, each with user and replication path.
            handle_keys: the keys of theirs in `handles`.
            client: the publisher's client hash.
            sequences: their sequence numbers, ascending; empty if the publisher gives none.
            bodies: verbatim, with extras.
            start: the position of the first of them to append; there is one.
            sow_keys: their SOW keys as numbers below 2**64; empty if they have none.
            expirations: lifetimes in seconds, 0 for none.
            extras_length: bytes of extras after each body.
            kinds: the kinds of the entries.
        """
        try:
            if len(bodies) - start > 1:
                self._define_all_handles(handles)
            count, first = self._count_fitting(handles, bodies, start), self._next_txid
            if count:
                stop = start + count
                txids = range(first, first + count)
                numbers = sequences[start:stop]
                content = EntryColumns(
                    part_of(handle_keys, start, stop),
                    client
                    if numbers
                    else server_made_identity(client, self._instance, self._run_number),
                    numbers or txids,
                    0 if numbers else client,
                    0,
                    part_of(kinds, start, stop),
                    sow_keys[start:stop] or 0,
                    part_of(expirations, start, stop),
                    part_of(extras_length, start, stop),
                    (),
                    bodies[start:stop],
                )
                checksums = self._append_block(handles, content)
                if numbers:
                    self.sequences[client] = (numbers[-1], self.last_timestamp)
                return AppendResult(stop, txids, self.last_timestamp, None, checksums=checksums)
            # Appended alone: `append` waits for space, or begins the next file.
            topic, origin = handles[of_one(handle_keys, start)]
            length = of_one(extras_length, start)
            body, correlation_id, given_key = split_extras(bodies[start], length)
            txid = self.append(
                topic,
                client,
                sequences[start] if sequences else 0,
                body,
                of_one(kinds, start),
                sow_key=sow_keys[start] if sow_keys else 0,
                expiration=of_one(expirations, start),
                origin=origin,
                correlation_id=correlation_id,
                given_key=given_key,
            )
        except JournalUnavailableError as problem:
            return AppendResult(start, (), self.last_timestamp, problem)
        checksums = (crc32c(bodies[start]),)
        return AppendResult(start + 1, (txid,), self.last_timestamp, None, checksums=checksums)

    def append_copies(
        self, handles: Handles, content: EntryColumns, start: int = 0
    ) -> AppendResult:
        """Append entries that another instance has recorded; otherwise see `append_batch`.

        Args:
            handles: their topics and origins.
            content: their fields and bodies.
            start: the position of the first of them to append; there is one.
        """
        try:
            if len(content.data) - start > 1:
                self._define_all_handles(handles)
                first, count = self._next_txid, self._count_fitting(handles, content.data, start)
                if count:
                    part = content.part(start, start + count)
                    flags = self._update_sequences(part)
                    self._append_block(handles, part, flags)
                    txids = range(first, first + count)
                    return AppendResult(start + count, txids, self.last_timestamp, None, flags)
            # The last entry, or one for which `append` waits for space or begins the next file.
            txid, flag = self._append_copy(handles, content, start)
        except JournalUnavailableError as problem:
            return AppendResult(start, (), self.last_timestamp, problem)
        return AppendResult(start + 1, (txid,), self.last_timestamp, None, flag)

    def _append_copy(self, handles: Handles, content: EntryColumns, index: int) -> tuple[int, int]:
        """Append one entry from another instance; return its txid and its flags."""
        topic, origin = handles[of_one(content.handle_keys, index)]
        length = of_one(content.extras_length, index)
        body, correlation_id, given_key = split_extras(content.data[index], length)
        client, sequence = of_one(content.clients, index), of_one(content.sequences, index)
        is_late = sequence <= self.sequences.get(client, _NO_SEQUENCE)[0]
        txid = self.append(
            topic,
            client,
            sequence,
            body,
            of_one(content.kinds, index),
            of_one(content.sow_keys, index),
            of_one(content.expirations, index),
            origin,
            correlation_id,
            given_key,
            of_one(content.source_txids, index),
            content.source,
        )
        return txid, LATE_ENTRY_FLAG if is_late else 0

    def _update_sequences(self, content: EntryColumns) -> FieldColumn:
        """Update the table of publishers; return the flags of the entries, LATE out of order."""
        now, table = self.current_time(), self.sequences
        clients, sequences = content.clients, content.sequences
        if (
            isinstance(clients, int)
            and isinstance(sequences, range)
            and sequences[0] > table.get(clients, _NO_SEQUENCE)[0]
        ):
            table[clients] = (sequences[-1], now)
            return 0
        count, flags = len(content.data), list[int]()
        for client, number in zip(each(clients, count), each(sequences, count), strict=True):
            is_next = number > table.get(client, _NO_SEQUENCE)[0]
            if is_next:
                table[client] = (number, now)
            flags.append(0 if is_next else LATE_ENTRY_FLAG)
        return flags if any(flags) else 0

    def record_clock_step(self, microseconds: int) -> None:
        """Note that the wall clock has been set by `microseconds`, before the next entry."""
        self.clock_steps.add(ClockStep(self._next_txid, microseconds))
        self.last_timestamp += microseconds
        self._on_clock_step()

    def current_time(self) -> int:
        """Return the timestamp for the next entry, and note a clock that has been set back."""
        now = self._clock()
        return now if now >= self.last_timestamp else self._time_after_last(now)

    def _time_after_last(self, now: int) -> int:
        """Return the timestamp of an entry that would be earlier than the one before."""
        if self.last_timestamp - now < MIN_STEP_US:
            return self.last_timestamp
        self.record_clock_step(now - self.last_timestamp)
        return now

    def _count_fitting(self, handles: Handles, bodies: Sequence[bytes], start: int) -> int:
        """Return how many bodies can be appended in one block, without checks in between."""
        if self.write_error is not None or not all(starmap(self._is_defined, handles.values())):
            return 0
        return count_fitting(bodies[start : start + _MAX_IN_BLOCK], self._credit_bytes)

    def _is_defined(self, topic: TopicHandle, origin: OriginHandle | None) -> bool:
        """Return whether the current file defines the numbers of topic and origin."""
        number = self.file.number
        return topic.file_number == number and (origin is None or origin.file_number == number)

    def _append_block(
        self, handles: Handles, content: EntryColumns, flags: FieldColumn = 0
    ) -> Sequence[int]:
        """Append entries that fit; return the checksums of their bodies with extras."""
        count = len(content.data)
        topics, origins = handle_numbers(handles, content.handle_keys)
        position = AppendPosition(
            self._next_txid,
            self.current_time(),
            self._bodies_end,
            topics,
            origins,
            self.durable_txid,
        )
        bodies, records, bodies_end, checksums = make_block(position, content, flags)
        self._credit_bytes -= bodies_end - self._bodies_end + RECORD_SIZE * count
        self._append_to_stream((count, bodies, records))
        self._next_txid += count
        self._bodies_end = bodies_end
        self.last_timestamp = position.timestamp
        lengths = content.extras_length
        if lengths:
            self._extras_count += count if isinstance(lengths, int) else sum(map(bool, lengths))
        if self.commit_queue.is_committer_asleep:
            self.commit_queue.wake()
        return checksums

    def _extend_credit(self, length: int) -> None:
        """Begin a file, record the runs or wait for the committer as needed; grant more credit.

        The credit ends where the file is full, or where too much would wait for a commit.
        """
        needed = length + RECORD_SIZE
        self._credit_bytes += needed
        while not self._has_run_history or self._free_bytes() < needed:
            if self._free_bytes() < needed:
                self._begin_file(length)
            else:
                self._append_run_history()
        self._wait_for_commits(needed)
        self._revoke_credit()
        allowed = max(
            MAX_UNCOMMITTED_BYTES - (self._appended_bytes - self.commit_queue.taken_bytes), needed
        )
        self._granted_bytes = min(self._free_bytes(), allowed)
        self._credit_bytes = self._granted_bytes - needed

    def _append_run_history(self) -> None:
        """Record all runs, before this run records anything else in the file."""
        first_txid, self._has_run_history = self._next_txid, True
        self._no_topic.file_number = self.file.number
        try:
            self.append(
                self._no_topic, 0, 0, self._run_history.begin_run(first_txid), JournalEntryKind.RUNS
            )
        except JournalUnavailableError:
            self._has_run_history = False
            self._run_history.undo_begin(first_txid)
            raise

    def _revoke_credit(self) -> None:
        """Revoke the rest of the credit."""
        self._appended_bytes += self._granted_bytes - self._credit_bytes
        self._granted_bytes = self._credit_bytes = 0

    def _free_bytes(self) -> int:
        """Return the free bytes between the bodies and the records of the current file."""
        count = self._next_txid - self._first_txid
        return self.file.size - RECORD_SIZE * count - self._bodies_end

    def _wait_for_commits(self, needed: int) -> None:
        """Block the engine while more than the limit waits for a commit: backpressure."""
        deadline_s = monotonic() + _MAX_COMMIT_WAIT_S
        while self.uncommitted_bytes and self.uncommitted_bytes + needed > MAX_UNCOMMITTED_BYTES:
            if self.write_error is not None:
                raise JournalUnavailableError(self.write_error)
            if monotonic() > deadline_s:
                raise JournalUnavailableError("the storage of the transaction log does not keep up")
            self._drain_commit_queue()

    def _define_all_handles(self, handles: Handles) -> None:
        """Define all handles in the current file, unless a new file begins in between."""
        for topic, origin in handles.values():
            if not self._is_defined(topic, origin):
                self._define_handles(topic, origin, 0)

    def _define_handles(self, topic: TopicHandle, origin: OriginHandle | None, length: int) -> None:
        """Make sure that the current file defines the numbers of topic and origin.

        After that it has space for an entry of `length` bytes.
        """
        needed = length + 3 * RECORD_SIZE + len(topic.definition)
        if origin is not None:
            needed += len(origin.definition)
        if self._free_bytes() < needed:
            self._begin_file(needed)
        definitions, number = self.file.definitions, self.file.number
        if topic.topic == NO_TOPIC:
            topic.file_number = number  # it has number 0, which needs no definition
        elif topic.file_number != number:
            topic.file_number, topic.number = number, self._next_numbers[0]
            self._next_numbers[0] += 1
            definitions.topics[topic.number] = topic.topic
            self.file.handles.append(topic)
            with reset_on_failure(topic):
                self.append(topic, 0, 0, topic.definition, JournalEntryKind.DEFINE_TOPIC)
        if origin is not None and origin.file_number != number:
            origin.file_number, origin.number = number, self._next_numbers[1]
            self._next_numbers[1] += 1
            definitions.origins[origin.number] = origin.origin
            self.file.handles.append(origin)
            self._no_topic.file_number = number
            with reset_on_failure(origin):
                definition = origin.definition
                self.append(
                    self._no_topic, 0, 0, definition, JournalEntryKind.DEFINE_ORIGIN, origin=origin
                )

    def _begin_file(self, length: int) -> None:
        """Begin the next file, unless the entry is too large for any file."""
        if length > capacity(self.file.size):
            raise EntryTooLargeError(
                f"a message of {length} bytes does not fit into a journal file of "
                f"{self.file.size} bytes; JournalSize in the configuration must be larger"
            )
        file = self._next_file()
        self._revoke_credit()
        txid = self._next_txid
        seal = FileSeal(
            txid - self._first_txid,
            self._bodies_end,
            self._extras_count,
            self._first_timestamp,
            self.last_timestamp - self.clock_steps.correction(txid - 1),
        )
        self._table.update(self.file.number, seal=seal)
        now = self.current_time()
        header = pack_header(JournalFileHeader(file.number, file.size, txid, now, self._instance))
        self.commit_queue.stream.sequences = dict(self.sequences)
        self.commit_queue.stream.missing_ranges = tuple(self._sequence_gaps.rows())
        self.commit_queue.switch_stream(CommitStream(file, txid, 0, PAGE, header))
        self._append_to_stream = self.commit_queue.stream.blocks.append
        self.file = file
        self._next_numbers = [1, 1]
        self._has_run_history = False
        self._first_txid = txid
        self._bodies_end = PAGE
        self._extras_count = 0
        self._first_timestamp = self.last_timestamp = now
        self._table.add(
            JournalFile(file.number, file.path, file.size, txid, now, None, file.definitions)
        )
