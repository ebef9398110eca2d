"""Messages that come together but have bookmarks of their own: what is read from the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from server.subscriptions.envelope import Envelope


class KeyColumns(NamedTuple):
    """Header keys that all messages of a run have, each with values of its own.

    Attributes:
        template: the keys as JSON text, each with its leading comma, with % where values go.
        columns: for each of these places the values, in the order of the messages.
    """

    template: bytes
    columns: tuple[Sequence[int | bytes], ...]


class MessageRun(Protocol):
    """Messages to one topic, in their order.

    Attributes:
        bodies: the messages' bodies.
        keys: header keys that all of them carry, as JSON text, each with its leading comma.
    """

    bodies: Sequence[bytes]
    keys: bytes

    def further_keys(self, *, timestamp: bool, bookmark: bool, record: bool) -> KeyColumns:
        """Header keys for those who ask for them. See `Envelope.further_keys`."""

    def envelope(self, position: int) -> Envelope:
        """What is known about one of the messages besides its body."""
