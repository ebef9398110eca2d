"""What a transport filter is.

A transport's filters see each command as soon as its header has been read, in the order of the
configuration. A filter may change the header and the body, have the command passed over, or have
its sender disconnected.
Source: AMPS User Guide, Transport Filters.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from amperage.wire.header import Header


class Verdict(Enum):
    """What becomes of a command."""

    PASS = "pass"  # noqa: S105 - not a password
    DROP = "drop"
    DISCONNECT = "disconnect"


class IncomingCommand:
    """A command on its way in. Filters change it in place.

    Attributes:
        header: its header.
        body: its body.
    """

    __slots__ = ("body", "header")

    def __init__(self, header: Header, body: bytes) -> None:
        self.header = header
        self.body = body


class TransportFilter(Protocol):
    """One filter, configured for a transport."""

    @property
    def header_only(self) -> bool:
        """Whether the filter leaves bodies alone, and treats equal headers alike at all times.

        Then the server need not ask it again for a publish header that it has seen.
        """

    def filter(self, command: IncomingCommand) -> Verdict:
        """Decide on a command, and change it where needed.

        A filter that raises costs the connection at hand, and is reported in the log.
        """


class FilterError(ValueError):
    """A transport filter cannot be made from its configuration. The text says why."""
