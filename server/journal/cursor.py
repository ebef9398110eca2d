"""Replay: reading the log forward, in slices, at the reader's pace.

A cursor reads only what is on stable storage. It holds the file it is in, so that archiving,
compressing or removing that file does not disturb it, and never more than one slice of entries.
When it has caught up, the caller knows the txid up to which it has read and goes on with what comes
live from there, or keeps reading.
"""

from __future__ import annotations

import contextlib
import errno
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from operator import attrgetter
from typing import Final

import numpy as np
import numpy.typing as npt

from server.journal.bookmarks import Span
from server.journal.entry import Entry, Kind, Topic
from server.journal.errors import Event, JournalUnreadable, Notice, reason
from server.journal.files import FileTable, JournalFile, SourceCache
from server.journal.index import unpack_topic_index
from server.journal.layout import (
    BODY_LENGTH,
    CLIENT,
    EXTRAS_LENGTH,
    KIND,
    ORIGIN,
    SEQUENCE,
    TIMESTAMP,
    TOPIC,
    TXID,
    FormatError,
    Row,
)
from server.journal.naming import TOPIC_INDEX, sibling
from server.journal.records import Names, no_names, read_bodies, read_intact_bodies, read_rows
from server.journal.storage import Source
from server.journal.stretch import NOTHING, Run, Stretch, Unread

_MOST_LOOKED_AT: Final = 8192
"""Records that one call of `read` looks at when few of them are wanted."""

_FIRST: Final = attrgetter("first")
_ATTEMPTS: Final = 3  # to open a file, which may be moved between being found and being opened

Wanted = Callable[[Topic], bool]
Entries = npt.NDArray[np.uint32]


class _Wanted(dict[int, bool]):
    """Whether the topic with a number is wanted; asked once for each."""

    __slots__ = ("_names", "_wanted")

    def __init__(self, names: Names, wanted: Wanted | None) -> None:
        super().__init__()
        self._names = names
        self._wanted = wanted

    def __missing__(self, number: int) -> bool:
        topic = self._names.topics.get(number)
        answer = self._wanted is None or topic is None or self._wanted(topic)
        self[number] = answer
        return answer


@dataclass(slots=True)
class _Open:
    """The file that a cursor is in.

    Attributes:
        file: what is known of it.
        source: its bytes.
        names: its topics and origins.
        wanted: which topic numbers are wanted.
        entries: the numbers of the wanted entries, if the file has a topic index.
    """

    file: JournalFile
    source: Source
    names: Names
    wanted: _Wanted
    entries: Entries | None


