"""A bookmark store that survives its process.

It records the messages that the application has processed, not those that have arrived: messages
that were not processed before a crash are received again. A message is processed when the next one
is requested from its stream, when a `with` block of the stream ends without an exception, or when
`stream.done()` is called.

For each subscription the file has the trail of the processed messages: the start, the resume
points, and for each publisher the numbers of the messages to drop as duplicates, with the skipped
ranges. A resume point becomes valid when all messages received before it have been processed.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from functools import partial
from struct import Struct
from typing import Final, Self

from amperage.client.bookmarks import MOST_RECENT, BookmarkTrail, PublisherProgress, SafePoint
from amperage.client.errors import StoreError
from amperage.client.record_log import RecordLog, SyncPolicy
from amperage.wire.bookmarks import EPOCH

_MAGIC: Final = b"AMPRBMK2"
_EARLIER: Final = b"AMPRBMK1"  # has only `_DONE` records, without their letter
_KIND: Final = Struct("<cH")  # kind; length of the subscription's id, which follows
_BEGUN, _DONE, _HAD, _LAST, _SAFE = b"B", b"D", b"H", b"L", b"S"
_MIN_REWRITE_GROWTH: Final = 1 << 20
"""Bytes that a file may grow, in addition to doubling, before it is rewritten."""
_MAX_AHEAD: Final = 16
"""The maximum number of resume points that wait for the messages before them to be processed."""

_logger: Final = logging.getLogger("amperage.client")


class _SubscriptionState:
    """A subscription.

    Attributes:
        trail: the trail of the processed messages.
        pending_points: the resume points that become valid when more messages are processed, oldest
            first.
    """

    def __init__(self, start: str, *, is_whole: bool = True) -> None:
        self.trail = BookmarkTrail(start, is_whole=is_whole)
        self.pending_points: list[SafePoint] = []

    def add_resume_point(self, point: SafePoint) -> bool:
        """Add a resume point; return whether it is valid already."""
        if not self.pending_points and point.behind == self.trail.received:
            self.trail.set_resume_point(point)
            return True
        if self.pending_points and self.pending_points[-1].behind == point.behind:
            self.pending_points.pop()
        elif len(self.pending_points) == _MAX_AHEAD:
            del self.pending_points[1::2]
        self.pending_points.append(point)
        return False

    def mark_processed(self, bookmark: str) -> tuple[bool, SafePoint | None]:
        """Record that a message is processed.

        Returns:
            Whether this was not known, and the resume point that becomes valid, or None.
        """
        is_new = self.trail.is_new(bookmark)
        if not self.pending_points or self.pending_points[0].behind != bookmark:
            return is_new, None
        point = self.pending_points.pop(0)
        self.trail.set_resume_point(point)
        return is_new, point


class FileBookmarkStore:
    """The trails of a client's bookmark subscriptions, by subscription id, in a file.

    Args:
        path: the file; it is created if missing. Only one store at a time can open it.
        sync: "never" to let the operating system write to the disk later: some messages may be
            received again after a failure of the machine. "always" to wait for each write.

    Iterate each stream in one thread, because a request for the next message marks the earlier ones
    as processed.

    Raises:
        StoreError: the file cannot be used; the text has the reason.
    """

    def __init__(self, path: str | os.PathLike[str], *, sync: SyncPolicy = "never") -> None:
        self._lock = threading.Lock()
        self._subscriptions: dict[str, _SubscriptionState] = {}
        self._log = RecordLog(path, _MAGIC, sync, _EARLIER)
        is_earlier = self._log.is_earlier
        for record in self._log.take_records():
            self._read_record(_DONE + record if is_earlier else record, is_earlier=is_earlier)
        if is_earlier:
            self._log.rewrite(self._all_records())
        self._rewrite_size = self._log.size + _MIN_REWRITE_GROWTH

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def most_recent(self, sub_id: str) -> str:
        """Return the bookmark from which the subscription would resume in another run."""
        with self._lock:
            followed = self._subscriptions.get(sub_id)
            return EPOCH if followed is None else followed.trail.resume_from

    def trail(self, sub_id: str | None, bookmark: str) -> BookmarkTrail:
        """Return a new trail, or for `MOST_RECENT` the trail of the processed messages.

        Raises:
            ValueError: `MOST_RECENT` without an id, which later runs could not resume.
        """
        if bookmark == MOST_RECENT and sub_id is None:
            raise ValueError(
                f"bookmark={MOST_RECENT!r} with a FileBookmarkStore needs a sub_id that is the same"
                " in every run: the store finds a subscription by it"
            )
        if bookmark != MOST_RECENT:
            return BookmarkTrail(bookmark)
        with self._lock:
            followed = self._subscriptions.get(sub_id or "")
            return BookmarkTrail(EPOCH) if followed is None else followed.trail.copy()

    def keep(self, sub_id: str, trail: BookmarkTrail) -> None:
        """Start to record the messages of a subscription that the application processes.

        The stored trail is replaced if the subscription does not begin where it would resume.
        """
        trail.on_done = partial(self._record_processed, sub_id)
        trail.on_safe = partial(self._record_resume_point, sub_id)
        with self._lock:
            before = self._subscriptions.get(sub_id)
            if before is not None:
                before.pending_points.clear()
                if before.trail.resume_from == trail.resume_from:
                    return
            self._subscriptions[sub_id] = _SubscriptionState(trail.start)
            self._write_record(_packed(_BEGUN, sub_id, trail.start))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._log.close()

    def _record_processed(self, sub_id: str, bookmark: str) -> None:
        """Record that a message is processed. If the write fails, the message is received again."""
        with self._lock:
            is_new, point = self._subscriptions[sub_id].mark_processed(bookmark)
            if is_new:
                self._write_record(_packed(_DONE, sub_id, bookmark))
            if point is not None:
                self._write_record(_packed(_SAFE, sub_id, _point_text(point)))

    def _record_resume_point(self, sub_id: str, point: SafePoint) -> None:
        """Add a resume point of a subscription, and write it if it is valid already."""
        with self._lock:
            if self._subscriptions[sub_id].add_resume_point(point):
                self._write_record(_packed(_SAFE, sub_id, _point_text(point)))

    def _write_record(self, record: bytes) -> None:
        try:
            if self._log.size > self._rewrite_size:
                self._rewrite_size = (
                    2 * self._log.size + _MIN_REWRITE_GROWTH
                )  # no immediate retry if it fails
                self._log.rewrite(self._all_records())
                self._rewrite_size = 2 * self._log.size + _MIN_REWRITE_GROWTH
            else:
                self._log.append([record])
        except StoreError as problem:
            _logger.warning("a bookmark is not noted: %s", problem)

    # The file

    def _read_record(self, record: bytes, *, is_earlier: bool) -> None:
        kind, sub_id, text = _unpacked(record)
        if kind == _BEGUN:
            self._subscriptions[sub_id] = _SubscriptionState(text)
            return
        followed = self._subscriptions.get(sub_id)
        if followed is None:
            followed = self._subscriptions[sub_id] = _SubscriptionState(
                EPOCH, is_whole=not is_earlier
            )
        match kind:
            case b"D":
                followed.trail.is_new(text)
            case b"H":
                followed.trail.restore(_had(text))
            case b"L":
                followed.trail.restore_last(text)
            case b"S":
                followed.trail.set_resume_point(_point(text))
            case _:
                raise StoreError(f"a record of a bookmark store is of an unknown kind: {kind!r}")

    def _all_records(self) -> Iterator[bytes]:
        for sub_id, followed in self._subscriptions.items():
            trail = followed.trail
            yield _packed(_BEGUN, sub_id, trail.start)
            for progress in trail.progress():
                yield _packed(_HAD, sub_id, _had_text(progress))
            if trail.received is not None:
                yield _packed(_LAST, sub_id, trail.received)
            yield _packed(_SAFE, sub_id, _point_text(trail.safe_point))


def _packed(kind: bytes, sub_id: str, text: str) -> bytes:
    name = sub_id.encode()
    return _KIND.pack(kind, len(name)) + name + text.encode()


def _unpacked(record: bytes) -> tuple[bytes, str, str]:
    kind, length = _KIND.unpack_from(record)
    content = record[_KIND.size :]
    return kind, content[:length].decode(), content[length:].decode()


def _had_text(had: PublisherProgress) -> str:
    holes = ",".join(f"{first}-{last}" for first, last in had.holes)
    return f"{had.publisher}|{had.latest}|{holes}"


def _had(text: str) -> PublisherProgress:
    publisher, latest, holes = text.split("|")
    pairs = (hole.partition("-") for hole in holes.split(",") if hole)
    return PublisherProgress(
        publisher, int(latest), tuple((int(first), int(last)) for first, _, last in pairs)
    )


def _point_text(point: SafePoint) -> str:
    return " ".join([point.bookmark or "", *point.places])


def _point(text: str) -> SafePoint:
    bookmark, *places = text.split(" ")
    return SafePoint(None, bookmark or None, tuple(places))
