"""Handles of topics and origins, which callers keep to append entries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

from server.storage.journal.errors import EntryTooLargeError
from server.storage.journal.format.entry import JournalOrigin, JournalTopic
from server.storage.journal.format.layout import JournalFormatError, pack_origin, pack_topic

_T = TypeVar("_T")


class TopicHandle:
    """A topic to append to. It holds its number in the current file.

    Args:
        topic: the topic.
    """

    __slots__ = ("__weakref__", "definition", "file_number", "number", "topic")

    def __init__(self, topic: JournalTopic) -> None:
        self.topic = topic
        self.definition = _definition(pack_topic, topic)
        self.file_number = -1
        self.number = 0


class OriginHandle:
    """An origin to append with. It holds its number in the current file.

    Args:
        origin: the origin.
    """

    __slots__ = ("__weakref__", "definition", "file_number", "number", "origin")

    def __init__(self, origin: JournalOrigin) -> None:
        self.origin = origin
        self.definition = _definition(pack_origin, origin)
        self.file_number = -1
        self.number = 0


Handles: TypeAlias = Mapping[int, tuple[TopicHandle, OriginHandle | None]]
"""Topic and origin of each name in entries that are appended together; see `EntryColumns`."""


def _definition(pack: Callable[[_T], bytes], thing: _T) -> bytes:
    try:
        return pack(thing)
    except JournalFormatError as problem:
        raise EntryTooLargeError(str(problem)) from problem
