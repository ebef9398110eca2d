"""Server-sent events: what a browser's EventSource reads.

Source: HTML Standard, Server-sent events.
"""

from __future__ import annotations

from typing import Final

EVENT_STREAM: Final = "text/event-stream"

STILL_THERE: Final = b": still there\n\n"
"""Says nothing. Sent now and then, it finds out that the peer has gone."""


def event(name: str, data: str, identity: str = "") -> bytes:
    """Write one event.

    Args:
        name: what has happened, in a word.
        data: what is said about it.
        identity: what the peer says when it connects again; empty for nothing.
    """
    lines = [f"event: {name}", *(f"data: {line}" for line in data.split("\n"))]
    if identity:
        lines.append(f"id: {identity}")
    return ("\n".join(lines) + "\n\n").encode()
