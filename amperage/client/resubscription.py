"""The commands that restore subscriptions on a new connection.

A subscription is defined by the header of the command that would create it. Commands that change
the subscription (`replace`, `pause`, `resume`) change this definition in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from amperage.wire.header import Header

_OPTION: Final = re.compile(r"\s*([^,=\[\]]+?)\s*(=\s*(?:\[[^\]]*\]|[^,]*))?\s*(?:,|$)")
_CHANGES: Final = frozenset({"replace", "resume"})
"""Options that make a command change a subscription, and are invalid for a new one."""


def is_change(command: Header) -> bool:
    """Return whether a command may change subscriptions instead of creating one."""
    return bool({"replace", "pause", "resume"} & _names(command))


def replaces(command: Header) -> bool:
    """Return whether a command replaces the subscription that it names."""
    return "replace" in _names(command)


def creates_none(command: Header) -> bool:
    """Return whether a command only changes other subscriptions, and creates none itself."""
    return "resume" in _names(command) or "," in (command.sub_id or "")


def returns_leases(command: Header) -> bool:
    """Return whether a command returns messages to a queue."""
    return "cancel" in _names(command)


def changed(definition: Header, change: Header) -> Header:
    """Apply a command to the definition of the subscription that it names.

    Args:
        definition: the header that creates the subscription.
        change: a subscribe command with the option `replace`, `pause` or `resume`.

    Returns:
        The header that creates the changed subscription.
    """
    if replaces(change):
        return change
    remaining_options = [text for name, text in _options(definition.options) if name != "pause"]
    if "pause" in _names(change):
        remaining_options.append("pause")
    return replace(definition, short_options=",".join(remaining_options) or None, long_options=None)


def resubscribe_command(definition: Header, *, bookmark: str | None, after_query: bool) -> Header:
    """Return the command that creates a subscription again.

    Args:
        definition: the header that created it.
        bookmark: the bookmark to resume from; None for a subscription without a bookmark.
        after_query: whether all records of its query have arrived. A query at a bookmark is then
            not repeated: its records would be older than the updates received after them.

    Returns:
        The header of the command.
    """
    remaining_options = [
        text for name, text in _options(definition.options) if name not in _CHANGES
    ]
    header = replace(
        definition, short_options=",".join(remaining_options) or None, long_options=None
    )
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
    """Yield the options as names and texts; a value in brackets may contain commas."""
    for match in _OPTION.finditer(text or ""):
        yield match[1], match[1] + (match[2] or "")
