"""Dictionaries that lead to any number of items by key, most of them to a single one.

A dictionary for each key would take 232 bytes for one item, a tuple takes 64. A key that once had
several items keeps a dictionary: it keeps their order, and lets go of any of them at once.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
T = TypeVar("T", bound=Hashable)
"""What keys lead to."""

Crowd: TypeAlias = tuple[T, ...] | dict[T, None]
"""The items of one key, in the order in which they came; never empty."""


def put(crowds: dict[_Key, Crowd[T]], key: _Key, item: T) -> None:
    """Add an item to those of a key, which has it once however often it is added."""
    present = crowds.get(key)
    if present is None:
        crowds[key] = (item,)
    elif isinstance(present, dict):
        present[item] = None
    else:
        crowds[key] = dict.fromkeys((*present, item))


def take(crowds: dict[_Key, Crowd[T]], key: _Key, item: T) -> None:
    """Take an item from those of a key.

    Raises:
        KeyError: the key does not have it.
    """
    present = crowds[key]
    if isinstance(present, dict):
        del present[item]
        if not present:
            del crowds[key]
    elif item in present:  # the only one
        del crowds[key]
    else:
        raise KeyError(item)
