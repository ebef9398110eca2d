"""Repair of damaged records from accounts of other instances.

No field of a damaged record can be used. But its place gives the txid. The position of its body is
known if the records of its neighbours are intact, since bodies lie back to back. And the bytes of
the body are hardly damaged at the same time. So an account of the entry from another instance can
be checked: if its length and checksum fit the body in the file, its other fields are accepted, and
the record is rebuilt.

For several consecutive damaged records, the joint range of their bodies is known. They are
separated from both ends inwards, by the lengths in the accounts, each of which is checked.

An account has no time of recording in this log; the repair takes the time of the entry before. Nor
does it have the flag for late entries, which is set for all that came from other instances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from server.storage.journal.format.entry import EVENTS, JournalOrigin, JournalTopic
from server.storage.journal.format.layout import (
    BODY_LENGTH,
    BODY_START,
    CLIENT,
    EXTRAS_LENGTH,
    HEAD,
    KIND,
    LAG_UNKNOWN,
    LATE_ENTRY_FLAG,
    PAGE,
    RECORD_SIZE,
    SEQUENCE,
    TIMESTAMP,
    crc32c,
    with_checksum,
)
from server.storage.journal.format.records import CHUNK, read_rows

if TYPE_CHECKING:
    from server.storage.journal.files import FileTable, JournalFile, SourceCache
    from server.storage.journal.format.layout import EntryRow
    from server.storage.journal.format.records import FileDefinitions
    from server.storage.journal.repair.index_rebuild import IndexRebuild
    from server.storage.journal.storage import ByteSource, Disk

MAX_RECORDS_PER_REPAIR: Final = 256
"""Limit of consecutive damaged records that are repaired together."""

_NEIGHBOURS: Final = 8  # entries on each side, by which other instances can find the place


class RecordGap(NamedTuple):
    """Consecutive entries with damaged records.

    Attributes:
        first: txid of the first.
        last: txid of the last.
        before: identity and number of some entries before them, the nearest first.
        behind: identity and number of some entries after them.
    """

    first: int
    last: int
    before: tuple[tuple[int, int], ...]
    behind: tuple[tuple[int, int], ...]


class ReplacementEntry(NamedTuple):
    """The fields of an entry from another instance, translated into those of this log.

    Attributes:
        txid: the txid that the entry must have; 0 if it is not known.
        client: the identity of its publisher.
        sequence: its publisher's number.
        source_txid: its txid where it was published first, see `JournalEntry`.
        source: hash of the instance that it came from, 0 for none.
        kind: the kind of entry.
        sow_key: its SOW key.
        expiration: its lifetime in seconds.
        body_length: bytes of its body.
        extras_length: bytes of the extras after it.
        checksum: checksum of both.
        topic: the topic that it was published to.
        select_origin: selects its user and replication path, or a substitute, from known origins.
    """

    txid: int
    client: int
    sequence: int
    source_txid: int
    source: int
    kind: int
    sow_key: int
    expiration: int
    body_length: int
    extras_length: int
    checksum: int
    topic: JournalTopic
    select_origin: Callable[[Iterable[JournalOrigin]], JournalOrigin | None]

    @property
    def length(self) -> int:
        """The bytes of body and extras."""
        return self.body_length + self.extras_length


class _BodyRange(NamedTuple):
    """The range of the bodies of damaged records, and the time of their entries."""

    start: int
    end: int
    timestamp: int


class JournalRecordRepair:
    """Finds and repairs damaged records of a log.

    Args:
        table: the files of the log.
        cache: opens them.
        disk: writes to them.
        durable_txid: returns the txid of the last entry on stable storage.
        index_rebuild: rebuilds the indexes of changed files.
    """

    def __init__(
        self,
        table: FileTable,
        cache: SourceCache,
        disk: Disk,
        durable_txid: Callable[[], int],
        index_rebuild: IndexRebuild,
    ) -> None:
        self._table: Final = table
        self._cache: Final = cache
        self._disk: Final = disk
        self._durable_txid: Final = durable_txid
        self._index_rebuild: Final = index_rebuild

    def find_gaps(self, txid: int) -> list[RecordGap]:
        """Find the damaged records among some thousand from an entry on in the same file.

        Those of compressed files are left out, for they cannot be replaced.

        Raises:
            OSError: the file cannot be read.
        """
        file = self._table.find_repairable(txid)
        if file is None:
            return []
        rows = _RecordReader(self._cache.open(file.path), file, self._durable_txid())
        start = txid - file.first_txid
        gaps: list[RecordGap] = []
        for number in range(start, min(start + CHUNK, rows.count)):
            if rows[number] is not None:
                continue
            damaged_txid = file.first_txid + number
            if (
                gaps
                and gaps[-1].last == damaged_txid - 1 < gaps[-1].first + MAX_RECORDS_PER_REPAIR - 1
            ):
                gaps[-1] = gaps[-1]._replace(last=damaged_txid)
            else:
                gaps.append(RecordGap(damaged_txid, damaged_txid, (), ()))
        return [self._add_neighbours(gap, file, rows) for gap in gaps]

    @staticmethod
    def _add_neighbours(gap: RecordGap, file: JournalFile, rows: _RecordReader) -> RecordGap:
        def names(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
            near = (rows[number] for number in numbers if 0 <= number < rows.count)
            events = [row for row in near if row is not None and row[KIND] in EVENTS]
            return tuple((row[CLIENT], row[SEQUENCE]) for row in events[:_NEIGHBOURS])

        first, last = gap.first - file.first_txid, gap.last - file.first_txid
        before = names(range(first - 1, first - 1 - 4 * _NEIGHBOURS, -1))
        return gap._replace(before=before, behind=names(range(last + 1, last + 4 * _NEIGHBOURS)))

    def rebuild_records(
        self,
        gap: RecordGap,
        accounts: Sequence[ReplacementEntry],
        is_elsewhere: Callable[[ReplacementEntry], bool],
    ) -> dict[int, ReplacementEntry]:
        """Rebuild records from accounts that pass the checks, on stable storage.

        Args:
            gap: the damaged records.
            accounts: accounts of entries; the better ones first.
            is_elsewhere: predicate: true for an entry that is elsewhere in the log, so that it
                cannot be one of these.

        Returns:
            By txid, the entries with repaired records.

        Raises:
            OSError: they cannot be written.
        """
        file = self._table.find_repairable(gap.first)
        if file is None:
            return {}
        source = self._cache.open(file.path)
        rows = _RecordReader(source, file, self._durable_txid())
        first, last = gap.first - file.first_txid, gap.last - file.first_txid
        if any(rows[number] is not None for number in range(first, last + 1)):
            return {}  # the gap has changed since `find_gaps`
        body_range = _body_range(rows, file, first, last)
        definitions = file.read_definitions(source)
        topics = {topic: number for number, topic in definitions.topics.items()}
        candidates = [
            account
            for account in accounts
            if account.topic in topics and _origin(account, definitions) is not None
        ]
        matches = _match_accounts(gap, body_range, candidates, source, is_elsewhere)
        if not matches:
            return {}
        records = [
            (
                source.size - RECORD_SIZE * (txid - file.first_txid + 1),
                _record(txid, start, body_range.timestamp, account, topics, definitions),
            )
            for txid, start, account in matches
        ]
        self._index_rebuild.remove_indexes(
            file.number
        )  # first: indexes must not outlive their records
        self._disk.overwrite(file.path, records)
        self._index_rebuild.queue_rebuild(file.number)
        return {txid: account for txid, _, account in matches}


class _RecordReader:
    """The records of a file, by number, read some thousand at a time."""

    def __init__(self, source: ByteSource, file: JournalFile, durable: int) -> None:
        end = durable + 1 if file.end_txid is None else file.end_txid
        self.count = end - file.first_txid
        self._source = source
        self._first_txid = file.first_txid
        self._chunks: dict[int, Sequence[EntryRow | None]] = {}

    def __getitem__(self, number: int) -> EntryRow | None:
        chunk, index = divmod(number, CHUNK)
        rows = self._chunks.get(chunk)
        if rows is None:
            start = chunk * CHUNK
            stop = min(start + CHUNK, self.count)
            rows = self._chunks[chunk] = read_rows(self._source, self._first_txid, start, stop)
        return rows[index] if index < len(rows) else None


def _body_range(rows: _RecordReader, file: JournalFile, first: int, last: int) -> _BodyRange:
    """Return the range of the bodies of some entries; an unknown bound is 0."""
    before = rows[first - 1] if first else None
    after = rows[last + 1] if last + 1 < rows.count else None
    start = PAGE if not first else 0
    if before is not None:
        start = before[BODY_START] + before[BODY_LENGTH] + before[EXTRAS_LENGTH]
    end = 0
    if after is not None:
        end = after[BODY_START]
    elif last + 1 == rows.count and file.seal is not None:
        end = file.seal.bodies_end
    timestamps = [row[TIMESTAMP] for row in (before, after) if row is not None]
    return _BodyRange(start, end, timestamps[0] if timestamps else file.created)


def _match_accounts(
    gap: RecordGap,
    body_range: _BodyRange,
    accounts: Sequence[ReplacementEntry],
    source: ByteSource,
    is_elsewhere: Callable[[ReplacementEntry], bool],
) -> list[tuple[int, int, ReplacementEntry]]:
    """Match accounts to the entries of a gap; return txid, offset of the body, and account."""
    remaining = list(accounts)

    def fits(account: ReplacementEntry, txid: int, start: int) -> bool:
        if account.txid not in (0, txid) or start < PAGE or not (account.length or account.txid):
            return False
        is_intact = crc32c(source.read(start, account.length)) == account.checksum
        return is_intact and not is_elsewhere(account)

    def best(accounts: Iterable[ReplacementEntry]) -> ReplacementEntry | None:
        # A short body may be the beginning, or the end, of a longer one.
        return max(accounts, key=lambda candidate: (candidate.txid, candidate.length), default=None)

    matches: list[tuple[int, int, ReplacementEntry]] = []
    first, last, start, end = gap.first, gap.last, body_range.start, body_range.end
    while start and first <= last:
        match = best(candidate for candidate in remaining if fits(candidate, first, start))
        if match is None:
            break
        remaining.remove(match)
        matches.append((first, start, match))
        first, start = first + 1, start + match.length
    if end and start > end:
        return []  # some of the matches must be wrong
    while end and last >= first:
        match = best(
            candidate for candidate in remaining if fits(candidate, last, end - candidate.length)
        )
        if match is None or end - match.length < start:
            break
        remaining.remove(match)
        last, end = last - 1, end - match.length
        matches.append((last + 1, end, match))
    if first == last and start and end:
        # Its body is damaged as well: `body_repair` repairs that, once its record is known.
        for candidate in remaining:
            if (
                candidate.txid == first
                and candidate.length == end - start
                and not is_elsewhere(candidate)
            ):
                return [*matches, (first, start, candidate)]
    return matches


def _origin(account: ReplacementEntry, definitions: FileDefinitions) -> int | None:
    origin = account.select_origin(definitions.origins.values())
    return next((number for number, one in definitions.origins.items() if one == origin), None)


def _record(
    txid: int,
    start: int,
    timestamp: int,
    account: ReplacementEntry,
    topics: dict[JournalTopic, int],
    definitions: FileDefinitions,
) -> bytes:
    return with_checksum(
        HEAD.pack(
            txid,
            timestamp,
            account.client,
            account.sequence,
            account.source_txid,
            account.source,
            account.sow_key,
            start,
            account.body_length,
            account.extras_length,
            topics[account.topic],
            _origin(account, definitions) or 0,
            account.expiration,
            account.checksum,
            account.kind,
            LATE_ENTRY_FLAG if account.source else 0,
            LAG_UNKNOWN,
        )
    )
