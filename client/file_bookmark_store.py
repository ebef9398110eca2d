"""A bookmark store that outlives its process.

What counts is what the application has dealt with, not what has arrived: a message that a crash
has overtaken comes again. A message is done when its stream is asked for the next one, when a
`with` block around the stream ends without an exception, or when `stream.done()` says so.

For each subscription the file has the bookmarks of what is done, which is the trail that the
subscription has left: where to resume, and by publisher what to drop should it come twice.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from functools import partial
from struct import Struct
from typing import Final, Self

from client.bookmarks import MOST_RECENT, BookmarkTrail
from client.errors import StoreError
from client.record_log import RecordLog, Sync
from server.wire.bookmarks import EPOCH

_MAGIC: Final = b"AMPRBMK1"
_ID: Final = Struct("<H")  # length of the subscription's id; the id and the bookmark follow
_SPARE: Final = 1 << 20
"""Bytes that a file may have before it is written anew."""

_logger: Final = logging.getLogger("amperage.client")


class FileBookmarkStore:
    """Where the subscriptions of a client stand, by subscription id, in a file.

    Args:
        path: the file; it is made if there is none. One store at a time can have it.
        sync: "never" to leave to the operating system when what is written reaches the disk: after
            a failure of the machine, some messages may come again. "always" to wait for that.

    Iterate each stream in one thread: the next message is asked for when the last one is done.

    Raises:
        StoreError: the file cannot be used; the text says why.
    """

    def __init__(self, path: str | os.PathLike[str], *, sync: Sync = "never") -> None:
        self._lock = threading.Lock()
        self._done: dict[str, BookmarkTrail] = {}
        self._log = RecordLog(path, _MAGIC, sync)
        for record in self._log.take_records():
            sub_id, bookmark = _unpacked(record)
            self._trail_of(sub_id).is_new(bookmark)
        self._enough = self._log.size + _SPARE

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def most_recent(self, sub_id: str) -> str:
        """The bookmark with which the subscription would resume in another run."""
        with self._lock:
            trail = self._done.get(sub_id)
        return EPOCH if trail is None else trail.resume_from

    def trail(self, sub_id: str | None, bookmark: str) -> BookmarkTrail:
        """The trail for a subscription: a new one, or for `MOST_RECENT` that of what is done."""
        if bookmark != MOST_RECENT:
            return BookmarkTrail(bookmark)
        trail = BookmarkTrail(EPOCH)
        with self._lock:
            for done in self._done.get(sub_id or "", trail).positions():
                trail.is_new(done)
        return trail

    def keep(self, sub_id: str, trail: BookmarkTrail) -> None:
        """Follow what the application does with the messages of a subscription.

        One that begins elsewhere than it would resume begins anew.
        """
        trail.on_done = partial(self._note, sub_id)
        with self._lock:
            before = self._done.get(sub_id)
            if before is not None and before.resume_from != trail.resume_from:
                del self._done[sub_id]
                self._write_anew()

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._log.close()

    def _note(self, sub_id: str, bookmark: str) -> None:
        """Take note that a message is done; what cannot be noted comes again."""
        with self._lock:
            if not self._trail_of(sub_id).is_new(bookmark):
                return
            if self._log.size > self._enough:
                self._write_anew()
                return
            try:
                self._log.append([_packed(sub_id, bookmark)])
            except StoreError as problem:
                _logger.warning("a bookmark is not noted: %s", problem)

    def _write_anew(self) -> None:
        try:
            self._log.rewrite(self._contents())
        except StoreError as problem:
            _logger.warning("bookmarks are not noted: %s", problem)
        self._enough = 2 * self._log.size + _SPARE

    def _trail_of(self, sub_id: str) -> BookmarkTrail:
        return self._done.setdefault(sub_id, BookmarkTrail(EPOCH))

    def _contents(self) -> Iterator[bytes]:
        for sub_id, trail in self._done.items():
            for bookmark in trail.positions():
                yield _packed(sub_id, bookmark)


def _packed(sub_id: str, bookmark: str) -> bytes:
    name = sub_id.encode()
    return _ID.pack(len(name)) + name + bookmark.encode()


def _unpacked(record: bytes) -> tuple[str, str]:
    (length,) = _ID.unpack_from(record)
    content = record[_ID.size :]
    return content[:length].decode(), content[length:].decode()
