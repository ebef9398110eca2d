"""Who has logged on to the admin interface need not log on to a websocket again (TrustedAdmin).

What counts is the cookie that the admin interface has given, which browsers send along. They do so
for whatever page asks, if it is of the same site, and ports do not tell sites apart. So with a
header Origin the page has to be one of the admin interface, or of an origin that
AccessControlAllowOrigin names; that it allows any is not enough.

Source: AMPS User Guide, Queries and Subscriptions with Basic Auth in Galvanometer; which pages may
is ours.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from server.security.cookies import cookies_in

if TYPE_CHECKING:
    from websockets.datastructures import Headers

    from server.security.cookies import Sessions
    from server.transports.origins import Origins

_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class TrustedAdmin:
    """Knows who has logged on to the admin interface.

    Attributes:
        sessions: the cookies.
        port: where the admin interface listens.
        elsewhere: where browsers find it besides, as host:port.
        origins: the web pages that may connect.
    """

    sessions: Sessions
    port: int
    elsewhere: Collection[str]
    origins: Origins

    def user_of(self, headers: Headers) -> str | None:
        """The user who asks for a connection; None if that is not known from here."""
        if not all(self._may(origin, headers) for origin in headers.get_all("Origin")):
            return None
        tokens = [token for line in headers.get_all("Cookie") for token in cookies_in(line)]
        users = map(self.sessions.user_of, tokens)
        return next((user for user in users if user is not None), None)

    def _may(self, origin: str, headers: Headers) -> bool:
        """Whether the page that asks may use the cookie."""
        if self.origins.name(origin):
            return True
        try:
            page = urlsplit(origin)
            host = urlsplit(f"//{headers.get('Host', '')}").hostname
            port = page.port or _PORTS.get(page.scheme)
        except ValueError:  # also where there are several
            return False
        return (page.hostname == host and port == self.port) or page.netloc in self.elsewhere
