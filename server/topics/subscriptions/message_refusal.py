"""The reason for which a message was not published."""

from __future__ import annotations

from typing import NamedTuple


class MessageRefusal(NamedTuple):
    """A message that its topic refused; those before and after it are not affected.

    Attributes:
        position: index of the message among those published together, from 0.
        reason: the phrase that clients know.
        detail: the error, and the expected input.
    """

    position: int
    reason: str
    detail: str
