"""Rebuilds damaged records of the log from copies of the same entries at other instances.

    a gap in the log -> ask one instance after the other for its entries between the entries before
    and behind the gap -> accept those that match the remaining bodies
    (`server.storage.journal.repair.record_repair`)

The lost entries are unknown. Another instance locates the gap in its own log by the bookmarks of
the neighbouring entries, which the request has. For entries that were published at the asking
instance it knows the txid there, and need not guess; of the others it sends those that lie between
the neighbours, or close to them. The asking instance takes those that it has nowhere else, and that
fit.

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
from server.util.msgpack_errors import MSGPACK_ERRORS

if TYPE_CHECKING:
    from server.replication.core import DedupWindow
    from server.replication.links.context import PeerLinks
    from server.storage.journal import EntryBatch, Journal, RecordGap
    from server.topics.transaction_log import TransactionLog
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

SUBJECT: Final = "records"
"""Subject of the messages of this module."""

_MAX_NAMES: Final = 64
"""Neighbours of a gap that are sent, for each side."""

_MAX_MESSAGE_SIZE: Final = 48_000
"""Bytes of descriptions in one message."""

_MARGIN: Final = 1_024
"""Entries read on both sides of the place: the order of the entries may differ."""

_MAX_GAP_ENTRIES: Final = 16_384
"""Entries that may lie between the neighbours of a gap."""

_BATCH_SIZE: Final = 256


class EntryInfoRequest(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1
):
    """A request to describe the entries of a gap.

    Attributes:
        first: the txid of the first entry, at the instance that asks.
        last: that of the last.
        before: identity and number of some entries before them, the closest one first.
        behind: the same of some entries behind them.
    """

    first: int
    last: int
    before: list[tuple[int, int]]
    behind: list[tuple[int, int]]


class EntryInfo(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An entry as recorded by the instance that was asked; see `ReplacementEntry`.

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


class EntryInfoResponse(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2
):
    """The answer to `EntryInfoRequest`.

    Attributes:
        first: see `EntryInfoRequest`.
        entries: the entries; those published at the asking instance come first.
    """

    first: int
    entries: list[EntryInfo]


_RecordRepairMessage: TypeAlias = EntryInfoRequest | EntryInfoResponse
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[_RecordRepairMessage]] = msgspec.msgpack.Decoder(
    _RecordRepairMessage
)


class PeerRecordRepair:
    """Requests damaged records from other instances, and answers their requests.

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
        links: PeerLinks,
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

    # Damaged records.

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
        """Note that a link has been opened or closed."""
        self._requester.update_peers()

    # Requests.

    def _request_entries(self, asked: PeerRequest[RecordGap]) -> None:
        gap = asked.item
        want = EntryInfoRequest(gap.first, gap.last, [*gap.before], [*gap.behind])
        self._links.send_message(asked.peer, SUBJECT, _ENCODER.encode(want))

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
        problem = "no instance that is connected has any that fit what is left of them"
        if not (gap.before or gap.behind):
            problem = "nothing around them is left by which another instance could find them"
        self._event_log.emit("1E-0023", entries=entries, problem=problem)

    def _receive_message(self, peer: str, body: bytes) -> None:
        try:
            word = _DECODER.decode(body)
        except MSGPACK_ERRORS:
            return  # malformed: the requester times out
        if isinstance(word, EntryInfoRequest):
            self._send_entries(peer, word)
        else:
            self._process_response(peer, word)

    def _process_response(self, peer: str, word: EntryInfoResponse) -> None:
        """Process the answer of another instance."""
        pending_request, link = self._requester.pending_request, self._links.peers.get(peer)
        if (
            pending_request is None
            or link is None
            or (peer, word.first) != (pending_request.peer, pending_request.key)
        ):
            return
        if pending_request.is_answered:  # the request was repeated, and answered twice
            return
        gap = pending_request.item
        hop = Hop(peer, link.description.group)
        accounts = [
            account
            for one in word.entries
            if (account := _account(one, hop, self._instance, gap)) is not None
            and not 0
            < self._dedup_window.highest_sequence(account.client)
            < account.sequence  # it will be resent
        ]
        if not accounts:
            self._requester.finish_request()
            return
        pending_request.is_answered = True
        restore = partial(_restore, self._log.journal, gap, accounts)
        # An entry that has come again until now can be found when it is on stable storage.
        self._log.when_durable(
            lambda: self._log.run_on_worker(
                restore, lambda done: self._finish_repair(pending_request, done)
            )
        )

    def _finish_repair(self, asked: PeerRequest[RecordGap], done: _RestoreResult) -> None:
        """Process the result of a repair, which may have rebuilt nothing."""
        gap, peer = asked.item, asked.peer
        if self._requester.pending_request is asked:
            self._requester.pending_request = None
        if done.problem:
            entries = f"{gap.last - gap.first + 1} entries, from {gap.first} on"
            self._event_log.emit("1E-0023", entries=entries, problem=done.problem)
        if done.restored:
            self._requester.remove_item(gap.first)
            for one in done.remaining_gaps:  # it is not known yet which peers have these
                self._requester.add_item(one.first, one)
        for txid, client, sequence in done.restored:
            highest = self._dedup_window.highest_sequence(client)
            if highest:  # from now on, a resent copy is a duplicate
                self._dedup_window.record_sequences(client, highest, (sequence,))
            name = f"{client}|{sequence}|"
            self._event_log.emit("1E-0022", txid=txid, name=name, other=peer)
            self._on_repaired(txid)
        self._requester.request_next()

    # Answers.

    def _send_entries(self, peer: str, want: EntryInfoRequest) -> None:
        """Describe the entries recorded here that the other instance may have."""

        def find() -> list[_CandidateEntry]:
            try:
                return _found(self._log.journal, want, peer)
            except (OSError, JournalUnreadableError):
                return []

        def answer(found: list[_CandidateEntry]) -> bytes:
            allowed: dict[tuple[JournalTopic, str], bool] = {}
            entries: list[EntryInfo] = []
            for one in found:
                key = one.topic, one.path
                if key not in allowed:
                    allowed[key] = self._links.may_receive(peer, *key)
                if allowed[key]:
                    entries.append(one.description)
            return _ENCODER.encode(EntryInfoResponse(want.first, _as_many_as_fit(entries)))

        self._responder.send_response(peer, find, answer)


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
    journal: Journal, gap: RecordGap, accounts: Sequence[ReplacementEntry]
) -> _RestoreResult:
    try:
        done = journal.record_repair.rebuild_records(
            gap, accounts, lambda one: journal.find(one.client, one.sequence) is not None
        )
        left = [one for one in journal.record_repair.find_gaps(gap.first) if one.first <= gap.last]
    except OSError as problem:
        return _RestoreResult(problem=reason(problem))
    restored = [(txid, one.client, one.sequence) for txid, one in sorted(done.items())]
    return _RestoreResult(restored, left)


