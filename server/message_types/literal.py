"""Message types whose bodies the server passes on unchanged.

If a type does not support delta messages or select lists according to the reference, commands that
request them get whole, literal messages (AMPS User Guide, Incremental Message Updates; Receiving
Only Updated Fields).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from server.message_types.base import BodyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.message_types.base import FieldValue
    from server.message_types.paths import Path
    from server.message_types.select_list import FieldSelection


class LiteralType:
    """The rebuilding half of a message type that cannot rebuild."""

    name: str

    def build(self, fields: Sequence[FieldValue]) -> NoReturn:  # noqa: ARG002 - part of the contract
        """Refuse.

        Raises:
            BodyError: always; `Capabilities.build` is False.
        """
        raise BodyError(f"{self.name}: bodies of this message type cannot be made from values")

    def merge(
        self,
        stored: bytes,  # noqa: ARG002 - part of the contract
        delta: bytes,
        *,
        nulls: bool = False,  # noqa: ARG002 - part of the contract
    ) -> bytes:
        """Return the delta, which is published literally."""
        return delta

    def differ(
        self,
        previous: bytes,  # noqa: ARG002 - part of the contract
        current: bytes,
        keep: Sequence[Path],  # noqa: ARG002 - part of the contract
    ) -> bytes | None:
        """Return the current body: subscribers get it whole."""
        return current

    def select(self, body: bytes, selection: FieldSelection) -> bytes:  # noqa: ARG002 - as above
        """Return the body: subscribers get it whole."""
        return body

    def update(self, body: bytes, fields: Sequence[FieldValue]) -> NoReturn:  # noqa: ARG002 - as above
        """Refuse.

        Raises:
            BodyError: always; `Capabilities.build` is False.
        """
        raise BodyError(f"{self.name}: fields of this message type cannot be set")
