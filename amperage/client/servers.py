"""Which server to connect to next, out of those that would do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from amperage.client.arguments import choice, instance, several
from amperage.client.authentication import Authenticator, check_authenticator
from amperage.client.uri import ServerUri, parse_uri

Order = Literal["round_robin", "in_order"]


@dataclass(frozen=True, slots=True)
class Server:
    """One server, and how to prove there who we are.

    Attributes:
        uri: where it is.
        authenticator: makes the credentials for it; None for the client's own.
    """

    uri: ServerUri
    authenticator: Authenticator | None = None

    def __post_init__(self) -> None:
        instance("uri", self.uri, ServerUri)
        check_authenticator(self.authenticator)


class ServerChooser:
    """Goes through a list of servers.

    Whichever the order, a server that cannot be reached is followed by the next one, until every
    server has been tried: that is a round. The order says where to begin when an established
    connection is lost: `round_robin` with the server after it, `in_order` with the first of the
    list, which is the one preferred.

    Args:
        servers: URIs, or servers with authenticators of their own.
        order: "round_robin" or "in_order".

    Raises:
        InvalidUriError: a text is no URI.
        TypeError: it is one server instead of a list.
        ValueError: there is no server in the list, or no such order.
    """

    def __init__(
        self, servers: Iterable[str | ServerUri | Server], order: Order = "round_robin"
    ) -> None:
        several("servers", servers, "URIs")
        choice("order", order, get_args(Order))
        self._all = tuple(_server(server) for server in servers)
        if not self._all:
            raise ValueError("expected at least one server to choose from")
        self._order = order
        self._usable = list(self._all)
        self._next = 0
        self._failed_in_round = 0

    @property
    def current(self) -> Server | None:
        """The server to connect to; None if every one of them has turned us away."""
        return self._usable[self._next] if self._usable else None

    def reset(self) -> None:
        """Begin again with the first server; those that turned us away may be tried again."""
        self._usable = list(self._all)
        self._next = 0
        self._failed_in_round = 0

    def connected(self) -> None:
        """The current server took us."""
        self._failed_in_round = 0

    def lost(self) -> None:
        """The established connection to the current server has ended."""
        self._failed_in_round = 0
        self._next = 0 if self._order == "in_order" else self._following()

    def failed(self) -> bool:
        """The current server could not be reached.

        Returns:
            Whether that ends a round: every server has been tried since the last success.
        """
        self._next = self._following()
        self._failed_in_round += 1
        return self._end_round()

    def refused(self) -> bool:
        """The current server turned us away, and would again; it is not tried any more.

        Returns:
            Whether that ends a round.
        """
        del self._usable[self._next]
        if self._next >= len(self._usable):
            self._next = 0
        return self._end_round()

    def _following(self) -> int:
        return (self._next + 1) % len(self._usable)

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
