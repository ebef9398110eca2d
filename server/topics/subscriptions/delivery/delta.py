"""Deltas of records: the key fields and the fields that differ.

Source: AMPS User Guide, Receiving Only Updated Fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from server.message_types.base import BodyError
from server.message_types.paths import format_path
from server.message_types.select_list import parse_selection

if TYPE_CHECKING:
    from server.message_types.base import MessageType
    from server.message_types.paths import Path


class DeltaEncoder:
    """Makes deltas for the records of one topic.

    Args:
        message_type: the topic's message type.
        keys: the key fields of the records.
    """

    __slots__ = ("_keys", "_only_keys", "_type")

    def __init__(self, message_type: MessageType, keys: Sequence[Path]) -> None:
        self._type: Final = message_type
        self._keys: Final = tuple(keys)
        directives = ["-/", *(f"+{format_path(key)}" for key in keys)]
        self._only_keys: Final = parse_selection(",".join(directives))

    @property
    def works(self) -> bool:
        """True if the message type has deltas; if not, delta subscribers get whole messages."""
        return self._type.capabilities.delta

    def difference(self, previous: bytes, current: bytes) -> bytes | None:
        """Return the fields that differ, with the key fields; None if none differs."""
        try:
            return self._type.differ(previous, current, self._keys)
        except BodyError:
            return current

    def keys_of(self, body: bytes) -> bytes:
        """Return the key fields only: the body of a message in which no field differs."""
        if not self._type.capabilities.select:
            return body
        try:
            return self._type.select(body, self._only_keys)
        except BodyError:
            return body

    def merge(self, earlier: bytes, later: bytes) -> bytes:
        """Merge two successive deltas into one."""
        try:
            return self._type.merge(earlier, later, nulls=True)
        except BodyError:
            return later
