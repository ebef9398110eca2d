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

    __slots__ = ("_key_fields", "_key_selection", "_message_type")

    def __init__(self, message_type: MessageType, keys: Sequence[Path]) -> None:
        self._message_type: Final = message_type
        self._key_fields: Final = tuple(keys)
        directives = ["-/", *(f"+{format_path(key)}" for key in keys)]
        self._key_selection: Final = parse_selection(",".join(directives))

    @property
    def is_supported(self) -> bool:
        """True if the message type has deltas; if not, delta subscribers get whole messages."""
        return self._message_type.capabilities.delta

    def encode(self, previous: bytes, current: bytes) -> bytes | None:
        """Return the fields that differ, with the key fields; None if none differs."""
        try:
            return self._message_type.differ(previous, current, self._key_fields)
        except BodyError:
            return current

    def key_fields_of(self, body: bytes) -> bytes:
        """Return the key fields only: the body of a message in which no field differs."""
        if not self._message_type.capabilities.select:
            return body
        try:
            return self._message_type.select(body, self._key_selection)
        except BodyError:
            return body

    def merge(self, earlier: bytes, later: bytes) -> bytes:
        """Merge two successive deltas into one."""
        try:
            return self._message_type.merge(earlier, later, nulls=True)
        except BodyError:
            return later
