"""Lazy free: frees large dictionaries incrementally, so that no slice pays for all of it.

A client's data, such as a hundred thousand groups, takes long to free, and would be freed at once
with the last reference to it.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

_BATCH_SIZE: Final = 1000
"""Entries that are freed per slice."""


class LazyFree:
    """Empties dictionaries that are not used any more.

    Args:
        client: the name of the client that they belonged to.
        contents: the dictionaries.
    """

    def __init__(self, client: str, *contents: MutableMapping[Any, Any]) -> None:
        self._client = client
        self._contents = [entries for entries in contents if entries]

    @property
    def task_label(self) -> tuple[str, str]:
        """The client, and the kind of work. See `EngineTask.task_label`."""
        return self._client, "lazy free"

    def step(self) -> bool:
        """Free some entries. See `EngineTask.step`."""
        contents = self._contents
        if contents:
            entries = contents[-1]
            for _ in range(min(_BATCH_SIZE, len(entries))):
                entries.popitem()
            if not entries:
                contents.pop()
        return bool(contents)
