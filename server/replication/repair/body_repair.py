"""Repairs damaged entries of the log with copies from other instances.

    reading the log finds damage -> list the damaged bodies -> request the entry with the same
    bookmark from one instance after the other -> if it is the lost one, write it to its place

A restored body must have the length and the checksum in the entry's own record, so no peer has to
be trusted, and the log is the same as before. For damage in the records of entries, see
record_repair.py. Compressed journals are not repaired.

A sender of the log to other instances waits in front of a damaged entry as long as that may be
repaired soon (`is_lost`): while the entry has not been requested from a connected peer. It is
possible that no peer is connected yet when damage is found first, so an entry is not reported as
lost before some seconds have passed.

A missing message may also arrive again: its publisher resends it if the instance has nothing behind
it, and so does another instance if it queries the position of this one anew. A message that has
arrived again is not restored, and one that has been restored is not accepted again.

Source: ours; AMPS has nothing of the kind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from server.replication.repair.peer_requests import PeerRequest, PeerRequester, PeerResponder
from server.replication.repair.record_repair import PeerRecordRepair
from server.storage.journal import EVENTS, DamagedBody, JournalUnreadableError, LogSpan
from server.storage.journal.errors import reason
from server.storage.journal.format.layout import BODY_LENGTH
from server.util.peer_struct import MSGPACK_ERRORS, PeerStruct

if TYPE_CHECKING:
    from server.replication.core import DedupWindow
    from server.replication.links.registry import LinkRegistry
    from server.storage.journal import EntryBatch, Journal, RecordGap
    from server.topics.transaction_log import TransactionLog
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

SUBJECT: Final = "mend"
"""Subject of the messages of this module."""

ENTRY_CHUNK_SIZE: Final = 48_000
"""Bytes of a body in one message."""

_MAX_UNREPAIRABLE: Final = 100_000


class ChunkRequest(PeerStruct, frozen=True, tag=1):
    """A request for a chunk of an entry.

    Attributes:
        client: the identity of its publisher.
        sequence: its number.
        start: the offset, in bytes of body and extras.
    """

    client: int
    sequence: int
    start: int


class EntryChunk(PeerStruct, frozen=True, tag=2):
    """A chunk of an entry.

    Attributes:
        client: see `ChunkRequest`.
        sequence: see `ChunkRequest`.
        start: see `ChunkRequest`.
        data: the chunk; empty if there is none.
    """

    client: int
    sequence: int
    start: int
    data: bytes


_BodyRepairMessage: TypeAlias = ChunkRequest | EntryChunk
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[_BodyRepairMessage]] = msgspec.msgpack.Decoder(
    _BodyRepairMessage
)


class PeerBodyRepair:
    """Requests damaged entries from other instances, and responds to their requests.

    Args:
        instance: name of this instance.
        log: the transaction log.
        links: the links.
        dedup_window: the dedup windows of the publishers.
        clock: the time, and timers.
        event_log: the event log, for repaired and lost entries.
        on_change: called with the txid of a repaired entry, or with 0 when some are lost.
    """

    def __init__(
        self,
        instance: str,
        log: TransactionLog,
        links: LinkRegistry,
        dedup_window: DedupWindow,
        clock: Clock,
        event_log: ServerLog,
        on_change: Callable[[int], None],
    ) -> None:
        self._on_change: Final = on_change
        self._scanning_txids: set[int] = set()
        self._unrepairable_txids: set[int] = set()  # damaged entries that cannot be repaired
        self._log: Final = log
        self._dedup_window: Final = dedup_window
        self._links: Final = links
        self._event_log: Final = event_log
        self._received_data = bytearray()  # received chunks of the requested entry
        self._requester: Final[PeerRequester[DamagedBody]] = PeerRequester(
            links,
            clock,
            self._request_entry,
            self._request_next_chunk,
            self._notify_if_given_up,
            self._will_be_resent,
        )
        self._responder: Final = PeerResponder(log, links, SUBJECT)
        self._record_repair: Final = PeerRecordRepair(
            instance,
            log,
            links,
            dedup_window,
            clock,
            event_log,
            self._process_repaired_record,
            partial(on_change, 0),
        )
        links.watch(self._update_peers)
        links.register_handler(SUBJECT, self._receive_message)
        log.use_body_repair(self)

    def close(self) -> None:
        """Stop repairing."""
        self._requester.close()
        self._record_repair.close()

    # damaged entries

    def is_lost(self, txid: int) -> bool:
        """Return whether a damaged entry is unlikely to be repaired soon."""
        if txid in self._unrepairable_txids:
            return True
        is_lost = self._record_repair.is_lost(txid)
        if is_lost is not None:
            return is_lost
        damaged = self._requester.missing_items.get(txid)
        if damaged is None:
            self.scan_damage(txid)
            return False
        if self._will_be_resent(damaged):
            return True
        return self._requester.is_given_up(txid)

    def scan_damage(self, txid: int) -> None:
        """Search for damaged entries, from an entry on, on the helper thread."""
        if txid in self._scanning_txids:
            return
        self._scanning_txids.add(txid)

        def find_damage() -> tuple[list[DamagedBody], list[RecordGap]]:
            journal = self._log.journal
            try:
                return journal.body_repair.find_damaged_bodies(
                    txid
                ), journal.record_repair.find_gaps(txid)
            except OSError:
                return [], []  # the journal cannot be read at the moment, let alone repaired

        self._log.run_on_worker(find_damage, lambda found: self._add_damage(txid, *found))

    def _process_repaired_record(self, txid: int) -> None:
        """Process a rebuilt record; the body is intact, unless it is damaged, too."""
        self._on_change(txid)
        self.scan_damage(txid)

    def _add_damage(
        self, txid: int, damaged_bodies: list[DamagedBody], gaps: list[RecordGap]
    ) -> None:
        self._scanning_txids.discard(txid)
        self._record_repair.add_gaps(gaps)
        for damaged in damaged_bodies:
            self._requester.add_item(damaged.txid, damaged)
        if txid not in self._requester.missing_items and self._record_repair.is_lost(txid) is None:
            if len(self._unrepairable_txids) >= _MAX_UNREPAIRABLE:
                self._unrepairable_txids.clear()
            self._unrepairable_txids.add(txid)
            if self._log.journal.body_repair.is_in_compressed_file(txid):
                problem = "their journal has been compressed"
                self._event_log.emit("1E-0023", entries=f"from {txid} on", problem=problem)
        self._requester.request_next()
        self._on_change(0)

    def _update_peers(self) -> None:
        self._record_repair.update_peers()
        self._requester.update_peers()
        self._notify_if_given_up()

    # requests

    def _notify_if_given_up(self) -> None:
        """Notify if no request is pending, for some entries may have to be given up."""
        if self._requester.missing_items and self._requester.pending_request is None:
            self._on_change(0)

    def _will_be_resent(self, damaged: DamagedBody) -> bool:
        """Return whether the publisher will resend an entry: its last known message is earlier."""
        return 0 < self._dedup_window.highest_sequence(damaged.client) < damaged.sequence

    def _request_entry(self, request: PeerRequest[DamagedBody]) -> None:
        self._received_data.clear()
        self._request_next_chunk(request)

    def _request_next_chunk(self, request: PeerRequest[DamagedBody]) -> None:
        chunk_request = ChunkRequest(
            request.item.client, request.item.sequence, len(self._received_data)
        )
        self._links.send_message(request.peer, SUBJECT, _ENCODER.encode(chunk_request))

    def _receive_message(self, peer: str, body: bytes) -> None:
        try:
            message = _DECODER.decode(body)
        except MSGPACK_ERRORS:
            return  # malformed: the requester times out
        if isinstance(message, ChunkRequest):
            self._send_chunk(peer, message)
        else:
            self._receive_chunk(peer, message)

    def _receive_chunk(self, peer: str, chunk: EntryChunk) -> None:
        """Process a chunk of the requested entry, or the response that there is none."""
        pending_request = self._requester.pending_request
        if pending_request is None or peer != pending_request.peer:
            return
        damaged = pending_request.item
        name = damaged.client, damaged.sequence, len(self._received_data)
        if name != (chunk.client, chunk.sequence, chunk.start):
            return
        self._received_data += chunk.data
        if chunk.data and len(self._received_data) < damaged.length:
            self._requester.extend_timeout()
            self._request_next_chunk(pending_request)
            return
        data = bytes(self._received_data)
        if damaged.matches(data):
            self._requester.start_repair()
            self._repair_body(damaged, data, peer)
        else:
            self._requester.finish_request()
            self._notify_if_given_up()

    def _repair_body(self, damaged: DamagedBody, data: bytes, peer: str) -> None:
        client, sequence = damaged.client, damaged.sequence
        highest = self._dedup_window.highest_sequence(client)
        if highest:  # from now on, a resent copy is a duplicate
            self._dedup_window.record_sequences(client, highest, (sequence,))

        def repair() -> str:
            journal = self._log.journal
            try:
                if journal.find_later(client, sequence, damaged.txid) is not None:
                    return "it has been recorded again meanwhile"
                is_done = journal.body_repair.replace_body(damaged, data)
            except OSError as problem:
                return reason(problem)
            return "" if is_done else "its journal has changed"

        def report(problem: str) -> None:
            self._requester.remove_item(damaged.txid)
            if problem:
                self._unrepairable_txids.add(damaged.txid)
                self._event_log.emit("1E-0019", txid=damaged.txid, problem=problem)
                self._on_change(0)
            else:
                self._event_log.emit("1E-0018", txid=damaged.txid, other=peer)
                self._on_change(damaged.txid)
            self._requester.request_next()

        # An entry that has been resent until now can be found when it is on stable storage.
        self._log.when_durable(lambda: self._log.run_on_worker(repair, report))

    # responses

    def _send_chunk(self, peer: str, request: ChunkRequest) -> None:
        """Send a chunk of an entry, if the other instance is entitled to it."""

        def find() -> EntryBatch | None:
            try:
                return _read_entry(self._log.journal, request.client, request.sequence)
            except (OSError, JournalUnreadableError):
                return None

        def make_response(entry: EntryBatch | None) -> bytes:
            data = b""
            if entry is not None:
                body = entry.data[0][: entry.rows[0][BODY_LENGTH]]
                if self._links.may_receive(peer, entry.topic, entry.origin.path, body):
                    data = entry.data[0][request.start : request.start + ENTRY_CHUNK_SIZE]
                else:
                    self._links.log_refused_request(peer, entry.topic)
            return _ENCODER.encode(
                EntryChunk(request.client, request.sequence, request.start, data)
            )

        self._responder.send_response(peer, find, make_response)


def _read_entry(journal: Journal, client: int, sequence: int) -> EntryBatch | None:
    """Return the entry with a bookmark, as a batch of one; None if there is none."""
    txid = journal.find(client, sequence)
    if txid is None:
        return None
    entry_range = journal.replay(LogSpan(txid - 1, last_txid=txid), kinds=EVENTS).read_entry_range(
        1
    )
    return next(iter(entry_range.batches()), None)
