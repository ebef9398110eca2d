"""Selects the server to connect to next, from a list."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from amperage.client.arguments import choice, instance, several
from amperage.client.authentication import Authenticator, check_authenticator
from amperage.client.uri import ServerUri, parse_uri

ServerOrder = Literal["round_robin", "in_order"]


@dataclass(frozen=True, slots=True)
class Server:
    """A server, optionally with its own authenticator.

    Attributes:
        uri: the URI of the server.
        authenticator: provides the credentials for this server; None for the client's own
            authenticator.
    """

    uri: ServerUri
    authenticator: Authenticator | None = None

    def __post_init__(self) -> None:
        instance("uri", self.uri, ServerUri)
        check_authenticator(self.authenticator)


class ServerChooser:
    """Selects servers from a list, one after the other.

    If a server cannot be reached, the next one is selected, in both orders, until all servers have
    been tried: that is a round. The order determines the next server after an established
    connection is lost: `round_robin` selects the server after it, `in_order` the first of the list,
    which is the preferred one.

    Args:
        servers: URIs, or servers with their own authenticators.
        order: "round_robin" or "in_order".

    Raises:
        InvalidUriError: a URI is invalid.
        TypeError: the argument is one server instead of a list.
        ValueError: the list is empty, or the order is unknown.
    """

    def __init__(
        self, servers: Iterable[str | ServerUri | Server], order: ServerOrder = "round_robin"
    ) -> None:
        several("servers", servers, "URIs")
        choice("order", order, get_args(ServerOrder))
        self._all = tuple(_server(server) for server in servers)
        if not self._all:
            raise ValueError("expected at least one server to choose from")
        self._order = order
        self._usable = list(self._all)
        self._current_index = 0
        self._failed_in_round = 0

    @property
    def current(self) -> Server | None:
        """The server to connect to; None if all servers have refused the logon."""
        return self._usable[self._current_index] if self._usable else None

    def reset(self) -> None:
        """Begin again with the first server, and add the servers again that refused the logon."""
        self._usable = list(self._all)
        self._current_index = 0
        self._failed_in_round = 0

    def connected(self) -> None:
        """Record that the current server has accepted the logon."""
        self._failed_in_round = 0

    def lost(self) -> None:
        """Record that the established connection to the current server has ended."""
        self._failed_in_round = 0
        self._current_index = 0 if self._order == "in_order" else self._following_index()

    def failed(self) -> bool:
        """Record that the current server could not be reached.

        Returns:
            Whether a round ends: all servers have been tried since the last success.
        """
        self._current_index = self._following_index()
        self._failed_in_round += 1
        return self._end_round()

    def refused(self) -> bool:
        """Remove the current server, which has refused the logon and would refuse it again.

        Returns:
            Whether a round ends.
        """
        del self._usable[self._current_index]
        if self._current_index >= len(self._usable):
            self._current_index = 0
        return self._end_round()

    def _following_index(self) -> int:
        return (self._current_index + 1) % len(self._usable)

    def _end_round(self) -> bool:
        if self._failed_in_round < len(self._usable):
            return False
        self._failed_in_round = 0
        return True


def _server(server: str | ServerUri | Server) -> Server:
    match server:
        case Server():
            return server
        case ServerUri():
            return Server(server)
        case _:
            return Server(parse_uri(server))
