"""Files of topics give back space that they do not use, in slices between other work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.sow.topic import SowTopic

_PAUSE: Final = 0.001
"""Seconds between two slices, in which messages get their turn."""


async def compact(topic: SowTopic) -> None:
    """Compact the file of a topic.

    Raises:
        StoreError: there is no room to work in.
    """
    for _ in topic.compact():
        await asyncio.sleep(_PAUSE)
