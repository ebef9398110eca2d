"""The web pages that may open websocket connections.

A browser sends the site of the page that connects in the Origin header; other programs send no such
header, and are not restricted. The configured values (Protocol/AccessControlAllowOrigin) are
regular expressions for the whole origin, as in https://desk.example.com:8443, or for its host with
or without the port. If nothing is configured and no credentials are checked, only pages of this
host and of the browser's own machine are allowed: otherwise any page that a user visits could read,
publish and delete messages in their place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pcre2

from config_schema.regex import compiled

_ANY: Final = "*"
_MAX_LENGTH: Final = 512  # characters of an origin; a DNS name has 253 at most


class Origins:
    """The allowed origins.

    Args:
        patterns: regular expressions, or `*` for any origin. If empty, all are allowed.

    Raises:
        ValueError: one is not a valid regular expression.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        texts = tuple(patterns)
        self._allows_all = not texts or _ANY in texts
        try:
            self._patterns = [compiled(text) for text in texts if text != _ANY]
        except pcre2.PatternError as error:
            raise ValueError(f"AccessControlAllowOrigin: {error}") from None

    def is_allowed(self, origin: str | None) -> bool:
        """Return whether an origin is allowed; None stands for a request without one."""
        return origin is None or self._allows_all or self.matches_pattern(origin)

    def matches_pattern(self, origin: str) -> bool:
        """Return whether a regular expression other than `*` matches an origin."""
        if len(origin) > _MAX_LENGTH:
            return False
        authority = origin.partition("://")[2]
        host = authority.rpartition(":")[0] if authority[-1:].isdigit() else authority
        names = [name for name in (origin, authority, host) if name]
        return any(_matches(pattern, name) for pattern in self._patterns for name in names)


def _matches(pattern: pcre2.Pattern, name: str) -> bool:
    try:
        return pattern.fullmatch(name) is not None
    except pcre2.LibraryError:  # the match limit was exceeded
        return False
