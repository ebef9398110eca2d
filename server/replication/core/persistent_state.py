"""The state of replication that is kept from one run to the next: the file `replication.ack`.

The file may lag behind, and is correct nevertheless: a cursor that lags costs entries that come
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
from server.replication.core.receiver import ReceiveCursor
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
    """The same in the form of the file: the state of publishers as columns of u64."""

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


def pack(remembered: PersistentState) -> bytes:
    """Return the bytes of the file."""
    publisher_windows = remembered.publisher_windows
    stored = _StateFile(
        remembered.log,
        remembered.txid,
        remembered.cursors,
        remembered.acknowledged,
        np.array([one.client for one in publisher_windows], _U64).tobytes(),
        np.array([one.highest for one in publisher_windows], _U64).tobytes(),
        np.array(
            [(one.client, *gap) for one in publisher_windows for gap in one.gaps], _U64
        ).tobytes(),
        remembered.logs,
    )
    data = MAGIC + VERSION.to_bytes(_VERSION_SIZE, "little") + _ENCODER.encode(stored)
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
        stored = _DECODER.decode(data[head : -CHECKSUM.size])
    except msgspec.MsgspecError as problem:
        raise JournalFormatError(f"it cannot be read: {problem}") from problem
    gaps: dict[int, list[tuple[int, int]]] = {}
    for client, first, last in np.frombuffer(stored.gaps, _U64).reshape(-1, 3).tolist():
        gaps.setdefault(client, []).append((first, last))
    clients = np.frombuffer(stored.clients, _U64).tolist()
    highest = np.frombuffer(stored.highest, _U64).tolist()
    return PersistentState(
        stored.log,
        stored.txid,
        stored.cursors,
        stored.acknowledged,
        [
            PublisherWindow(client, number, gaps.get(client, ()))
            for client, number in zip(clients, highest, strict=True)
        ],
        stored.logs,
    )


class DedupWindowRecovery:
    """Rebuilds the messages known of each publisher from the log, on top of the remembered ones.

    Args:
        remembered: the content of the file; with a txid of 0 nothing is taken for known.
        recent_entries: is given all entries.
        is_log_complete: whether the log has everything behind that, or from its beginning on. If
            not, all numbers of a publisher before its first entry in the log count as received.

    Attributes:
        dedup_window: the known messages, as far as the log has been read.
    """

    def __init__(
        self, remembered: PersistentState, recent_entries: RecentEntries, *, is_log_complete: bool
    ) -> None:
        self._stored_txid = remembered.txid
        self._recent_entries = recent_entries
        self._is_log_complete = is_log_complete
        self._seen: set[int] = set()
        self._highest_sequences = {one.client: one.highest for one in remembered.publisher_windows}
        self.dedup_window = DedupWindow(lambda client: self._highest_sequences.get(client, 0))
        self.dedup_window.restore(remembered.publisher_windows)

    def replay_batch(self, run: EntryBatch) -> None:
        """Process entries; to be called with all that change state, in order.

        Behind the remembered txid, none may be omitted; it is good to begin before that, with the
        entries that the destinations have not acknowledged.
        """
        rows = run.rows
        if not run.origin.path:  # entries numbered by this log only do not come from others
            rows = [row for row in rows if row[SEQUENCE] != row[TXID]]
        for client, places in by_client([row[CLIENT] for row in rows]):
            chosen = [rows[place] for place in places]
            sequences = compact_column([row[SEQUENCE] for row in chosen])
            txids = chosen[0][TXID], chosen[-1][TXID]
            checksums = [row[BODY_CRC] for row in chosen]
            self._recent_entries.add_batch(
                client, sequences, checksums, txids, run.topic, run.origin
            )
            new = [row[SEQUENCE] for row in chosen if row[TXID] > self._stored_txid]
            if new:
                before = self._highest_sequences.get(client, 0)
                if not self._is_log_complete and client not in self._seen:
                    self._seen.add(client)
                    before = max(before, new[0] - 1)
                self.dedup_window.record_sequences(client, before, compact_column(new))
                self._highest_sequences[client] = max(before, *new)
