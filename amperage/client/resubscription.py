"""What to send to get a subscription back on a new connection.

A subscription is described by the header that would place it. Commands that change it (`replace`,
`pause`, `resume`) change the description as they change the subscription.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from amperage.wire.header import Header

_OPTION: Final = re.compile(r"\s*([^,=\[\]]+?)\s*(=\s*(?:\[[^\]]*\]|[^,]*))?\s*(?:,|$)")
_CHANGES: Final = frozenset({"replace", "resume"})
"""Options that make a command change a subscription, and would make no sense on a new one."""


def is_change(command: Header) -> bool:
    """Whether a command may change subscriptions instead of placing one."""
    return bool({"replace", "pause", "resume"} & _names(command))


def replaces(command: Header) -> bool:
    """Whether a command replaces the subscription that it names."""
    return "replace" in _names(command)


def places_none(command: Header) -> bool:
    """Whether a command is about other subscriptions and places none itself."""
    return "resume" in _names(command) or "," in (command.sub_id or "")


def gives_back(command: Header) -> bool:
    """Whether a command gives messages back to a queue."""
    return "cancel" in _names(command)


def changed(definition: Header, change: Header) -> Header:
    """Apply a command to the subscription that it names.

    Args:
        definition: what places the subscription.
        change: a subscribe command with the option `replace`, `pause` or `resume`.

    Returns:
        What places the changed subscription.
    """
    if replaces(change):
        return change
    kept = [text for name, text in _options(definition.options) if name != "pause"]
    if "pause" in _names(change):
        kept.append("pause")
    return replace(definition, short_options=",".join(kept) or None, long_options=None)


def again(definition: Header, *, bookmark: str | None, after_query: bool) -> Header:
    """Place a subscription again.

    Args:
        definition: what placed it.
        bookmark: where it is to resume; None for a subscription without a bookmark.
        after_query: whether the records of its query have all come. A query as of a bookmark is not
            repeated then: its records would be older than the updates that have followed them.

    Returns:
        The header of the command.
    """
    kept = [text for name, text in _options(definition.options) if name not in _CHANGES]
    header = replace(definition, short_options=",".join(kept) or None, long_options=None)
    if bookmark is None:
        return header
    header.bookmark = bookmark
    if after_query and header.command.startswith("sow_and_"):
        header.command = header.command.removeprefix("sow_and_")
        header.query_id = header.order_by = header.sow_keys = None
        header.batch_size = header.top_n = None
    return header


def _names(command: Header) -> set[str]:
    return {name for name, _ in _options(command.options)}


def _options(text: str | None) -> Iterator[tuple[str, str]]:
    """The options as names and texts; a value in brackets may have commas of its own."""
    for match in _OPTION.finditer(text or ""):
        yield match[1], match[1] + (match[2] or "")
