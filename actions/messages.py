"""The context variables of triggers on messages."""

from __future__ import annotations

from server.util.encoding import text_to_bytes


def message_variables(topic: str, body: bytes) -> dict[str, bytes]:
    """Return the variables that hold a message."""
    return {
        "AMPS_TOPIC": text_to_bytes(topic),
        "AMPS_DATA": body,
        "AMPS_DATA_LENGTH": b"%d" % len(body),
    }
