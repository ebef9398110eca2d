"""The interface of a transport filter.

A transport's filters are called for each command as soon as its header has been parsed, in the
order of the configuration. A filter may change the header and the body, drop the command, or
disconnect its sender.
Source: AMPS User Guide, Transport Filters.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from amperage.wire.header import Header


class Verdict(Enum):
    """A filter's decision on a command."""

    PASS = "pass"  # noqa: S105 - not a password
    DROP = "drop"
    DISCONNECT = "disconnect"


class IncomingCommand:
    """A received command before its execution. Filters change it in place.

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
        """True if the filter ignores bodies, and treats equal headers alike at all times.

        Then the server need not call it again for a publish header that it has seen.
        """

    def filter(self, command: IncomingCommand) -> Verdict:
        """Return the verdict on a command, and change the command where needed.

        If the filter raises an exception, the connection is closed, and the log reports it.
        """


class FilterError(ValueError):
    """A transport filter cannot be made from its configuration. The text has the reason."""
