"""Where a bookmark subscription has got to, and which messages it has had already.

A bookmark is `publisher|sequence|`, two numbers: for one publisher, a message with a higher
sequence is a later one. Between publishers bookmarks have no order: each server has its own. What
comes twice is recognised by publisher and sequence and dropped (AMPS User Guide, Replaying Messages
with Bookmark Subscription). So a subscription may resume too early, and never too late. It offers
several points, of which a server takes the earliest that it knows:

- the message that came last, behind which the same server goes on;
- the *safe* point, a message that is on every replica: `persisted` acknowledgements have it. It may
  be ahead of a slow replay, so that it does not count by itself;
- *places*, one for each log, as an acknowledgement has told them: what stands in that log before
  its place has come. Only they are exact at another server, where messages that never came may
  stand before the one that came last;
- for a server whose log has no place yet, the last message of each publisher that was heard lately.

Where a server knows a place in its own log, nothing else counts there.

A message may also come late, behind later ones of its publisher: that has moved from one server to
another, and what it had published before is replicated afterwards. So the numbers that have been
left out are remembered, as far as they go: one of them is new. So are those before the first that
came.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from itertools import islice
from typing import Final, NamedTuple, Protocol, Self

from amperage.wire.bookmarks import EPOCH, NOW

MOST_RECENT: Final = "recent"
"""Where the subscription of the same id stood last, or `EPOCH`; this is never sent to a server."""

_RANGE: Final = re.compile(r"[\[(].*:(?P<end>[^:]*[\])])")
"""A replay with a stopping point: `[begin:end)`."""

_PLACES: Final = re.compile(r"(?:^|,)\s*places=\[(?P<places>[\d|,]+)\]")

_PUBLISHERS_KEPT: Final = 65_536
"""Of more publishers than that, those that have been silent longest are forgotten."""

_HOLES_OF_ONE: Final = 1_000
_HOLES_KEPT: Final = 200_000
"""Of what has been left out of a publisher, and of all, the rest is forgotten: it counts as had. A
filter leaves out much that never comes."""

_LARGEST: Final = 2**64

_MOST_PLACES: Final = 16
"""Logs of which the place is remembered."""

_MOST_NAMED: Final = 256
"""Publishers whose last messages are named, at most."""

_LATELY: Final = 10_000
"""Messages for which a publisher counts as heard lately, or twice as many."""


class Had(NamedTuple):
    """What there is of one publisher.

    Attributes:
        publisher: who.
        latest: the highest number that came.
        holes: the first and the last number of what was left out below that, ascending.
    """

    publisher: str
    latest: int
    holes: tuple[tuple[int, int], ...] = ()


class SafePoint(NamedTuple):
    """Where a subscription can go on, as an acknowledgement has told.

    Attributes:
        behind: the bookmark of the message that had come last by then; None if there was none.
        bookmark: of a message that is on every replica; None if none is known.
        places: one bookmark for each log; its publisher stands for the log.
    """

    behind: str | None
    bookmark: str | None
    places: tuple[str, ...] = ()


def places_in(options: str | None) -> tuple[str, ...]:
    """The places that the options of an acknowledgement tell; see `SafePoint`."""
    match = _PLACES.search(options or "")
    return () if match is None else tuple(match["places"].split(","))


class BookmarkTrail:
    """The progress of one subscription.

    Args:
        start: the bookmark that the subscription began with.
        is_whole: whether all that came is known; if not, what is before the first known message of
            a publisher counts as had.

    Attributes:
        has_records: whether all records have come, for a subscription that began with a query.
        on_done: told the bookmark of each message that the application has dealt with; for a store
            that keeps that.
        on_safe: told of each point where the subscription can go on when all that came before it
            has been dealt with; for such a store, too.
    """

    __slots__ = (
        "_heard",
        "_heard_before",
        "_holes",
        "_holes_kept",
        "_is_whole",
        "_latest",
        "_places",
        "_received",
        "_safe",
        "_until_forgotten",
        "has_records",
        "on_done",
        "on_safe",
        "start",
    )

    def __init__(self, start: str, *, is_whole: bool = True) -> None:
        self.start: Final = start
        self._is_whole = is_whole
        self._received: str | None = None
        self._safe: str | None = None
        self._places: dict[str, int] = {}  # log -> txid; the one told last comes last
        self.has_records = False
        self.on_done: Callable[[str], None] | None = None
        self.on_safe: Callable[[SafePoint], None] | None = None
        self._heard: set[str] = set()  # lately
        self._heard_before: set[str] = set()
        self._until_forgotten = _LATELY
        self._latest: dict[str, int] = {}  # publisher -> sequence; the last heard of comes last
        # of publishers, the first and the last number of what has been left out, ascending
        self._holes: dict[str, list[tuple[int, int]]] = {}
        self._holes_kept = 0

    @property
    def resume_from(self) -> str:
        """The bookmark, or list of them, to resume with."""
        points = [f"{log}|{txid}|" for log, txid in self._places.items()]
        if self._safe is not None:
            points.append(self._safe)
        limits = _RANGE.fullmatch(self.start)
        if self._received is None:
            # A replay begins where it was to begin; but "now" was when it was first asked for.
            if limits is not None or not (self._places or (points and self.start == NOW)):
                return self.start
            if self.start != NOW:
                points.append(self.start)
        else:
            points += self._last_of_each()
            points.append(self._received)
        text = ",".join(dict.fromkeys(points))
        return text if limits is None else f"({text}:{limits['end']}"

    def _last_of_each(self) -> list[str]:
        """The last messages of the publishers that were heard lately."""
        lately = self._heard | self._heard_before
        last = islice(reversed(self._latest.items()), _MOST_NAMED)
        return [f"{name}|{sequence}|" for name, sequence in last if name in lately]

    def is_new(self, bookmark: str) -> bool:
        """Take note of a message.

        Args:
            bookmark: its bookmark.

        Returns:
            Whether it has not come before.
        """
        publisher, _, rest = bookmark.partition("|")
        number = rest.partition("|")[0]
        if number.isdecimal():
            sequence = int(number)
            known = self._latest.pop(publisher, -1)
            self._latest[publisher] = max(known, sequence)
            if sequence <= known and not self._is_late(publisher, sequence):
                return False
            if known < 0:
                self._forget_the_silent()
                known = 0 if self._is_whole else sequence
            if known < sequence - 1:
                self._leave_out(publisher, known + 1, sequence - 1)
            self._heard.add(publisher)
            self._until_forgotten -= 1
            if not self._until_forgotten:
                self._heard_before, self._heard = self._heard, set()
                self._until_forgotten = _LATELY
        self._received = bookmark
        return True

    def _forget_the_silent(self) -> None:
        if len(self._latest) > _PUBLISHERS_KEPT:
            silent = next(iter(self._latest))
            self._forget_holes(silent)
            del self._latest[silent]

    def _is_late(self, publisher: str, sequence: int) -> bool:
        """Whether a message is one that had been left out; from then on it is not."""
        holes = self._holes.get(publisher, [])
        place = bisect_right(holes, (sequence, _LARGEST)) - 1
        if place < 0 or holes[place][1] < sequence:
            return False
        first, last = holes[place]
        parts = [(first, sequence - 1), (sequence + 1, last)]
        left = [(begin, end) for begin, end in parts if begin <= end]
        holes[place : place + 1] = left
        self._holes_kept += len(left) - 1
        return True

    def _leave_out(self, publisher: str, first: int, last: int) -> None:
        """Remember numbers that have been left out, within limits."""
        holes = self._holes[publisher] = self._holes.pop(publisher, [])  # now it is the last one
        holes.append((first, last))
        self._holes_kept += 1
        if len(holes) > 2 * _HOLES_OF_ONE:
            self._holes_kept -= len(holes) - _HOLES_OF_ONE
            del holes[:-_HOLES_OF_ONE]
        if self._holes_kept > _HOLES_KEPT:
            self._forget_holes(next(iter(self._holes)))

    def _forget_holes(self, publisher: str) -> None:
        """What a publisher has left out counts as had from now on."""
        self._holes_kept -= len(self._holes.pop(publisher, ()))

    def persisted(self, bookmark: str | None, places: Sequence[str] = ()) -> None:
        """Take note of what an acknowledgement tells.

        Args:
            bookmark: the server's log is safe everywhere up to there, if it says so.
            places: one for each log; see `SafePoint`.
        """
        point = SafePoint(self._received, bookmark, tuple(places))
        self.can_go_on(point)
        if self.on_safe is not None:
            self.on_safe(point)

    def can_go_on(self, point: SafePoint) -> None:
        """All that came before a point counts as had: the subscription can go on there."""
        if point.bookmark is not None:
            self._safe = point.bookmark
        for place in point.places:
            log, _, txid = place.rstrip("|").partition("|")
            if log.isdecimal() and txid.isdecimal():
                self._places[log] = max(self._places.pop(log, 0), int(txid))
        while len(self._places) > _MOST_PLACES:
            del self._places[next(iter(self._places))]

    # What a store keeps of it

    @property
    def received(self) -> str | None:
        """The bookmark of the message that came last."""
        return self._received

    @property
    def safe_point(self) -> SafePoint:
        """Where it can go on."""
        places = (f"{log}|{txid}|" for log, txid in self._places.items())
        return SafePoint(self._received, self._safe, tuple(places))

    def had(self) -> Iterator[Had]:
        """What there is of each publisher; who was heard last comes last."""
        for publisher, latest in self._latest.items():
            yield Had(publisher, latest, tuple(self._holes.get(publisher, ())))

    def restore(self, had: Had) -> None:
        """Have what there was of a publisher, which counts as heard lately."""
        self._heard.add(had.publisher)
        self._latest[had.publisher] = had.latest
        if had.holes:
            self._holes[had.publisher] = list(had.holes)
            self._holes_kept += len(had.holes)

    def restore_last(self, bookmark: str) -> None:
        """Have got the last message, of whose publisher it is known already."""
        self._received = bookmark

    def copy(self) -> Self:
        """Another trail of the same subscription, which nobody follows yet."""
        other = copy(self)
        other._places = dict(self._places)  # noqa: SLF001 - of the same class
        other._latest = dict(self._latest)  # noqa: SLF001 - as above
        other._holes = {one: list(holes) for one, holes in self._holes.items()}  # noqa: SLF001 - as above
        other._heard, other._heard_before = set(self._heard), set(self._heard_before)  # noqa: SLF001 - as above
        other.on_done = other.on_safe = None
        return other


class BookmarkStorage(Protocol):
    """What a client wants of a bookmark store.

    `BookmarkStore` has it in memory, `FileBookmarkStore` in a file. A store that wants to know what
    the application has dealt with sets `on_done` and `on_safe` of the trails that it keeps.
    """

    def trail(self, sub_id: str | None, bookmark: str) -> BookmarkTrail:
        """The trail for a subscription: a new one, or that of the id for `MOST_RECENT`."""

    def keep(self, sub_id: str, trail: BookmarkTrail) -> None:
        """Remember the trail of a subscription that is placed."""


class BookmarkStore:
    """The trails of a client's bookmark subscriptions, by subscription id, in memory."""

    def __init__(self) -> None:
        self._trails: dict[str, BookmarkTrail] = {}

    def most_recent(self, sub_id: str) -> str:
        """The bookmark, or list of them, with which the subscription would resume."""
        trail = self._trails.get(sub_id)
        return EPOCH if trail is None else trail.resume_from

    def trail(self, sub_id: str | None, bookmark: str) -> BookmarkTrail:
        """The trail for a subscription: a new one, or that of the id for `MOST_RECENT`.

        Args:
            sub_id: the id; None if it is to be made up.
            bookmark: where the caller wants the subscription to begin.

        Returns:
            The trail, which says where to begin. It is not kept yet.
        """
        if bookmark != MOST_RECENT:
            return BookmarkTrail(bookmark)
        return self._trails.get(sub_id or "") or BookmarkTrail(EPOCH)

    def keep(self, sub_id: str, trail: BookmarkTrail) -> None:
        """Remember the trail of a subscription that is placed."""
        self._trails[sub_id] = trail
