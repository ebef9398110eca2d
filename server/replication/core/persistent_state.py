"""The state of replication that is kept from one run to the next: the file `replication.ack`.

The file may lag behind, and is correct nevertheless: a cursor that lags costs entries that are sent
twice, and are dropped; a destination that is ahead of the file costs journals that are kept longer.
Entries behind the txid of the file are added from the log. A file with a txid beyond the end of the
log belongs to a log that has been lost, and is void.

Without the file, everything is recovered from the log, and from the other instances.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from server.replication.core.columns import by_client, compact_column
from server.replication.core.dedup_window import DedupWindow, PublisherWindow
from server.replication.core.receive_cursor import ReceiveCursor
from server.replication.core.recent_entries import RecentEntries
from server.storage.journal import EntryBatch
from server.storage.journal.format.layout import (
    BODY_CRC,
    CHECKSUM,
    CLIENT,
    SEQUENCE,
    TXID,
    JournalFormatError,
    JournalVersionError,
    crc32c,
)
from server.storage.journal.format.side_files import REPLICATION_MAGIC as MAGIC
from server.storage.journal.format.side_files import REPLICATION_VERSION as VERSION
from server.util.file_lock import version_mismatch

_U64: Final = np.dtype("<u8")
_VERSION_SIZE: Final = 2


class PersistentState(msgspec.Struct, frozen=True):
    """The content of the file.

    Attributes:
        log: identity of this instance's log.
        txid: the last entry that is taken into account; it was on stable storage.
        cursors: by name of the source, the position up to which its log has been received.
        acknowledged: by name of the destination, the txid up to which it has everything.
        publisher_windows: the messages received of each publisher.
        logs: by name of another instance, the identity of the log that it had.
    """

    log: str
    txid: int
    cursors: dict[str, ReceiveCursor] = {}
    acknowledged: dict[str, int] = {}
    publisher_windows: list[PublisherWindow] = []
    logs: dict[str, str] = {}


class _StateFile(msgspec.Struct, frozen=True):
    """A `PersistentState` in the form of the file: publisher windows as columns of u64."""

    log: str
    txid: int
    cursors: dict[str, ReceiveCursor]
    acknowledged: dict[str, int]
    clients: bytes
    highest: bytes
    gaps: bytes  # identity, first and last number of each
    logs: dict[str, str] = {}  # missing in files of earlier versions


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_StateFile)


def pack(state: PersistentState) -> bytes:
    """Return the bytes of the file."""
    publisher_windows = state.publisher_windows
    state_file = _StateFile(
        state.log,
        state.txid,
        state.cursors,
        state.acknowledged,
        np.array([window.client for window in publisher_windows], _U64).tobytes(),
        np.array([window.highest for window in publisher_windows], _U64).tobytes(),
        np.array(
            [(window.client, *gap) for window in publisher_windows for gap in window.gaps], _U64
        ).tobytes(),
        state.logs,
    )
    data = MAGIC + VERSION.to_bytes(_VERSION_SIZE, "little") + _ENCODER.encode(state_file)
    return data + CHECKSUM.pack(crc32c(data))


def unpack(data: bytes) -> PersistentState:
    """Parse the file.

    Raises:
        JournalFormatError: it is damaged, or another kind of file.
    """
    head = len(MAGIC) + _VERSION_SIZE
    if len(data) < head + CHECKSUM.size or not data.startswith(MAGIC):
        raise JournalFormatError("it does not begin like a replication.ack file")
    if CHECKSUM.pack(crc32c(data[: -CHECKSUM.size])) != data[-CHECKSUM.size :]:
        raise JournalFormatError("its checksum is wrong")
    version = int.from_bytes(data[len(MAGIC) : head], "little")
    if version != VERSION:
        raise JournalVersionError(version_mismatch(version, VERSION))
    try:
        state_file = _DECODER.decode(data[head : -CHECKSUM.size])
    except msgspec.MsgspecError as problem:
        raise JournalFormatError(f"it cannot be read: {problem}") from problem
    gaps: dict[int, list[tuple[int, int]]] = {}
    for client, first, last in np.frombuffer(state_file.gaps, _U64).reshape(-1, 3).tolist():
        gaps.setdefault(client, []).append((first, last))
    clients = np.frombuffer(state_file.clients, _U64).tolist()
    highest = np.frombuffer(state_file.highest, _U64).tolist()
    return PersistentState(
        state_file.log,
        state_file.txid,
        state_file.cursors,
        state_file.acknowledged,
        [
            PublisherWindow(client, number, gaps.get(client, ()))
            for client, number in zip(clients, highest, strict=True)
        ],
        state_file.logs,
    )


class DedupWindowRecovery:
    """Rebuilds the dedup window from the log, on top of the stored one.

    Args:
        state: the content of the file; with a txid of 0 nothing counts as known.
        recent_entries: gets all entries.
        is_log_complete: whether the log has everything behind that, or from its beginning on. If
            not, all numbers of a publisher before its first entry in the log count as received.

    Attributes:
        dedup_window: the known messages, as far as the log has been read.
    """

    def __init__(
        self, state: PersistentState, recent_entries: RecentEntries, *, is_log_complete: bool
    ) -> None:
        self._stored_txid = state.txid
        self._recent_entries = recent_entries
        self._is_log_complete = is_log_complete
        self._seen: set[int] = set()
        self._highest_sequences = {
            window.client: window.highest for window in state.publisher_windows
        }
        self.dedup_window = DedupWindow(lambda client: self._highest_sequences.get(client, 0))
        self.dedup_window.restore(state.publisher_windows)

    def replay_batch(self, batch: EntryBatch) -> None:
        """Process entries; to be called with all that change state, in order.

        Behind the stored txid, none may be omitted; it is better to begin before that, with the
        entries that the destinations have not acknowledged.
        """
        rows = batch.rows
        if not batch.origin.path:  # entries numbered by this log only are not from others
            rows = [row for row in rows if row[SEQUENCE] != row[TXID]]
        for client, positions in by_client([row[CLIENT] for row in rows]):
            selected = [rows[index] for index in positions]
            sequences = compact_column([row[SEQUENCE] for row in selected])
            txids = selected[0][TXID], selected[-1][TXID]
            checksums = [row[BODY_CRC] for row in selected]
            self._recent_entries.add_batch(
                client, sequences, checksums, txids, batch.topic, batch.origin
            )
            new_sequences = [row[SEQUENCE] for row in selected if row[TXID] > self._stored_txid]
            if new_sequences:
                highest = self._highest_sequences.get(client, 0)
                if not self._is_log_complete and client not in self._seen:
                    self._seen.add(client)
                    highest = max(highest, new_sequences[0] - 1)
                self.dedup_window.record_sequences(client, highest, compact_column(new_sequences))
                self._highest_sequences[client] = max(highest, *new_sequences)
