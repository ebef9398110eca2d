"""Dictionaries that lead to any number of items by key, most of them to a single one.

A dictionary for each key would take 232 bytes for one item, and a tuple 64, so a single one is
there itself. A key that once had several items keeps a dictionary: it keeps their order, and lets
go of any of them at once.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Protocol, TypeAlias, TypeVar

_Key = TypeVar("_Key", bound=Hashable, contravariant=True)
T = TypeVar("T", bound=Hashable)
"""What keys lead to; it is no dictionary."""

Crowd: TypeAlias = T | dict[T, None]
"""The items of one key, in the order in which they came: the only one, or a dictionary of them."""


class Crowds(Protocol[_Key, T]):
    """What leads to items by key."""

    def get(self, key: _Key, /) -> Crowd[T] | None:
        """Those of a key; None if there are none."""

    def __getitem__(self, key: _Key, /) -> Crowd[T]:
        """Those of a key."""

    def __setitem__(self, key: _Key, crowd: Crowd[T], /) -> None:
        """Give a key its items."""

    def __delitem__(self, key: _Key, /) -> None:
        """Leave a key without any."""


def members(crowd: Crowd[T]) -> Collection[T]:
    """The items of a key."""
    return crowd if isinstance(crowd, dict) else (crowd,)


def joined(crowd: Crowd[T] | None, item: T) -> Crowd[T]:
    """Those of a key, and another item, which is there once however often it is added.

    Args:
        crowd: those that there are, which become others; None for none.
        item: the item.
    """
    if crowd is None:
        return item
    if isinstance(crowd, dict):
        crowd[item] = None
        return crowd
    return crowd if crowd == item else {crowd: None, item: None}


def left(crowd: Crowd[T] | None, item: T) -> Crowd[T] | None:
    """Those of a key without one; None if there are no others.

    Args:
        crowd: those that there are, which become others; None for none.
        item: the item.

    Raises:
        KeyError: the key does not have it.
    """
    if isinstance(crowd, dict):
        del crowd[item]
        return crowd or None
    if crowd is None or crowd != item:
        raise KeyError(item)
    return None


def put(crowds: Crowds[_Key, T], key: _Key, item: T) -> None:
    """Add an item to those of a key. See `joined`."""
    crowds[key] = joined(crowds.get(key), item)


def take(crowds: Crowds[_Key, T], key: _Key, item: T) -> None:
    """Take an item from those of a key.

    Raises:
        KeyError: the key does not have it.
    """
    others = left(crowds[key], item)
    if others is None:
        del crowds[key]
    else:
        crowds[key] = others
