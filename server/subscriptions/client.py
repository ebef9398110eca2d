"""Clients as messages and events name them."""

from __future__ import annotations

from typing import Protocol


class Client(Protocol):
    """Who a client is: a connection, or one inside the server."""

    @property
    def number(self) -> int:
        """Distinguishes it from all others of the process; those inside have negative ones."""

    @property
    def client_name(self) -> str:
        """The name that it logged on with, the connection's name before."""

    @property
    def client_hash(self) -> int:
        """The number that stands for that name in bookmarks."""

    @property
    def client_version(self) -> str:
        """The version that it gave at its logon."""

    @property
    def connection_name(self) -> str:
        """The name that the server gave to the connection."""

    @property
    def address(self) -> str:
        """Where it is."""

    @property
    def user(self) -> str:
        """The authenticated user's name."""

    @property
    def message_type(self) -> str:
        """The name of its message type; empty before the logon."""
