"""In which form a subscriber wants its messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amperage.wire.header import json_text
from server.message_types.base import BodyError, MessageType
from server.message_types.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.subscriptions.envelope import Envelope
    from server.subscriptions.message_run import MessageRun


@dataclass(frozen=True, slots=True, eq=False)
class SelectList:
    """The fields that a subscriber wants of each message.

    Attributes:
        text: the list as sent, which tells lists apart.
        selection: what it says.
        message_type: how bodies are taken apart.
        is_binding: whether nothing else may be seen, so that of a body which cannot be parsed
            nothing is left; otherwise it goes as it is.
    """

    text: str
    selection: Selection
    message_type: MessageType
    is_binding: bool = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SelectList) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def apply(self, body: bytes) -> bytes:
        """Leave of a body what the list lets through."""
        try:
            return self.message_type.select(body, self.selection)
        except BodyError:
            return b"" if self.is_binding else body


@dataclass(frozen=True, slots=True)
class Presentation:
    """What is added to, or left out of, the messages of a subscription.

    Attributes:
        select: the fields that the body is cut down to, None for all of it.
        permitted: the fields that the subscriber may see, None for all; of the others nobody asks
            for, and nothing is told (AMPS User Guide, Entitlement Select Lists).
        timestamp: whether the header says when the server received the message.
        sow_key: whether the header has the SOW key, of messages that have one.
        bookmark: whether the header has the bookmark, of messages that have one.
        sub_ids: whether the header says which subscriptions the message is for.
        pretty: makes the body readable, None to leave it as it is.
    """

    select: SelectList | None = None
    timestamp: bool = False
    sow_key: bool = True
    bookmark: bool = False
    sub_ids: bool = True
    pretty: Callable[[bytes], bytes] | None = None
    permitted: SelectList | None = None

    def header_end(self, sub_ids: Sequence[str]) -> bytes:
        """The end of the header of messages for some subscriptions, as JSON text."""
        return b',"sids":%b}' % json_text(",".join(sub_ids)) if self.sub_ids else b"}"

    @property
    def changes_bodies(self) -> bool:
        """Whether bodies are not passed on as they were published."""
        return self.cuts_bodies or self.pretty is not None

    @property
    def cuts_bodies(self) -> bool:
        """Whether fields of bodies are left out."""
        return self.select is not None or self.permitted is not None

    @property
    def asks_for_keys(self) -> bool:
        """Whether headers have more keys than what the publisher said about a message."""
        return self.timestamp or self.bookmark

    def keys(self, envelope: Envelope) -> bytes:
        """These keys, as JSON text, each with its leading comma."""
        return envelope.further_keys(
            timestamp=self.timestamp, bookmark=self.bookmark, record=self.sow_key
        )

    def frames(self, run: MessageRun, left: bytes, right: bytes) -> bytes:
        """The frames of messages that have values of their own for these keys.

        Args:
            run: the messages.
            left: the header up to the length of the body.
            right: the end of the header.
        """
        return run.frames(
            left,
            right,
            self.present(run.bodies) if self.changes_bodies else None,
            timestamp=self.timestamp,
            bookmark=self.bookmark,
            record=self.sow_key,
        )

    def present(self, bodies: Sequence[bytes]) -> Sequence[bytes]:
        """The bodies in the form that is wanted."""
        return [self.finish(self.cut(body)) for body in bodies]

    def cut(self, body: bytes) -> bytes:
        """The fields of a body that are wanted, of those that may be seen."""
        if self.permitted is not None:
            body = self.permitted.apply(body)
        return body if self.select is None else self.select.apply(body)

    def seen(self, body: bytes) -> bytes:
        """The fields of a body that may be seen."""
        return body if self.permitted is None else self.permitted.apply(body)

    def finish(self, body: bytes) -> bytes:
        """A body that holds what is wanted, written as it is wanted."""
        return body if self.pretty is None else self.pretty(body)


AS_PUBLISHED = Presentation()
"""The form that most subscribers want: bodies verbatim, with the SOW key where there is one."""
