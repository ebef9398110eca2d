"""Handles of topics and origins, which callers keep to append entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ParamSpec, TypeAlias

from server.storage.journal.errors import EntryTooLargeError, JournalUnavailableError
from server.storage.journal.format.entry import JournalOrigin, JournalTopic
from server.storage.journal.format.layout import JournalFormatError, pack_origin, pack_topic

_Arguments = ParamSpec("_Arguments")


class TopicHandle:
    """A topic to append to. It holds its number in the current file.

    Args:
        topic: the topic.
    """

    __slots__ = ("__weakref__", "definition", "file_number", "number", "topic")

    def __init__(self, topic: JournalTopic) -> None:
        self.topic = topic
        self.definition = pack_limited(pack_topic, topic)
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
        self.definition = pack_limited(pack_origin, origin)
        self.file_number = -1
        self.number = 0


Handles: TypeAlias = Mapping[int, tuple[TopicHandle, OriginHandle | None]]
"""Topic and origin of each name in entries that are appended together; see `EntryColumns`."""


@contextmanager
def reset_on_failure(handle: TopicHandle | OriginHandle) -> Iterator[None]:
    """Reset a handle if its definition fails: no entry may have a number that is not defined."""
    try:
        yield
    except JournalUnavailableError:
        handle.file_number = -1
        raise


def pack_limited(
    pack: Callable[_Arguments, bytes], *arguments: _Arguments.args, **options: _Arguments.kwargs
) -> bytes:
    """Return the result of a function of `layout`.

    Raises:
        EntryTooLargeError: one of the arguments is too long for the format.
    """
    try:
        return pack(*arguments, **options)
    except JournalFormatError as problem:
        raise EntryTooLargeError(str(problem)) from problem
