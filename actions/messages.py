"""What triggers on messages have in common."""

from __future__ import annotations

from actions.context import to_bytes


def message_variables(topic: str, body: bytes) -> dict[str, bytes]:
    """The variables that hold a message."""
    return {
        "AMPS_TOPIC": to_bytes(topic),
        "AMPS_DATA": body,
        "AMPS_DATA_LENGTH": b"%d" % len(body),
    }
