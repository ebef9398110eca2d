"""Where a bookmark subscription has got to, and which messages it has had already.

A bookmark is `publisher|sequence|`, two numbers: for one publisher, a message with a higher
sequence is a later one. Between publishers bookmarks have no order; where a subscription stands is
the bookmark of the message that came last. After a reconnect, replay resumes behind it. The server
may hand out messages twice then, for example since it is another server, where messages of
different publishers stand in another order: those are recognised by their publisher and sequence
and dropped (AMPS User Guide, Replaying Messages with Bookmark Subscription).

A message may also come late, behind later ones of its publisher: that has moved from one server to
another, and what it had published before is replicated afterwards. So the numbers that have been
left out are remembered, as far as they go: one of them is new.

The server also says from time to time up to where its log is safe on every replica: a `persisted`
acknowledgement with a bookmark. That is the point that every server knows, so it is offered to the
server beside the last message's; of several bookmarks the server takes the earliest.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from server.wire.bookmarks import EPOCH, NOW

MOST_RECENT: Final = "recent"
"""Where the subscription of the same id stood last, or `EPOCH`; this is never sent to a server."""

_RANGE: Final = re.compile(r"[\[(].*:(?P<end>[^:]*[\])])")
"""A replay with a stopping point: `[begin:end)`."""

_PUBLISHERS_KEPT: Final = 65_536
"""Of more publishers than that, those that have been silent longest are forgotten."""

_HOLES_OF_ONE: Final = 1_000
_HOLES_KEPT: Final = 200_000
"""Of what has been left out of a publisher, and of all, the rest is forgotten: it counts as had. A
filter leaves out much that never comes."""

_LARGEST: Final = 2**64


class BookmarkTrail:
    """The progress of one subscription.

    Args:
        start: the bookmark that the subscription began with.

    Attributes:
        has_records: whether all records have come, for a subscription that began with a query.
        on_done: told the bookmark of each message that the application has dealt with; for a store
            that keeps that.
    """

    __slots__ = (
        "_holes",
        "_holes_kept",
        "_latest",
        "_received",
        "_safe",
        "_start",
        "has_records",
        "on_done",
    )

    def __init__(self, start: str) -> None:
        self._start = start
        self._received: str | None = None
        self._safe: str | None = None
        self.has_records = False
        self.on_done: Callable[[str], None] | None = None
        self._latest: dict[str, int] = {}  # publisher -> sequence; the last heard of comes last
        # of publishers, the first and the last number of what has been left out, ascending
        self._holes: dict[str, list[tuple[int, int]]] = {}
        self._holes_kept = 0

    @property
    def resume_from(self) -> str:
        """The bookmark, or list of them, to resume with."""
        if self._received is None:
            # A replay begins where it was to begin; but "now" was when it was first asked for.
            return self._safe if self._safe is not None and self._start == NOW else self._start
        point = self._received
        if self._safe is not None and self._safe != point:
            point = f"{self._safe},{point}"
        limits = _RANGE.fullmatch(self._start)
        return point if limits is None else f"({point}:{limits['end']}"

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
            if 0 <= known < sequence - 1:
                self._leave_out(publisher, known + 1, sequence - 1)
            if len(self._latest) > _PUBLISHERS_KEPT:
                silent = next(iter(self._latest))
                self._forget_holes(silent)
                del self._latest[silent]
        self._received = bookmark
        return True

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

    def positions(self) -> Iterator[str]:
        """The bookmarks that make this trail again, when `is_new` of another one takes them."""
        last = self._received
        for publisher, sequence in self._latest.items():
            bookmark = f"{publisher}|{sequence}|"
            if bookmark != last:
                yield bookmark
        if last is not None:
            yield last

    def persisted(self, bookmark: str) -> None:
        """The server's log is safe everywhere up to this bookmark."""
        self._safe = bookmark


class BookmarkStorage(Protocol):
    """What a client wants of a bookmark store.

    `BookmarkStore` has it in memory, `FileBookmarkStore` in a file. A store that wants to know what
    the application has dealt with sets `on_done` of the trails that it keeps.
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
