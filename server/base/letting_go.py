"""Letting go of much, a little at a time.

What has been made for a client, such as a hundred thousand groups, takes long to be freed, and
would be freed in one go with the last reference to it.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

_AT_ONCE: Final = 1000
"""Entries that are let go of in a slice."""


class LettingGo:
    """Empties dictionaries that nobody needs any more.

    Args:
        client: the name of whose they were.
        contents: the dictionaries.
    """

    def __init__(self, client: str, *contents: MutableMapping[Any, Any]) -> None:
        self._client = client
        self._contents = [some for some in contents if some]

    @property
    def doing(self) -> tuple[str, str]:
        """See `Sliced.doing`."""
        return self._client, "letting go"

    def step(self) -> bool:
        """See `Sliced.step`."""
        contents = self._contents
        if contents:
            some = contents[-1]
            for _ in range(min(_AT_ONCE, len(some))):
                some.popitem()
            if not some:
                contents.pop()
        return bool(contents)
