"""Having the processor fetch what is needed next, while it does other things."""

from collections.abc import Sequence

def prefetch(objects: Sequence[object]) -> None:
    """Have the beginnings of objects in the processor's caches soon.

    Args:
        objects: a list of them.
    """
