"""Multimaps: dictionaries with any number of items per key, mostly a single one.

A dictionary for each key would take 232 bytes for one item, and a tuple 64, so a single item is
stored directly. A key that once had several items keeps a dictionary: that retains their order, and
removes any of them in constant time.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Protocol, TypeAlias, TypeVar

_Key = TypeVar("_Key", bound=Hashable, contravariant=True)
T = TypeVar("T", bound=Hashable)
"""The type of items; it is no dictionary."""

MultimapItems: TypeAlias = T | dict[T, None]
"""The items of one key, in insertion order: the only one, or a dictionary of them."""


class Multimap(Protocol[_Key, T]):
    """A mapping of keys to their items."""

    def get(self, key: _Key, /) -> MultimapItems[T] | None:
        """Return the items of a key; None if there are none."""

    def __getitem__(self, key: _Key, /) -> MultimapItems[T]:
        """Return the items of a key."""

    def __setitem__(self, key: _Key, items: MultimapItems[T], /) -> None:
        """Set the items of a key."""

    def __delitem__(self, key: _Key, /) -> None:
        """Remove a key with its items."""


def members(items: MultimapItems[T]) -> Collection[T]:
    """Return the items of a key as a collection."""
    return items if isinstance(items, dict) else (items,)


def with_item(items: MultimapItems[T] | None, item: T) -> MultimapItems[T]:
    """Return the items of a key with another item, which is stored once however often it is added.

    Args:
        items: the items so far, which may be changed in place; None for none.
        item: the item.
    """
    if items is None:
        return item
    if isinstance(items, dict):
        items[item] = None
        return items
    return items if items == item else {items: None, item: None}


def without_item(items: MultimapItems[T] | None, item: T) -> MultimapItems[T] | None:
    """Return the items of a key without one; None if there are no others.

    Args:
        items: the items so far, which may be changed in place; None for none.
        item: the item.

    Raises:
        KeyError: the key does not have it.
    """
    if isinstance(items, dict):
        del items[item]
        return items or None
    if items is None or items != item:
        raise KeyError(item)
    return None


def add_item(multimap: Multimap[_Key, T], key: _Key, item: T) -> None:
    """Add an item to a key. See `with_item`."""
    multimap[key] = with_item(multimap.get(key), item)


def discard_item(multimap: Multimap[_Key, T], key: _Key, item: T) -> None:
    """Remove an item from a key.

    Raises:
        KeyError: the key does not have it.
    """
    others = without_item(multimap[key], item)
    if others is None:
        del multimap[key]
    else:
        multimap[key] = others
