"""Compacts the files of topics in time slices, so that they release unused space."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.storage.sow.topic_records import SowTopicRecords

_PAUSE: Final = 0.001
"""Seconds between two slices, for the processing of messages."""


async def compact(topic: SowTopicRecords) -> None:
    """Compact the file of a topic.

    Raises:
        RecordStoreError: there is no free space to work in.
    """
    for _ in topic.compact():
        await asyncio.sleep(_PAUSE)
