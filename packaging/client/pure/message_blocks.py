"""Messages as columns, where amperage/wire/message_blocks.pyx is not compiled.

`amperage.client.blocks` reads one by one the messages that these functions leave.
"""

from __future__ import annotations

from typing import Final

FIELDS: Final = (
    "topic",
    "sow_key",
    "bookmark",
    "timestamp",
    "correlation_id",
    "user_id",
    "expiration",
)


def read_records(content: bytes) -> None:
    """Leave the records of a `sow` frame to `amperage.client.blocks`."""


def read_publications(frames: list[tuple[bytes, bytes]], first: int) -> None:
    """Leave publications to `amperage.client.blocks`."""
