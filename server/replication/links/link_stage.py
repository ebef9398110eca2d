"""The stages of a link, and the reason why it serves no destination."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class LinkStage(Enum):
    """The state of a link."""

    HANDSHAKE = "greeting"
    RESERVED = "spare"
    OPEN = "open"
    CLOSED = "closed"


class Shortfall(NamedTuple):
    """The reason why a destination is not served over the connection that its instance has made.

    Attributes:
        destination: its name.
        reason: the requirement of the destination that the connection does not meet.
    """

    destination: str
    reason: str
