"""The progress of bookmark subscriptions: where to resume, and which messages were received.

A bookmark is `publisher|sequence|`, two numbers. Of two messages of one publisher, the one with the
higher sequence number is later. Bookmarks of different publishers have no order: each server has
its own. Duplicates are recognized by publisher and sequence, and dropped (AMPS User Guide,
Replaying Messages with Bookmark Subscription). Therefore a subscription may resume too early, but
never too late. It sends several resume points, of which a server selects the earliest that it
knows:

- the last message received, after which the same server resumes;
- the *safe* point, a message that is stored on every replica, from a `persisted` acknowledgement.
  It may be ahead of a slow replay, so it is not sufficient alone;
- *places*, one for each log, from an acknowledgement: all messages before the place in that log
  were received. Only places are exact at another server, whose log may have messages that were
  never received before the last message received;
- for a server whose log has no place yet, the last message of each recently active publisher.

If a server knows a place in its own log, it ignores all other points.

A message can also arrive late, after later ones of its publisher: if the publisher moves from one
server to another, its earlier messages may be replicated after its later ones. Therefore the
sequence numbers that were skipped are stored, within limits: a message with one of them is new. So
is a message with a number below the first one received.
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
"""The last position of the subscription with the same id, or `EPOCH`. Never sent to a server."""

_RANGE: Final = re.compile(r"[\[(].*:(?P<end>[^:]*[\])])")
"""A replay with an end point: `[begin:end)`."""

_PLACES: Final = re.compile(r"(?:^|,)\s*places=\[(?P<places>[\d|,]+)\]")

_MAX_PUBLISHERS: Final = 65_536
"""The maximum number of publishers stored. The publisher inactive for longest is evicted."""

_MAX_PUBLISHER_HOLES: Final = 1_000
_MAX_HOLES: Final = 200_000
"""The maximum numbers of holes stored per publisher, and in total. The numbers in evicted holes
count as received. Subscriptions with filters have many holes that are never filled."""

_SEQUENCE_END: Final = 2**64

_MAX_PLACES: Final = 16
"""The maximum number of logs with a stored place."""

_MAX_NAMED: Final = 256
"""The maximum number of publishers with a message among the resume points."""

_RECENT_MESSAGES: Final = 10_000
"""The number of messages (up to twice as many) for which a publisher counts as recently active."""


class PublisherProgress(NamedTuple):
    """The messages received from one publisher.

    Attributes:
        publisher: the publisher.
        latest: the highest sequence number received.
        holes: the skipped ranges below it, each as its first and last number, ascending.
    """

    publisher: str
    latest: int
    holes: tuple[tuple[int, int], ...] = ()


class SafePoint(NamedTuple):
    """A point at which a subscription can resume, from an acknowledgement.

    Attributes:
        behind: the bookmark of the last message received before the acknowledgement; None if there
            was none.
        bookmark: the bookmark of a message that is on every replica; None if none is known.
        places: a bookmark for each log, with the log's id as its publisher.
    """

    behind: str | None
    bookmark: str | None
    places: tuple[str, ...] = ()


def places_in(options: str | None) -> tuple[str, ...]:
    """Return the places in the options of an acknowledgement; see `SafePoint`."""
    match = _PLACES.search(options or "")
    return () if match is None else tuple(match["places"].split(","))


class BookmarkTrail:
    """The progress of one subscription.

    Args:
        start: the bookmark that the subscription began with.
        is_whole: whether all received messages are known; if not, messages before a publisher's
            first known one count as received.

    Attributes:
        has_records: whether all records have arrived, for a subscription that began with a query.
        on_done: a callback for the bookmark of each message that the application has processed; for
            stores that record these.
        on_safe: a callback for each point at which the subscription can resume once all messages
            received before it have been processed; for such stores, too.
    """

    __slots__ = (
        "_hole_count",
        "_holes",
        "_is_whole",
        "_latest",
        "_messages_until_rotation",
        "_older_publishers",
        "_places",
        "_received",
        "_recent_publishers",
        "_safe_bookmark",
        "has_records",
        "on_done",
        "on_safe",
        "start",
    )

    def __init__(self, start: str, *, is_whole: bool = True) -> None:
        self.start: Final = start
        self._is_whole = is_whole
        self._received: str | None = None
        self._safe_bookmark: str | None = None
        self._places: dict[str, int] = {}  # log -> txid, in the order of their last updates
        self.has_records = False
        self.on_done: Callable[[str], None] | None = None
        self.on_safe: Callable[[SafePoint], None] | None = None
        self._recent_publishers: set[str] = (
            set()
        )  # publishers of the last messages, at most `_RECENT_MESSAGES`
        self._older_publishers: set[str] = (
            set()
        )  # publishers of the `_RECENT_MESSAGES` messages before
        self._messages_until_rotation = _RECENT_MESSAGES
        self._latest: dict[str, int] = {}  # publisher -> sequence; the last active one comes last
        # publisher -> skipped ranges, as their first and last numbers, ascending
        self._holes: dict[str, list[tuple[int, int]]] = {}
        self._hole_count = 0

    @property
    def resume_from(self) -> str:
        """The bookmark, or list of bookmarks, to resume with."""
        points = [f"{log}|{txid}|" for log, txid in self._places.items()]
        if self._safe_bookmark is not None:
            points.append(self._safe_bookmark)
        limits = _RANGE.fullmatch(self.start)
        if self._received is None:
            # Nothing was received, so begin at the start again; but "now" means the first request.
            if limits is not None or not (self._places or (points and self.start == NOW)):
                return self.start
            if self.start != NOW:
                points.append(self.start)
        else:
            points += self._last_bookmarks()
            points.append(self._received)
        text = ",".join(dict.fromkeys(points))
        return text if limits is None else f"({text}:{limits['end']}"

    def _last_bookmarks(self) -> list[str]:
        """Return the bookmarks of the last messages of the recently active publishers."""
        recent = self._recent_publishers | self._older_publishers
        last = islice(reversed(self._latest.items()), _MAX_NAMED)
        return [f"{name}|{sequence}|" for name, sequence in last if name in recent]

    def is_new(self, bookmark: str) -> bool:
        """Record that a message has arrived.

        Args:
            bookmark: the bookmark of the message.

        Returns:
            True if the message is new, False if it is a duplicate.
        """
        publisher, _, rest = bookmark.partition("|")
        number = rest.partition("|")[0]
        if number.isdecimal():
            sequence = int(number)
            known = self._latest.pop(publisher, -1)
            self._latest[publisher] = max(known, sequence)
            if sequence <= known and not self._fill_hole(publisher, sequence):
                return False
            if known < 0:
                self._evict_inactive_publisher()
                known = 0 if self._is_whole else sequence
            if known < sequence - 1:
                self._add_hole(publisher, known + 1, sequence - 1)
            self._recent_publishers.add(publisher)
            self._messages_until_rotation -= 1
            if not self._messages_until_rotation:
                self._older_publishers, self._recent_publishers = self._recent_publishers, set()
                self._messages_until_rotation = _RECENT_MESSAGES
        self._received = bookmark
        return True

    def _evict_inactive_publisher(self) -> None:
        if len(self._latest) > _MAX_PUBLISHERS:
            evicted = next(iter(self._latest))
            self._drop_holes(evicted)
            del self._latest[evicted]

    def _fill_hole(self, publisher: str, sequence: int) -> bool:
        """Remove a number from the skipped ranges; return whether it was in one."""
        holes = self._holes.get(publisher, [])
        index = bisect_right(holes, (sequence, _SEQUENCE_END)) - 1
        if index < 0 or holes[index][1] < sequence:
            return False
        first, last = holes[index]
        parts = [(first, sequence - 1), (sequence + 1, last)]
        left = [(begin, end) for begin, end in parts if begin <= end]
        holes[index : index + 1] = left
        self._hole_count += len(left) - 1
        return True

    def _add_hole(self, publisher: str, first: int, last: int) -> None:
        """Store a skipped range, and evict others beyond the limits."""
        holes = self._holes[publisher] = self._holes.pop(publisher, [])  # moves it to the end
        holes.append((first, last))
        self._hole_count += 1
        if len(holes) > 2 * _MAX_PUBLISHER_HOLES:
            self._hole_count -= len(holes) - _MAX_PUBLISHER_HOLES
            del holes[:-_MAX_PUBLISHER_HOLES]
        if self._hole_count > _MAX_HOLES:
            self._drop_holes(next(iter(self._holes)))

    def _drop_holes(self, publisher: str) -> None:
        """Remove the skipped ranges of a publisher: their numbers count as received from now on."""
        self._hole_count -= len(self._holes.pop(publisher, ()))

    def persisted(self, bookmark: str | None, places: Sequence[str] = ()) -> None:
        """Process a `persisted` acknowledgement.

        Args:
            bookmark: the bookmark up to which the server's log is on every replica, if known.
            places: a bookmark for each log; see `SafePoint`.
        """
        point = SafePoint(self._received, bookmark, tuple(places))
        self.set_resume_point(point)
        if self.on_safe is not None:
            self.on_safe(point)

    def set_resume_point(self, point: SafePoint) -> None:
        """Set a point at which the subscription can resume: all messages before it are received."""
        if point.bookmark is not None:
            self._safe_bookmark = point.bookmark
        for position in point.places:
            log, _, txid = position.rstrip("|").partition("|")
            if log.isdecimal() and txid.isdecimal():
                self._places[log] = max(self._places.pop(log, 0), int(txid))
        while len(self._places) > _MAX_PLACES:
            del self._places[next(iter(self._places))]

    # The state that a store keeps

    @property
    def received(self) -> str | None:
        """The bookmark of the last message received."""
        return self._received

    @property
    def safe_point(self) -> SafePoint:
        """The point at which the subscription can resume."""
        places = (f"{log}|{txid}|" for log, txid in self._places.items())
        return SafePoint(self._received, self._safe_bookmark, tuple(places))

    def progress(self) -> Iterator[PublisherProgress]:
        """Yield the messages received from each publisher; the last active one comes last."""
        for publisher, latest in self._latest.items():
            yield PublisherProgress(publisher, latest, tuple(self._holes.get(publisher, ())))

    def restore(self, had: PublisherProgress) -> None:
        """Restore the messages received from a publisher, which counts as recently active."""
        self._recent_publishers.add(had.publisher)
        self._latest[had.publisher] = had.latest
        if had.holes:
            self._holes[had.publisher] = list(had.holes)
            self._hole_count += len(had.holes)

    def restore_last(self, bookmark: str) -> None:
        """Restore the bookmark of the last message; its publisher has been restored before."""
        self._received = bookmark

    def copy(self) -> Self:
        """Return a copy of the trail, without callbacks."""
        trail = copy(self)
        trail._places = dict(self._places)  # noqa: SLF001 - of the same class
        trail._latest = dict(self._latest)  # noqa: SLF001 - as above
        trail._holes = {publisher: list(holes) for publisher, holes in self._holes.items()}  # noqa: SLF001 - as above
        trail._recent_publishers = set(self._recent_publishers)  # noqa: SLF001 - as above
        trail._older_publishers = set(self._older_publishers)  # noqa: SLF001 - as above
        trail.on_done = trail.on_safe = None
        return trail


class BookmarkStorage(Protocol):
    """The interface of a client's bookmark store.

    `BookmarkStore` implements it in memory, `FileBookmarkStore` in a file. A store that records
    which messages the application has processed sets `on_done` and `on_safe` of its trails.
    """

    def trail(self, sub_id: str | None, bookmark: str) -> BookmarkTrail:
        """Return a new trail for a subscription, or the stored one of the id for `MOST_RECENT`."""

    def keep(self, sub_id: str, trail: BookmarkTrail) -> None:
        """Store the trail of an active subscription."""


class BookmarkStore:
    """The trails of a client's bookmark subscriptions, by subscription id, in memory."""

    def __init__(self) -> None:
        self._trails: dict[str, BookmarkTrail] = {}

    def most_recent(self, sub_id: str) -> str:
        """Return the bookmark, or list of bookmarks, from which the subscription would resume."""
        trail = self._trails.get(sub_id)
        return EPOCH if trail is None else trail.resume_from

    def trail(self, sub_id: str | None, bookmark: str) -> BookmarkTrail:
        """Return a new trail for a subscription, or the stored one of the id for `MOST_RECENT`.

        Args:
            sub_id: the subscription's id; None if it will be generated.
            bookmark: the bookmark that the caller begins the subscription with.

        Returns:
            The trail, with the bookmark to resume from. A new one is not stored yet.
        """
        if bookmark != MOST_RECENT:
            return BookmarkTrail(bookmark)
        return self._trails.get(sub_id or "") or BookmarkTrail(EPOCH)

    def keep(self, sub_id: str, trail: BookmarkTrail) -> None:
        """Store the trail of an active subscription."""
        self._trails[sub_id] = trail
