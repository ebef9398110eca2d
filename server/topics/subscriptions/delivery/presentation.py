"""The form in which a subscriber gets its messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amperage.wire.header import json_text
from server.message_types.base import BodyError, MessageType
from server.message_types.bulk import bulk_selector
from server.message_types.select_list import FieldSelection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.delivery.message_batch import MessageBatch


class SelectList:
    """The fields that a subscriber gets of each message.

    Args:
        text: the list as sent, which identifies it.
        selection: its parsed form.
        message_type: parses bodies.
        is_entitlement: whether it is an entitlement: a body that cannot be parsed is then replaced
            by an empty one; otherwise it is sent unchanged.

    Attributes:
        text: see above.
        never_raises: whether no body can raise an error, as those of libraries can.
    """

    def __init__(
        self,
        text: str,
        selection: FieldSelection,
        message_type: MessageType,
        *,
        is_entitlement: bool = False,
    ) -> None:
        self.text = text
        self._selection = selection
        self._message_type = message_type
        self._is_entitlement = is_entitlement
        self._select_all = bulk_selector(message_type, selection)
        self.never_raises = self._select_all is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SelectList) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def apply(self, body: bytes) -> bytes:
        """Return a body reduced to the fields of the list."""
        try:
            return self._message_type.select(body, self._selection)
        except BodyError:
            return b"" if self._is_entitlement else body

    def apply_all(self, bodies: Sequence[bytes]) -> Sequence[bytes]:
        """Return bodies reduced to the fields of the list."""
        if self._select_all is None:
            return [self.apply(body) for body in bodies]
        return [
            self.apply(body) if selected is None else selected
            for body, selected in zip(bodies, self._select_all(bodies), strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Presentation:
    """The changes to bodies and headers of the messages of a subscription.

    Attributes:
        select: the fields that the body is reduced to, None for all of it.
        permitted: the fields that the subscriber may see, None for all; the others are neither
            read by its expressions nor sent (AMPS User Guide, Entitlement Select Lists).
        has_timestamp: whether the header has the time at which the server received the message.
        has_sow_key: whether the header has the SOW key, of messages that have one.
        has_bookmark: whether the header has the bookmark, of messages that have one.
        has_sub_ids: whether the header has the ids of the subscriptions that the message is for.
        pretty: formats the body to be readable, None to leave it as it is.
    """

    select: SelectList | None = None
    has_timestamp: bool = False
    has_sow_key: bool = True
    has_bookmark: bool = False
    has_sub_ids: bool = True
    pretty: Callable[[bytes], bytes] | None = None
    permitted: SelectList | None = None

    def header_end(self, sub_ids: Sequence[str]) -> bytes:
        """Return the end of the header of messages for some subscriptions, as JSON text."""
        return b',"sids":%b}' % json_text(",".join(sub_ids)) if self.has_sub_ids else b"}"

    @property
    def changes_bodies(self) -> bool:
        """True if bodies are not passed on verbatim."""
        return self.selects_fields or self.pretty is not None

    @property
    def selects_fields(self) -> bool:
        """True if fields of bodies are removed."""
        return self.select is not None or self.permitted is not None

    @property
    def never_raises(self) -> bool:
        """True if no body can raise an error in `present_bodies`."""
        lists = self.permitted, self.select
        return self.pretty is None and all(one is None or one.never_raises for one in lists)

    @property
    def has_optional_keys(self) -> bool:
        """True if headers have more keys than the publisher's options of a message."""
        return self.has_timestamp or self.has_bookmark

    def optional_keys(self, envelope: Envelope) -> bytes:
        """Return these keys, as JSON text, each with its leading comma."""
        return envelope.optional_keys(
            timestamp=self.has_timestamp, bookmark=self.has_bookmark, record=self.has_sow_key
        )

    def frames(self, batch: MessageBatch, header_start: bytes, header_end: bytes) -> bytes:
        """Return the frames of messages that have individual values of these keys.

        Args:
            batch: the messages.
            header_start: the header up to the length of the body.
            header_end: the end of the header.
        """
        return batch.frames(
            header_start,
            header_end,
            self.present_bodies(batch.bodies) if self.changes_bodies else None,
            timestamp=self.has_timestamp,
            bookmark=self.has_bookmark,
            record=self.has_sow_key,
        )

    def present_bodies(self, bodies: Sequence[bytes]) -> Sequence[bytes]:
        """Return bodies in the subscriber's form."""
        if self.permitted is not None:
            bodies = self.permitted.apply_all(bodies)
        if self.select is not None:
            bodies = self.select.apply_all(bodies)
        return bodies if self.pretty is None else [self.pretty(body) for body in bodies]

    def select_fields(self, body: bytes) -> bytes:
        """Return the selected and permitted fields of a body."""
        if self.permitted is not None:
            body = self.permitted.apply(body)
        return body if self.select is None else self.select.apply(body)

    def select_permitted(self, body: bytes) -> bytes:
        """Return the permitted fields of a body."""
        return body if self.permitted is None else self.permitted.apply(body)

    def format_body(self, body: bytes) -> bytes:
        """Return a reduced body in its final formatting."""
        return body if self.pretty is None else self.pretty(body)


AS_PUBLISHED = Presentation()
"""The form of most subscriptions: bodies verbatim, with the SOW key where there is one."""
