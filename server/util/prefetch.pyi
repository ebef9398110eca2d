"""Prefetch of objects into the processor's caches, while it executes other code."""

from collections.abc import Sequence

def prefetch(objects: Sequence[object]) -> None:
    """Prefetch the beginnings of objects into the processor's caches.

    Args:
        objects: a list of objects.
    """
