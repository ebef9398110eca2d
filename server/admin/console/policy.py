"""The Content-Security-Policy of the console's pages.

It allows only scripts and styles from files, nothing from other hosts, and no text that becomes
markup (Trusted Types). Besides its own host the page connects to the transport for queries, and to
the admin interfaces of the instances that this one replicates with, which become known over time.

Source: W3C Content Security Policy Level 3; W3C Trusted Types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_SOURCE: Final = re.compile(r"[a-z]+://(?:[\w.*-]+|\[[0-9a-f:.]+\])(?::(?:\d+|\*))?", re.IGNORECASE)
"""The sources allowed in a policy: an address from another instance must not end the directive."""

_RULES: Final = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "worker-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'self'",
    "require-trusted-types-for 'script'",
    "trusted-types console",
)


def is_source(text: str) -> bool:
    """Return whether a text is exactly one source that a page may connect to."""
    return _SOURCE.fullmatch(text) is not None


def policy(sources: Iterable[str] = ()) -> str:
    """Return a policy; sources that are not valid are left out.

    Args:
        sources: sources that the page may connect to besides its own host, as in ws://host:9008.
    """
    connect = [source for source in sources if is_source(source)]
    return "; ".join([*_RULES, " ".join(["connect-src 'self'", *dict.fromkeys(connect)])])
