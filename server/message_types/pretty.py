"""Bodies of binary message types in a form that people can read: indented JSON.

For connections that ask for it at their logon (AMPS Command Reference, logon command, `pretty`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from server.base.octets import to_octets
from server.message_types.base import BodyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.message_types.base import MessageType
    from server.message_types.trees import Tree


@runtime_checkable
class Readable(Protocol):
    """A message type whose bodies people cannot read as they are."""

    def tree(self, body: bytes) -> Tree:
        """The whole body, decoded.

        Raises:
            BodyError: the body cannot be parsed.
        """


def pretty_printer(message_type: MessageType) -> Callable[[bytes], bytes] | None:
    """What makes bodies of a type readable; None if they are. A malformed body stays as it is."""
    if not isinstance(message_type, Readable):
        return None
    decode = message_type.tree

    def pretty(body: bytes) -> bytes:
        try:
            return to_octets(json.dumps(decode(body), indent=2, ensure_ascii=False))
        except BodyError:
            return body

    return pretty
