"""A cache that evicts the entry that was used least recently."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Entry = TypeVar("_Entry")


class LruCache(Generic[_Key, _Entry]):
    """The entries that were used last; methods may be called from several threads.

    Args:
        max_entries: the number of entries.
    """

    def __init__(self, max_entries: int) -> None:
        self._max_entries: Final = max_entries
        self._lock: Final = threading.Lock()
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()

    def get(self, key: _Key) -> _Entry | None:
        """Return the entry of a key; None if there is none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return entry

    def put(self, key: _Key, entry: _Entry) -> None:
        """Add or replace an entry; evict the least recently used one if there are too many."""
        with self._lock:
            self._entries[key] = entry
            self._entries.move_to_end(key)
            if len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)
