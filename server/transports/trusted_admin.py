"""Spares users of the admin interface a second logon to a websocket (TrustedAdmin).

The proof is the cookie that the admin interface has issued, which browsers send along. They do so
for any page of the same site, and ports do not tell sites apart. So if there is an Origin header,
the page has to be one of the admin interface, or of an origin that AccessControlAllowOrigin names;
an AccessControlAllowOrigin of any origin is not enough.

Source: AMPS User Guide, Queries and Subscriptions with Basic Auth in Galvanometer; the choice of
pages is ours.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from server.security.cookies import cookies_in

if TYPE_CHECKING:
    from websockets.datastructures import Headers

    from server.security.cookies import CookieSessions
    from server.transports.origins import Origins

_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class TrustedAdmin:
    """Finds the users that are logged on to the admin interface.

    Attributes:
        cookie_sessions: the sessions of the admin interface, by cookie.
        port: the port of the admin interface.
        other_addresses: further addresses of it that browsers use, as host:port.
        origins: the web pages that may connect.
    """

    cookie_sessions: CookieSessions
    port: int
    other_addresses: Collection[str]
    origins: Origins

    def user_of(self, headers: Headers) -> str | None:
        """Return the user of a request; None if its cookies name none, or must not be used."""
        if not all(self._may_use_cookie(origin, headers) for origin in headers.get_all("Origin")):
            return None
        tokens = [token for line in headers.get_all("Cookie") for token in cookies_in(line)]
        users = map(self.cookie_sessions.user_of, tokens)
        return next((user for user in users if user is not None), None)

    def _may_use_cookie(self, origin: str, headers: Headers) -> bool:
        """Return whether the requesting page may use the cookie."""
        if self.origins.matches_pattern(origin):
            return True
        try:
            page = urlsplit(origin)
            host = urlsplit(f"//{headers.get('Host', '')}").hostname
            port = page.port or _PORTS.get(page.scheme)
        except ValueError:  # also if a header has several values
            return False
        return (page.hostname == host and port == self.port) or page.netloc in self.other_addresses
