"""What entries that have names are called."""

from __future__ import annotations

from collections.abc import Iterable


def topic_ids(names: Iterable[tuple[str, str]]) -> list[str]:
    """The ids of topics: there may be several of one name, of different message types.

    Args:
        names: of each its name, and the name of its message type.

    Source: Deployment Checklist, SOW Topic Traffic Metrics.
    """
    return [f"{name}!{message_type}" for name, message_type in names]
