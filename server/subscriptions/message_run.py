"""Messages that come together but have bookmarks of their own: what is read from the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from server.subscriptions.envelope import Envelope


class MessageRun(Protocol):
    """Messages to one topic, in their order."""

    def __len__(self) -> int:
        """How many they are."""

    @property
    def bodies(self) -> Sequence[bytes]:
        """The messages' bodies."""

    def frames(
        self,
        left: bytes,
        right: bytes,
        presented: Sequence[bytes] | None,
        *,
        timestamp: bool,
        bookmark: bool,
        record: bool,
    ) -> bytes:
        """Put the messages into frames, one behind the other.

        Args:
            left: the header up to the length of the body.
            right: the end of the header, behind all other keys.
            presented: the bodies as they are wanted, None for what they are.
            timestamp: as for `Envelope.further_keys`.
            bookmark: likewise.
            record: likewise.
        """

    def envelope(self, position: int) -> Envelope:
        """What is known about one of the messages besides its body."""
