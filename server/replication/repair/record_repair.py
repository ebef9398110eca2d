"""Rebuilds damaged records of the log from copies of the same entries at other instances.

    a gap in the log -> request the entries between those before and behind the gap, from one
    instance after the other -> accept those that match the remaining bodies
    (`server.storage.journal.repair.record_repair`)

The lost entries are unknown. Another instance locates the gap in its own log by the bookmarks of
the neighbouring entries, which the request has. For entries that were published at the requesting
instance it knows the txid there, and need not guess; of the others it sends those that lie between
the neighbours, or close to them. The requesting instance accepts those that it has nowhere else,
and that fit.

Source: ours; AMPS has nothing of the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec

from amperage.wire.bookmarks import client_hash
from server.replication.core import Hop, append_hop, hops
from server.replication.core.dedup_window import is_identity_made_by
from server.replication.repair.peer_requests import PeerRequest, PeerRequester, PeerResponder
from server.storage.journal import (
    EVENTS,
    JournalEntryKind,
    JournalOrigin,
    JournalTopic,
    JournalUnreadableError,
    LogSpan,
    ReplacementEntry,
)
from server.storage.journal.errors import reason
from server.storage.journal.format.layout import (
    BODY_CRC,
    BODY_LENGTH,
    CLIENT,
    EXPIRATION,
    EXTRAS_LENGTH,
    KIND,
    SEQUENCE,
    SOURCE_TXID,
    SOW_KEY,
    TXID,
    pack_origin,
    pack_topic,
    unpack_origin,
    unpack_topic,
)
from server.util.peer_struct import MSGPACK_ERRORS, PeerStruct

if TYPE_CHECKING:
    from server.replication.core import DedupWindow
    from server.replication.links.registry import LinkRegistry
    from server.storage.journal import EntryBatch, Journal, RecordGap
    from server.topics.transaction_log import TransactionLog
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

SUBJECT: Final = "records"
"""Subject of the messages of this module."""

_MAX_NEIGHBOURS: Final = 64
"""Neighbours of a gap that are sent, for each side."""

_MAX_MESSAGE_SIZE: Final = 48_000
"""Bytes of descriptions in one message."""

_MARGIN: Final = 1_024
"""Entries read on both sides of the place: the order of the entries may differ."""

_MAX_GAP_ENTRIES: Final = 16_384
"""Entries that may lie between the neighbours of a gap."""

_BATCH_SIZE: Final = 256


class EntryInfoRequest(PeerStruct, frozen=True, tag=1):
    """A request to describe the entries of a gap.

    Attributes:
        first: the txid of the first entry, at the requesting instance.
        last: that of the last.
        before: identities and numbers of entries before them, the closest one first.
        behind: the same of entries behind them.
    """

    first: int
    last: int
    before: list[tuple[int, int]]
    behind: list[tuple[int, int]]


class EntryInfo(PeerStruct, frozen=True):
    """An entry as recorded by the responding instance; see `ReplacementEntry`.

    Attributes:
        topic: as in the definitions of a journal.
        origin: the same.
    """

    client: int
    sequence: int
    source_txid: int
    kind: int
    sow_key: int
    expiration: int
    body_length: int
    extras_length: int
    checksum: int
    topic: bytes
    origin: bytes


class EntryInfoResponse(PeerStruct, frozen=True, tag=2):
    """The response to `EntryInfoRequest`.

    Attributes:
        first: see `EntryInfoRequest`.
        entries: the entries; those published at the requesting instance are first.
    """

    first: int
    entries: list[EntryInfo]


_RecordRepairMessage: TypeAlias = EntryInfoRequest | EntryInfoResponse
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[_RecordRepairMessage]] = msgspec.msgpack.Decoder(
    _RecordRepairMessage
)


class PeerRecordRepair:
    """Requests damaged records from other instances, and responds to their requests.

    Args:
        instance: name of this instance.
        log: the transaction log.
        links: the links.
        dedup_window: the dedup windows of the publishers.
        clock: the time, and timers.
        event_log: the event log, for repaired and lost entries.
        on_repaired: called with the txid of an entry after its record has been rebuilt.
        on_given_up: called when an entry has been found to be lost, for the time being.
    """

    def __init__(
        self,
        instance: str,
        log: TransactionLog,
        links: LinkRegistry,
        dedup_window: DedupWindow,
        clock: Clock,
        event_log: ServerLog,
        on_repaired: Callable[[int], None],
        on_given_up: Callable[[], None],
    ) -> None:
        self._instance: Final = instance
        self._log: Final = log
        self._links: Final = links
        self._dedup_window: Final = dedup_window
        self._event_log: Final = event_log
        self._on_repaired: Final = on_repaired
        self._on_given_up: Final = on_given_up
        self._logged_gaps: set[int] = set()  # first txids of gaps that have been logged as lost
        self._requester: Final[PeerRequester[RecordGap]] = PeerRequester(  # by their first txid
            links, clock, self._request_entries, self._request_entries, self._report_lost
        )
        self._responder: Final = PeerResponder(log, links, SUBJECT)
        links.register_handler(SUBJECT, self._receive_message)

    def close(self) -> None:
        """Stop repairing."""
        self._requester.close()

    # damaged records

    def add_gaps(self, gaps: Iterable[RecordGap]) -> None:
        """Add gaps of damaged records, and request their entries."""
        for gap in gaps:
            if self._find_gap(gap.first) is None:
                self._requester.add_item(gap.first, gap)
        self._requester.request_next()

    def is_lost(self, txid: int) -> bool | None:
        """Return whether an entry is unlikely to be repaired soon; None if its record is intact."""
        gap = self._find_gap(txid)
        return None if gap is None else self._requester.is_given_up(gap.first)

    def _find_gap(self, txid: int) -> RecordGap | None:
        gaps = self._requester.missing_items.values()
        return next((gap for gap in gaps if gap.first <= txid <= gap.last), None)

    def update_peers(self) -> None:
        """Update the requests after a link has been opened or closed."""
        self._requester.update_peers()

    # requests

    def _request_entries(self, request: PeerRequest[RecordGap]) -> None:
        gap = request.item
        info_request = EntryInfoRequest(gap.first, gap.last, [*gap.before], [*gap.behind])
        self._links.send_message(request.peer, SUBJECT, _ENCODER.encode(info_request))

    def _report_lost(self) -> None:
        lost = [gap for gap in self._requester.missing_items.values() if self.is_lost(gap.first)]
        for gap in lost:
            if gap.first not in self._logged_gaps:
                self._logged_gaps.add(gap.first)
                self._log_lost_gap(gap)
        if lost:
            self._on_given_up()

    def _log_lost_gap(self, gap: RecordGap) -> None:
        entries = f"{gap.last - gap.first + 1} entries, from {gap.first} on"
        problem = "no connected instance has entries that fit the remaining data"
        if not (gap.before or gap.behind):
            problem = "no entries around them are left by which another instance could find them"
        self._event_log.emit("1E-0023", entries=entries, problem=problem)

    def _receive_message(self, peer: str, body: bytes) -> None:
        try:
            message = _DECODER.decode(body)
        except MSGPACK_ERRORS:
            return  # malformed: the requester times out
        if isinstance(message, EntryInfoRequest):
            self._send_entries(peer, message)
        else:
            self._process_response(peer, message)

    def _process_response(self, peer: str, message: EntryInfoResponse) -> None:
        """Process the response of another instance."""
        pending_request, link = self._requester.pending_request, self._links.peers.get(peer)
        if (
            pending_request is None
            or link is None
            or (peer, message.first) != (pending_request.peer, pending_request.key)
        ):
            return
        gap = pending_request.item
        hop = Hop(peer, link.description.group)
        replacements = [
            replacement
            for info in message.entries
            if (replacement := _replacement_entry(info, hop, self._instance, gap)) is not None
            and not 0
            < self._dedup_window.highest_sequence(replacement.client)
            < replacement.sequence  # it will be resent
        ]
        if not replacements:
            self._requester.finish_request()
            return
        self._requester.start_repair()
        restore = partial(_restore, self._log.journal, gap, replacements)
        # An entry that has been resent until now can be found when it is on stable storage.
        self._log.when_durable(
            lambda: self._log.run_on_worker(
                restore, lambda done: self._finish_repair(pending_request, done)
            )
        )

    def _finish_repair(self, request: PeerRequest[RecordGap], result: _RestoreResult) -> None:
        """Process the result of a repair, which may have rebuilt nothing."""
        gap, peer = request.item, request.peer
        self._requester.end_repair(gap.first)
        if result.problem:
            entries = f"{gap.last - gap.first + 1} entries, from {gap.first} on"
            self._event_log.emit("1E-0023", entries=entries, problem=result.problem)
        if result.restored:
            self._requester.remove_item(gap.first)
            for (
                remaining_gap
            ) in result.remaining_gaps:  # it is not known yet which peers have these
                self._requester.add_item(remaining_gap.first, remaining_gap)
        for txid, client, sequence in result.restored:
            highest = self._dedup_window.highest_sequence(client)
            if highest:  # from now on, a resent copy is a duplicate
                self._dedup_window.record_sequences(client, highest, (sequence,))
            name = f"{client}|{sequence}|"
            self._event_log.emit("1E-0022", txid=txid, name=name, other=peer)
            self._on_repaired(txid)
        self._requester.request_next()

    # responses

    def _send_entries(self, peer: str, request: EntryInfoRequest) -> None:
        """Describe the entries recorded here that the other instance may have."""

        def find() -> list[_CandidateEntry]:
            try:
                return _find_candidates(self._log.journal, request, peer)
            except (OSError, JournalUnreadableError):
                return []

        def make_response(candidates: list[_CandidateEntry]) -> bytes:
            allowed: dict[tuple[JournalTopic, str], bool] = {}
            entries: list[EntryInfo] = []
            for candidate in candidates:
                key = candidate.topic, candidate.path
                if key not in allowed:
                    allowed[key] = self._links.may_receive(peer, *key)
                if allowed[key]:
                    entries.append(candidate.description)
            return _ENCODER.encode(EntryInfoResponse(request.first, _limit_message_size(entries)))

        self._responder.send_response(peer, find, make_response)


class _CandidateEntry(NamedTuple):
    """An entry that a request may refer to.

    Attributes:
        topic: its topic.
        path: the instances that it has passed through.
        description: its description.
    """

    topic: JournalTopic
    path: str
    description: EntryInfo


class _RestoreResult(NamedTuple):
    """Result for a gap: txid, identity and number of entries; remaining gaps; a problem."""

    restored: Sequence[tuple[int, int, int]] = ()
    remaining_gaps: Sequence[RecordGap] = ()
    problem: str = ""


def _restore(
    journal: Journal, gap: RecordGap, replacements: Sequence[ReplacementEntry]
) -> _RestoreResult:
    try:
        rebuilt = journal.record_repair.rebuild_records(
            gap,
            replacements,
            lambda replacement: journal.find(replacement.client, replacement.sequence) is not None,
        )
        remaining_gaps = [
            remaining_gap
            for remaining_gap in journal.record_repair.find_gaps(gap.first)
            if remaining_gap.first <= gap.last
        ]
    except OSError as problem:
        return _RestoreResult(problem=reason(problem))
    restored = [
        (txid, replacement.client, replacement.sequence)
        for txid, replacement in sorted(rebuilt.items())
    ]
    return _RestoreResult(restored, remaining_gaps)


def _replacement_entry(
    info: EntryInfo, hop: Hop, instance: str, gap: RecordGap
) -> ReplacementEntry | None:
    """Return the entry that another instance describes, as it would be in the log of this one.

    Args:
        info: its description.
        hop: the other instance.
        instance: this one.
        gap: the requested entries.
    """
    topic, origin = unpack_topic(info.topic), unpack_origin(info.origin)
    if topic is None or origin is None or info.kind not in EVENTS:
        return None
    path = [*hops(origin.path), hop]
    names = [path_hop.name for path_hop in path]
    if instance in names:
        path = path[: names.index(instance)]
    txid, source_txid = 0, info.source_txid
    if not path:
        txid = _txid_of(info.client, info.sequence, source_txid, instance)
        if not gap.first <= txid <= gap.last:
            return None
        source_txid = 0 if txid == source_txid else source_txid
    text = ""
    for path_hop in path:
        text = append_hop(text, path_hop)
    return ReplacementEntry(
        txid,
        info.client,
        info.sequence,
        source_txid,
        client_hash(path[-1].name) if path else 0,
        info.kind,
        info.sow_key,
        info.expiration,
        info.body_length,
        info.extras_length,
        info.checksum,
        topic,
        partial(_pick_origin, JournalOrigin(origin.auth_id, text)),
    )


def _txid_of(client: int, sequence: int, source_txid: int, instance: str) -> int:
    """Return the txid of an entry at the instance where it was published."""
    return sequence if is_identity_made_by(instance, client, source_txid) else source_txid


def _pick_origin(origin: JournalOrigin, origins: Iterable[JournalOrigin]) -> JournalOrigin | None:
    """Return the origin of an entry, if present, or one that began at the same instance."""
    similar = None
    first = hops(origin.path)[:1]
    for candidate in origins:
        if candidate == origin:
            return candidate
        if (
            origin.path
            and candidate.auth_id == origin.auth_id
            and hops(candidate.path)[:1] == first
        ):
            similar = candidate
    return similar


def _find_candidates(
    journal: Journal, request: EntryInfoRequest, requester: str
) -> list[_CandidateEntry]:
    """Return the entries that a request may refer to, the likeliest first."""
    low = _find_any(journal, request.before[:_MAX_NEIGHBOURS])
    high = _find_any(journal, request.behind[:_MAX_NEIGHBOURS])
    if low is None and high is None:
        return []
    low, high = low or high or 0, high or low or 0
    low, high = min(low, high), min(max(low, high), low + _MAX_GAP_ENTRIES)
    span = LogSpan(low - _MARGIN, last_txid=min(high + _MARGIN, journal.durable_txid))
    cursor = journal.replay(span, kinds=EVENTS)
    sure: list[_CandidateEntry] = []
    likely: list[tuple[int, _CandidateEntry]] = []
    while not cursor.is_caught_up:
        for batch in cursor.read_entry_range(_BATCH_SIZE).batches():
            path = hops(batch.origin.path)
            is_published_there = bool(path) and path[0].name == requester
            for info, txid in _describe_entries(batch):
                candidate = _CandidateEntry(batch.topic, batch.origin.path, info)
                if not is_published_there:
                    likely.append((max(low - txid, txid - high, 0), candidate))
                elif (
                    request.first
                    <= _txid_of(info.client, info.sequence, info.source_txid, requester)
                    <= (request.last)
                ):
                    sure.append(candidate)
    likely.sort(key=lambda pair: pair[0])
    return [*sure, *(info for _, info in likely)]


def _find_any(journal: Journal, names: Iterable[tuple[int, int]]) -> int | None:
    txids = (journal.find(client, sequence) for client, sequence in names)
    return next((txid for txid in txids if txid is not None), None)


def _describe_entries(batch: EntryBatch) -> Iterable[tuple[EntryInfo, int]]:
    topic, origin = pack_topic(batch.topic), pack_origin(batch.origin)
    for row in batch.rows:
        is_published_here = not batch.origin.path and row[SEQUENCE] != row[TXID]
        description = EntryInfo(
            row[CLIENT],
            row[SEQUENCE],
            row[TXID] if is_published_here else row[SOURCE_TXID],
            int(JournalEntryKind(row[KIND])),
            row[SOW_KEY],
            row[EXPIRATION],
            row[BODY_LENGTH],
            row[EXTRAS_LENGTH],
            row[BODY_CRC],
            topic,
            origin,
        )
        yield description, row[TXID]


def _limit_message_size(descriptions: Sequence[EntryInfo]) -> list[EntryInfo]:
    size, fitting = 0, []
    for description in descriptions:
        size += len(_ENCODER.encode(description))
        if size > _MAX_MESSAGE_SIZE:
            break
        fitting.append(description)
    return fitting
