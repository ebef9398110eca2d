"""What the pages of the console may do: their Content-Security-Policy.

No script and no style but those of the files, nothing from other hosts, and no text that becomes
markup (Trusted Types). Besides its own host the page connects with the transport for queries, and
with the instances that this one replicates with, whose admin interfaces are known by and by.

Source: W3C Content Security Policy Level 3; W3C Trusted Types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_SOURCE: Final = re.compile(r"[a-z]+://(?:[\w.*-]+|\[[0-9a-f:.]+\])(?::(?:\d+|\*))?", re.IGNORECASE)
"""What may stand in a policy; an address of somebody else's may not end it."""

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
    """Whether a text names something that may be connected with, and nothing else."""
    return _SOURCE.fullmatch(text) is not None


def policy(sources: Iterable[str] = ()) -> str:
    """Write a policy.

    Args:
        sources: what may be connected with besides the page's own host, as in ws://host:9008.
    """
    connect = [source for source in sources if is_source(source)]
    return "; ".join([*_RULES, " ".join(["connect-src 'self'", *dict.fromkeys(connect)])])