class Cursor:
    """A place in the log that moves forward.

    Args:
        table: the files of the log.
        cache: opens them.
        durable: tells the last txid that may be read.
        span: what part of the log to read.
        wanted: says of a topic whether its entries are wanted; None for all.
        kinds: the kinds of entry to hand out.
        notice: told of damage.

    Attributes:
        position: the txid up to which the log has been read; what was not wanted counts as read.
        is_finished: the end of the span has been reached; nothing more will come.
    """

    def __init__(
        self,
        table: FileTable,
        cache: SourceCache,
        durable: Callable[[], int],
        span: Span,
        wanted: Wanted | None,
        kinds: frozenset[Kind],
        notice: Callable[[Notice], None],
    ) -> None:
        self.position = span.after
        self.is_finished = False
        self._table = table
        self._cache = cache
        self._durable = durable
        self._span = span
        self._wanted = wanted
        self._kinds = kinds
        self._notice = notice
        self._open: _Open | None = None
        self._check_last()

    @property
    def is_caught_up(self) -> bool:
        """Whether everything on stable storage has been read."""
        return self.is_finished or self.position >= self._durable()

    @property
    def must_decompress(self) -> bool:
        """Whether the next read has to decompress a file, which takes long."""
        place, txid = self._open, self.position + 1
        if self.is_caught_up or (place is not None and txid < (place.file.end_txid or txid + 1)):
            return False
        file = self._table.covering(txid)
        return file is not None and file.path.suffix == ".gz" and not self._cache.holds(file.path)

    def decompress(self) -> None:
        """Do that, on any thread."""
        file = self._table.covering(self.position + 1)
        with contextlib.suppress(OSError):  # the next read finds out
            if file is not None:
                self._cache.open(file.path)

    def ask_again(self) -> None:
        """Ask again which topics are wanted: that has changed."""
        self._open = None

    def read(self, most_entries: int = 256, most_bytes: int = 1 << 20) -> list[Entry]:
        """Read on.

        Args:
            most_entries: to hand out at most.
            most_bytes: of bodies after which to stop; the last body may go beyond.

        Returns:
            The next entries. None does not mean that there are no more: ask `is_caught_up`.

        Raises:
            JournalUnreadable: they cannot be read at the moment; the cursor is where it was.
        """
        return self.read_on(most_entries, most_bytes).entries()

    def read_on(self, most_entries: int, most_bytes: int = 1 << 20) -> Stretch:
        """The same, for those who do not want the entries one by one. See `read`."""
        try:
            return self._read_on(most_entries, most_bytes)
        except OSError as problem:
            raise JournalUnreadable(reason(problem)) from None

    def _read_on(self, most_entries: int, most_bytes: int) -> Stretch:
        looked_at = 0
        unread: list[Unread] = []  # of slices of which there is nothing to hand out
        while looked_at < _MOST_LOOKED_AT and not self.is_finished:
            durable = self._durable()  # before the table: what is durable has its file there
            if self.position >= durable:
                break
            place = self._enter()
            if place is None:
                break
            before = self.position
            stretch = self._read_slice(place, durable, most_entries, most_bytes)
            looked_at += max(self.position - before, 1)
            if stretch.unread:
                unread += stretch.unread
            if stretch:
                stretch.unread = unread
                return stretch
        return Stretch((), (), no_names(), unread) if unread else NOTHING

    def _enter(self) -> _Open | None:
        """The file with the next entry, opened; None if it is not there yet."""
        place = self._open
        txid = self.position + 1
        if place is not None:
            if place.file.seal is None:
                place.file = self._table.find(place.file.number) or place.file
            end = place.file.end_txid
            if place.file.first_txid <= txid and (end is None or txid < end):
                return place
        file = self._table.covering(txid)
        for _ in range(_ATTEMPTS):
            if file is None:
                return None
            try:
                source = self._cache.open(file.path)
            except FileNotFoundError:  # it has just been moved, or removed
                file = self._table.covering(txid)
                continue
            self.position = max(self.position, file.first_txid - 1)
            names = file.read_names(source)
            wanted = _Wanted(names, self._wanted)
            place = _Open(file, source, names, wanted, self._entries(file, names))
            self._open = place
            return place
        if file is None:
            return None
        raise FileNotFoundError(errno.ENOENT, "the file is not there", str(file.path))

    def _entries(self, file: JournalFile, names: Names) -> Entries | None:
        """The numbers of the wanted entries of a file with a topic index."""
        if self._wanted is None or file.seal is None:
            return None
        try:
            data = sibling(file.path, TOPIC_INDEX).read_bytes()
            postings = unpack_topic_index(data, file.seal.count)
        except (OSError, FormatError):
            return None
        chosen = [
            numbers
            for topic, numbers in postings.items()
            if topic not in names.topics or self._wanted(names.topics[topic])
        ]
        return np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, np.uint32)

    def _read_slice(
        self, place: _Open, durable: int, most_entries: int, most_bytes: int
    ) -> Stretch:
        first = place.file.first_txid
        start = self.position + 1 - first
        end = durable + 1 - first
        if place.file.end_txid is not None:
            end = min(end, place.file.end_txid - first)
        if self._span.last is not None:
            end = min(end, self._span.last + 1 - first)
        found, missing, reached = self._rows(place, start, end, most_entries)
        rows, ends = self._within_span(found)
        if ends:
            reached = rows[-1][TXID] + 1 - first if rows else start
        kinds, wanted = self._kinds, place.wanted
        chosen = [row for row in rows if row[KIND] in kinds and wanted[row[TOPIC]]]
        fitting = _fitting(chosen, most_bytes)
        if fitting < len(chosen):
            del chosen[fitting:]
            ends = False
            reached = chosen[-1][TXID] + 1 - first
        stretch = self._stretch(place, chosen)  # may fail: then nothing has been read
        if missing:
            unread = (one for one in missing if one.first < first + reached)
            stretch.unread = sorted([*stretch.unread, *unread], key=_FIRST)
        self.is_finished = ends
        self.position = first + reached - 1
        self._check_last()
        return stretch

    def _rows(
        self, place: _Open, start: int, end: int, most: int
    ) -> tuple[list[Row], list[Unread], int]:
        """The next records of a file that may be wanted, intact and not; the number up to where."""
        first, source = place.file.first_txid, place.source
        stop = min(start + most, end)
        if place.entries is not None:
            index = int(np.searchsorted(place.entries, start))
            numbers = [int(one) for one in place.entries[index : index + most] if one < end]
            if not numbers:
                return [], [], end
            if numbers[-1] - numbers[0] > 4 * len(numbers):
                single = [read_rows(source, first, one, one + 1)[0] for one in numbers]
                reached = numbers[-1] + 1 if len(numbers) == most else end
                return *self._sorted_out(place, numbers, single), reached
            start, stop = numbers[0], min(numbers[-1] + 1, numbers[0] + 4 * most)
        found = read_rows(source, first, start, stop)
        rows, unread = self._sorted_out(place, range(start, stop), found)
        if place.entries is not None and unread:
            wanted = {first + number for number in numbers}
            unread = [one for one in unread if one.first in wanted]
        return rows, unread, stop

    def _sorted_out(
        self, place: _Open, numbers: Sequence[int], found: Sequence[Row | None]
    ) -> tuple[list[Row], list[Unread]]:
        """The records that are intact, and what is to be said of the others."""
        rows = [row for row in found if row is not None]
        if len(rows) == len(numbers):
            return rows, []
        first = place.file.first_txid
        damaged = [
            first + number
            for number, row in zip_longest(numbers, found)  # fewer, where a file has been cut
            if row is None
        ]
        self._report(place, damaged[0], len(damaged))
        return rows, [Unread(txid, txid) for txid in damaged]

    def _within_span(self, rows: Sequence[Row]) -> tuple[Sequence[Row], bool]:
        """The entries that are in the span by their moments and names; whether it ends there."""
        span = self._span
        if span.before is None and not span.not_before and not span.until:
            return rows, False
        within: list[Row] = []
        for row in rows:
            if span.before is not None and row[TIMESTAMP] >= span.before:
                return within, True
            if row[TIMESTAMP] < span.not_before:
                continue
            if (row[CLIENT], row[SEQUENCE]) in span.until:
                if span.includes_end:
                    within.append(row)
                return within, True
            within.append(row)
        return within, False

    def _stretch(self, place: _Open, rows: Sequence[Row]) -> Stretch:
        """Entries with their bodies, but for those that are damaged."""
        names, intact = place.names, read_intact_bodies(place.source, rows)
        if (
            intact is not None
            and names.topics.keys() >= {row[TOPIC] for row in rows}
            and names.origins.keys() >= {row[ORIGIN] for row in rows}
        ):
            return Stretch(rows, intact, names)
        intact_rows, intact, unread = [], [], []
        for row, data in zip(rows, read_bodies(place.source, rows), strict=True):
            topic, origin = names.topics.get(row[TOPIC]), names.origins.get(row[ORIGIN])
            if data is not None and topic is not None and origin is not None:
                intact_rows.append(row)
                intact.append(data)
                continue
            run = None
            if topic is not None and origin is not None:
                run = Run(topic, origin, (row,), (b"",))
            unread.append(Unread(row[TXID], row[TXID], run))
            self._report(place, row[TXID])
        return Stretch(intact_rows, intact, names, unread)

    def _check_last(self) -> None:
        last = self._span.last
        if last is not None and self.position >= last:
            self.is_finished = True

    def _report(self, place: _Open, txid: int, count: int = 1) -> None:
        path = str(place.file.path)
        what = f"entry {txid} is" if count == 1 else f"{count} entries, from {txid} on, are"
        text = f"{path}: {what} damaged, and left out of replays"
        self._notice(Notice(Event.DAMAGED, text, path, txid))


def _fitting(rows: Sequence[Row], most_bytes: int) -> int:
    """With how many of some entries to stop, so that only the last goes beyond a size."""
    lengths = [row[BODY_LENGTH] + row[EXTRAS_LENGTH] for row in rows]
    if sum(lengths) < most_bytes:
        return len(rows)
    return bisect_left(list(accumulate(lengths)), most_bytes) + 1
