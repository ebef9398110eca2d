"""Server-sent events, for a browser's EventSource.

Source: HTML Standard, Server-sent events.
"""

from __future__ import annotations

from typing import Final

EVENT_STREAM: Final = "text/event-stream"

KEEPALIVE_COMMENT: Final = b": keep-alive\n\n"
"""A comment, which clients ignore. Sent now and then, it detects that the peer has gone."""


def event(name: str, data: str, identity: str = "") -> bytes:
    """Return the bytes of one event.

    Args:
        name: the type of the event, in a word.
        data: its data.
        identity: the Last-Event-ID that the peer sends when it reconnects; empty for none.
    """
    lines = [f"event: {name}", *(f"data: {line}" for line in data.split("\n"))]
    if identity:
        lines.append(f"id: {identity}")
    return ("\n".join(lines) + "\n\n").encode()
