"""Why a message was not published."""

from __future__ import annotations

from typing import NamedTuple


class Rejection(NamedTuple):
    """A message that its topic could not take; those before and after it are not affected.

    Attributes:
        reason: the phrase that clients know.
        detail: what is wrong and what was expected.
    """

    reason: str
    detail: str
