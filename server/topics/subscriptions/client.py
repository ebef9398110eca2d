"""The interface of clients that messages and events use."""

from __future__ import annotations

from typing import Protocol


class ClientIdentity(Protocol):
    """The identity of a client: a connection, or a client inside the server."""

    @property
    def number(self) -> int:
        """A number unique in the process; negative for clients inside the server."""

    @property
    def client_name(self) -> str:
        """The client name given at logon; before, the connection's name."""

    @property
    def client_hash(self) -> int:
        """The number that identifies that name in bookmarks."""

    @property
    def client_version(self) -> str:
        """The version that the client gave at logon."""

    @property
    def connection_name(self) -> str:
        """The name that the server gave to the connection."""

    @property
    def address(self) -> str:
        """Its network address."""

    @property
    def user(self) -> str:
        """The authenticated user's name."""

    @property
    def message_type(self) -> str:
        """The name of its message type; empty before the logon."""