def _account(one: EntryInfo, hop: Hop, instance: str, gap: RecordGap) -> ReplacementEntry | None:
    """Return the entry that another instance describes, as it would be in the log of this one.

    Args:
        one: its description.
        hop: the other instance.
        instance: this one.
        gap: the entries that it has been asked about.
    """
    topic, origin = unpack_topic(one.topic), unpack_origin(one.origin)
    if topic is None or origin is None or one.kind not in EVENTS:
        return None
    path = [*hops(origin.path), hop]
    names = [each.name for each in path]
    if instance in names:
        path = path[: names.index(instance)]
    txid, source_txid = 0, one.source_txid
    if not path:
        txid = _txid_of(one.client, one.sequence, source_txid, instance)
        if not gap.first <= txid <= gap.last:
            return None
        source_txid = 0 if txid == source_txid else source_txid
    text = ""
    for each in path:
        text = append_hop(text, each)
    return ReplacementEntry(
        txid,
        one.client,
        one.sequence,
        source_txid,
        client_hash(path[-1].name) if path else 0,
        one.kind,
        one.sow_key,
        one.expiration,
        one.body_length,
        one.extras_length,
        one.checksum,
        topic,
        partial(_pick_origin, JournalOrigin(origin.auth_id, text)),
    )


def _txid_of(client: int, sequence: int, source_txid: int, instance: str) -> int:
    """Return the txid of an entry at the instance where it was published."""
    return sequence if is_identity_made_by(instance, client, source_txid) else source_txid


def _pick_origin(origin: JournalOrigin, there: Iterable[JournalOrigin]) -> JournalOrigin | None:
    """Return the origin of an entry, if present, or one that began at the same instance."""
    alike = None
    first = hops(origin.path)[:1]
    for one in there:
        if one == origin:
            return one
        if origin.path and one.auth_id == origin.auth_id and hops(one.path)[:1] == first:
            alike = one
    return alike


def _found(journal: Journal, want: EntryInfoRequest, asker: str) -> list[_CandidateEntry]:
    """Return the entries that another instance may ask about, the likeliest first."""
    low = _find_any(journal, want.before[:_MAX_NAMES])
    high = _find_any(journal, want.behind[:_MAX_NAMES])
    if low is None and high is None:
        return []
    low, high = low or high or 0, high or low or 0
    low, high = min(low, high), min(max(low, high), low + _MAX_GAP_ENTRIES)
    span = LogSpan(low - _MARGIN, last_txid=min(high + _MARGIN, journal.durable_txid))
    cursor = journal.replay(span, kinds=EVENTS)
    sure: list[_CandidateEntry] = []
    likely: list[tuple[int, _CandidateEntry]] = []
    while not cursor.is_caught_up:
        for run in cursor.read_entry_range(_BATCH_SIZE).batches():
            path = hops(run.origin.path)
            is_theirs = bool(path) and path[0].name == asker
            for one, txid in _descriptions(run):
                found = _CandidateEntry(run.topic, run.origin.path, one)
                if not is_theirs:
                    likely.append((max(low - txid, txid - high, 0), found))
                elif (
                    want.first
                    <= _txid_of(one.client, one.sequence, one.source_txid, asker)
                    <= (want.last)
                ):
                    sure.append(found)
    likely.sort(key=lambda pair: pair[0])
    return [*sure, *(one for _, one in likely)]


def _find_any(journal: Journal, names: Iterable[tuple[int, int]]) -> int | None:
    found = (journal.find(client, sequence) for client, sequence in names)
    return next((txid for txid in found if txid is not None), None)


def _descriptions(run: EntryBatch) -> Iterable[tuple[EntryInfo, int]]:
    topic, origin = pack_topic(run.topic), pack_origin(run.origin)
    for row in run.rows:
        is_ours = not run.origin.path and row[SEQUENCE] != row[TXID]
        description = EntryInfo(
            row[CLIENT],
            row[SEQUENCE],
            row[TXID] if is_ours else row[SOURCE_TXID],
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


def _as_many_as_fit(descriptions: Sequence[EntryInfo]) -> list[EntryInfo]:
    size, chosen = 0, []
    for one in descriptions:
        size += len(_ENCODER.encode(one))
        if size > _MAX_MESSAGE_SIZE:
            break
        chosen.append(one)
    return chosen
