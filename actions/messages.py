"""The context variables of triggers on messages."""

from __future__ import annotations

from server.util.encoding import to_octets


def message_variables(topic: str, body: bytes) -> dict[str, bytes]:
    """Return the variables that hold a message."""
    return {
        "AMPS_TOPIC": to_octets(topic),
        "AMPS_DATA": body,
        "AMPS_DATA_LENGTH": b"%d" % len(body),
    }
