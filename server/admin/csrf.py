"""CSRF protection: requests that a browser sends for a page of another web site.

A page of any site may have a browser send a request here, with the rights of its user. Reading is
governed by Access-Control-Allow-Origin. A request with an effect takes effect before the browser
withholds the response from the page, so it is refused.

Browsers name the page in Origin, Referer and Sec-Fetch-Site, but not always: over plain HTTP to a
host other than localhost there is no Sec-Fetch-Site, a GET of an image, a form or a link has no
Origin, and the page can have the Referer left out. So a browser's request acts only if no page of
another site can have made it: with an Origin, which all browsers add to a POST, or with the header
X-Requested-With, for which a page of another site would need a permission that is not given.
Programs send none of the headers that browsers always send, and act by GET as with AMPS.

A name that another party owns may lead here, too (DNS rebinding). Where neither credentials nor a
certificate are required, browsers have to use a name that is known to be the instance's own.

Source: AMPS User Guide, Configuring Monitoring, AccessControlAllowOrigin; Fetch Standard; W3C
Fetch Metadata Request Headers; OWASP, Cross-Site Request Forgery Prevention.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from server.admin.http.messages import HttpError, HttpRequest, HttpResponse
from server.transports.origins import Origins
from server.transports.own_hosts import OwnHosts

SCRIPT_HEADER: Final = "x-requested-with"
"""A header that a page of another site cannot have a browser send without our permission."""

_OWN_SITE: Final = ("same-origin", "none")
"""Values of Sec-Fetch-Site for our own pages, and for an address that the user has typed."""

_METHODS: Final = "GET, HEAD, POST, OPTIONS"

_BROWSER_HEADERS: Final = (
    "accept-language",
    "origin",
    "purpose",
    "referer",
    "upgrade-insecure-requests",
)
"""Headers of browsers; a page can leave out some of them, but not all."""


class CsrfProtection:
    """Decides on requests from other sites.

    Args:
        pattern: AccessControlAllowOrigin; with `*`, pages of all sites may read, and none may act;
            None if there is none.
        hosts: the names of this host.
        is_unauthenticated: whether no credentials are checked.
        is_encrypted: whether requests come over TLS.

    Raises:
        ValueError: the pattern is no regular expression.
    """

    def __init__(
        self,
        pattern: str | None,
        hosts: OwnHosts | None = None,
        *,
        is_unauthenticated: bool = False,
        is_encrypted: bool = False,
    ) -> None:
        self._origins = None if pattern is None else Origins([pattern])
        self._allows_all = pattern == "*"
        self._hosts = hosts or OwnHosts()
        self._is_unauthenticated = is_unauthenticated
        self._needs_known_name = is_unauthenticated and not is_encrypted

    def refuse_foreign_reader(self, request: HttpRequest) -> None:
        """Refuse a page of another site where no credentials are checked.

        Raises:
            HttpError: AccessControlAllowOrigin does not name the site, or the Host is no known name
                of this host (DNS rebinding).
        """
        origin = request.headers.get("origin")
        if not self._allows_all and not self._is_origin_named(origin or _own_origin(request)):
            self._refuse_unknown_name(request)
        if (
            origin is not None
            and request.method != "OPTIONS"
            and not self._may_origin_read(request)
        ):
            raise HttpError(
                403,
                f"Refused for a page of {origin}. Where no credentials are checked, only pages "
                "of this host and of the browser's own machine may read; AccessControlAllowOrigin "
                "in Admin names further ones.",
            )

    def add_cors_headers(
        self, request: HttpRequest, response: HttpResponse, *, is_public: bool = False
    ) -> None:
        """Add the headers for the pages that may read an answer.

        Args:
            request: the request.
            response: the answer.
            is_public: whether pages of all sites may, unless AccessControlAllowOrigin is set.
        """
        if self._allows_all or (
            self._origins is None and (is_public or not self._is_unauthenticated)
        ):
            response.headers.append(("Access-Control-Allow-Origin", "*"))
            return
        origin = request.headers.get("origin", "")
        allowed_origin = (
            origin if origin and self._may_origin_read(request) else _own_origin(request)
        )
        response.headers += [("Access-Control-Allow-Origin", allowed_origin), ("Vary", "Origin")]
        is_named = bool(origin) and self._is_origin_named(origin)
        if is_named and request.method == "OPTIONS":
            response.headers += [
                ("Access-Control-Allow-Methods", _METHODS),
                ("Access-Control-Allow-Headers", "Authorization, X-Requested-With"),
                ("Access-Control-Max-Age", "600"),
            ]

    def refuse_foreign_request(self, request: HttpRequest) -> None:
        """Refuse a request that a browser sends for a page of another site, by its headers.

        Sites that AccessControlAllowOrigin names may act; permission to read for all, as without
        it, is not enough.

        Raises:
            HttpError: it is made for another site.
        """
        headers = request.headers
        origin = headers.get("origin") or _origin_of(headers.get("referer", ""))
        if origin and self._is_origin_named(origin):
            return
        self._refuse_unknown_name(request)
        site = headers.get("sec-fetch-site", "none")
        is_foreign = bool(origin) and origin != _own_origin(request)
        if is_foreign or site not in _OWN_SITE:
            raise HttpError(
                403,
                f"Refused: a cross-site request of {origin or 'another site'}. Name the sites "
                "that may make such requests in AccessControlAllowOrigin.",
            )

    def is_forgeable(self, request: HttpRequest) -> bool:
        """Return whether a page of another site may have made a request that was not refused."""
        headers = request.headers
        return _is_of_browser(request) and not headers.keys() & {"origin", SCRIPT_HEADER}

    def _refuse_unknown_name(self, request: HttpRequest) -> None:
        host = request.headers.get("host", "")
        if self._needs_known_name and _is_of_browser(request) and not self._hosts.has_host(host):
            raise HttpError(
                403,
                f"Refused: Host {host!r} is not a known name of this server (DNS rebinding). Use "
                "the address, or name the host in ExternalInetAddr or AccessControlAllowOrigin.",
            )

    def _is_origin_named(self, origin: str) -> bool:
        """Return whether AccessControlAllowOrigin names the site."""
        return self._origins is not None and self._origins.matches_pattern(origin)

    def _may_origin_read(self, request: HttpRequest) -> bool:
        origin = request.headers["origin"]
        if self._origins is not None:
            return self._origins.is_allowed(origin)
        if not self._is_unauthenticated:
            return True
        host = request.headers.get("host", "")
        return origin == _own_origin(request) or self._hosts.has_page(origin, host)


def _is_of_browser(request: HttpRequest) -> bool:
    """Return whether a browser has sent a request: no page can have it leave out all of these."""
    headers = request.headers
    return (
        any(name in headers for name in _BROWSER_HEADERS)
        or any(name.startswith("sec-") for name in headers)
        or "mozilla" in headers.get("user-agent", "").lower()
    )


def _own_origin(request: HttpRequest) -> str:
    """Return the origin of this server's pages, as the browser that sent a request names it."""
    scheme = "https" if request.is_encrypted else "http"
    return f"{scheme}://{request.headers.get('host', '')}"


def _origin_of(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "null"
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""
