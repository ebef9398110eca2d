"""Prints bodies of binary message types in a readable form: indented JSON.

For connections that request it at logon (AMPS Command Reference, logon command, `pretty`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from server.message_types.base import BodyError
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.message_types.base import MessageType
    from server.message_types.trees import Tree


@runtime_checkable
class TreeDecoder(Protocol):
    """A message type whose bodies are not readable text, and that can decode them."""

    def tree(self, body: bytes) -> Tree:
        """Return the whole body, decoded.

        Raises:
            BodyError: the body cannot be parsed.
        """


def pretty_printer(message_type: MessageType) -> Callable[[bytes], bytes] | None:
    """Return the pretty-printer of a type; None if its bodies are text.

    It returns a malformed body unchanged.
    """
    if not isinstance(message_type, TreeDecoder):
        return None
    decode = message_type.tree

    def pretty(body: bytes) -> bytes:
        try:
            return text_to_bytes(json.dumps(decode(body), indent=2, ensure_ascii=False))
        except BodyError:
            return body

    return pretty
