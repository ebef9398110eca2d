"""Why a message was not published."""

from __future__ import annotations

from typing import NamedTuple


class Rejection(NamedTuple):
    """A message that its topic could not take; those before and after it are not affected.

    Attributes:
        position: which of the messages that were published together, counted from 0.
        reason: the phrase that clients know.
        detail: what is wrong and what was expected.
    """

    position: int
    reason: str
    detail: str
