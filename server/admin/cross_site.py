"""Requests that pages of other web sites make.

Anybody's page may have a browser send a request here, with the rights of whoever sits before it.
What such a page may read of the answer is said by Access-Control-Allow-Origin. A request that acts
has acted by then, whether the page may read or not: so it is refused. Browsers say in Origin,
Referer and Sec-Fetch-Site where a request comes from; programs do not, and are not meant.

A name that somebody else owns may lead here, too (DNS rebinding). A page of that name is on the
same site as its requests, as far as the browser knows. It has no credentials and no certificate for
that name, so it matters only where neither is asked for: there, browsers have to use a name that is
known to be the instance's own.

Source: AMPS User Guide, Configuring Monitoring, AccessControlAllowOrigin; Fetch Standard; W3C
Fetch Metadata Request Headers.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from server.admin.http.messages import Refusal, Request, Response
from server.transports.origins import Origins

_OWN_SITE: Final = ("same-origin", "none")
"""What Sec-Fetch-Site says of our own pages, and of what somebody has typed."""

_METHODS: Final = "GET, HEAD, POST, OPTIONS"


class CrossSite:
    """Decides on requests from other sites.

    Args:
        pattern: AccessControlAllowOrigin; None if there is none.
        names: what the host is called by those who may have something done; None if whoever comes
            has to log on, or speaks to us over TLS.

    Raises:
        ValueError: that is no regular expression.
    """

    def __init__(self, pattern: str | None, names: Collection[str] | None = None) -> None:
        self._origins = None if pattern is None else Origins([pattern])
        self._names = None if names is None else {name.lower() for name in names}

    def grant(self, request: Request, response: Response) -> None:
        """Say in an answer which pages may read it."""
        origin = request.headers.get("origin")
        if self._origins is None:
            response.headers.append(("Access-Control-Allow-Origin", "*"))
            return
        is_allowed = origin is not None and self._origins.allow(origin)
        granted = origin if is_allowed else _own_origin(request)
        response.headers += [("Access-Control-Allow-Origin", granted or ""), ("Vary", "Origin")]
        if is_allowed and request.method == "OPTIONS":
            response.headers += [
                ("Access-Control-Allow-Methods", _METHODS),
                ("Access-Control-Allow-Headers", "Authorization"),
                ("Access-Control-Max-Age", "600"),
            ]

    def refuse_foreign(self, request: Request) -> None:
        """Let a request pass that acts, or asks for much, unless it is made for another site.

        Those that AccessControlAllowOrigin names may; that everybody may read, as without it, is
        not enough.

        Raises:
            Refusal: it is made for another site.
        """
        headers = request.headers
        origin = headers.get("origin") or _origin_of(headers.get("referer", ""))
        if origin and self._origins is not None and self._origins.allow(origin):
            return
        if self._names is not None and _is_a_browsers(request) and not self._knows(request):
            raise Refusal(
                403,
                f"A browser asks for this by the name {headers.get('host', '')!r}, which may be "
                "anybody's. Use the address, or name this in ExternalInetAddr or "
                "AccessControlAllowOrigin.",
            )
        site = headers.get("sec-fetch-site", "none")
        is_foreign = bool(origin) and origin != _own_origin(request)
        if is_foreign or site not in _OWN_SITE:
            raise Refusal(
                403,
                f"A page of {origin or 'another site'} asks for this, which is not for other "
                "sites. AccessControlAllowOrigin says which sites may.",
            )

    def _knows(self, request: Request) -> bool:
        """Whether a request was sent to one of our names, or to an address."""
        try:
            host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
        except ValueError:
            return False
        if host in (self._names or ()) or host == "localhost" or host.endswith(".localhost"):
            return True
        try:
            ip_address(host)
        except ValueError:
            return False
        return True


def _is_a_browsers(request: Request) -> bool:
    """Whether a browser has sent a request: some of what it says no page can have it leave out."""
    headers = request.headers
    said = ("origin", "referer", "accept-language", "sec-fetch-site")
    return (
        any(name in headers for name in said) or "mozilla" in headers.get("user-agent", "").lower()
    )


def _own_origin(request: Request) -> str:
    """Where a request was sent to, as a browser names it."""
    scheme = "https" if request.is_encrypted else "http"
    return f"{scheme}://{request.headers.get('host', '')}"


def _origin_of(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "null"
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""
