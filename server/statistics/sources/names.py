"""What entries that have names are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def distinct(names: Iterable[tuple[str, str]]) -> list[str]:
    """The ids of topics: their names, or if two have the same one, with their message types.

    Args:
        names: of each its name, and the name of its message type.
    """
    topics = list(names)
    times = Counter(name for name, _ in topics)
    return [name if times[name] == 1 else f"{name}-{kind}" for name, kind in topics]
