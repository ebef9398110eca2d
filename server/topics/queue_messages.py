"""Messages of a queue on their way to one consumer."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING

from server.subscriptions.envelope import Envelope, iso_timestamp
from server.subscriptions.message_run import KeyColumns

if TYPE_CHECKING:
    from server.topics.queue_shelf import Shelved

_MICROSECONDS = 1_000_000


class QueueRun:
    """Messages of one publisher that one consumer gets together; see `MessageRun`.

    They always have their bookmarks, by which they are acknowledged, and the end of the lease if
    there is one (AMPS Command Reference, LeasePeriod).

    Args:
        messages: the messages, which have the same envelope but for their numbers.
        lease: the header key for the end of the lease, empty for none.
    """

    __slots__ = ("_lease", "_messages", "bodies", "keys")

    def __init__(self, messages: Sequence[Shelved], lease: bytes) -> None:
        self._messages = messages
        self._lease = lease
        self.bodies: Sequence[bytes] = [message.body for message in messages]
        self.keys = messages[0].origin.envelope.keys

    def further_keys(self, *, timestamp: bool, bookmark: bool, record: bool) -> KeyColumns:  # noqa: ARG002 - see above
        """See `MessageRun`."""
        first = self._messages[0].origin
        template = b',"bm":"%d|%%d|"' % first.client + self._lease
        columns: list[Sequence[int | bytes]] = [[message.sequence for message in self._messages]]
        if timestamp:
            template += b',"ts":"%s"'
            columns.append([_moment_text(message.origin.moment) for message in self._messages])
        return KeyColumns(template, tuple(columns))

    def envelope(self, position: int) -> Envelope:
        """See `MessageRun`."""
        message = self._messages[position]
        envelope = copy(message.origin.envelope)
        envelope.received = message.origin.moment / _MICROSECONDS
        envelope.bookmark = f"{message.origin.client}|{message.sequence}|"
        envelope.keys += envelope.bookmark_key + self._lease
        return envelope


def _moment_text(microseconds: int) -> bytes:
    return iso_timestamp(microseconds / _MICROSECONDS).encode()


def lease_key(until: int | None) -> bytes:
    """The header key for the end of a lease, as JSON text with a leading comma; empty for none."""
    return b"" if until is None else b',"lp":"%s"' % _moment_text(until)
