"""Messages read from the log together, with individual bookmarks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from server.topics.subscriptions.delivery.envelope import Envelope


class MessageBatch(Protocol):
    """Messages to one topic, in their order."""

    def __len__(self) -> int:
        """Return the number of messages."""

    @property
    def bodies(self) -> Sequence[bytes]:
        """The messages' bodies."""

    def frames(
        self,
        header_start: bytes,
        header_end: bytes,
        presented: Sequence[bytes] | None,
        *,
        timestamp: bool,
        bookmark: bool,
        record: bool,
    ) -> bytes:
        """Return the frames of the messages, concatenated.

        Args:
            header_start: the header up to the length of the body.
            header_end: the end of the header, behind all other keys.
            presented: the bodies in the subscriber's form, None to send them verbatim.
            timestamp: as for `Envelope.optional_keys`.
            bookmark: likewise.
            record: likewise.
        """

    def envelope(self, position: int) -> Envelope:
        """Return the properties of one of the messages, apart from its body."""
