"""The ids of entries that have names."""

from __future__ import annotations

from collections.abc import Iterable


def topic_ids(names: Iterable[tuple[str, str]]) -> list[str]:
    """Return the ids of topics: several of one name may have different message types.

    Args:
        names: for each topic its name, and the name of its message type.

    Source: Deployment Checklist, SOW Topic Traffic Metrics.
    """
    return [f"{name}!{message_type}" for name, message_type in names]
