"""Slabs that are damaged at random.

A module of its own: `support` is imported by every process that tests kill, and hypothesis takes
half a second.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st


def spoiled(data: st.DataObject, parts: Sequence[bytes]) -> bytearray:
    """What a slab has if a few of the bytes that were there are others."""
    slab = bytearray(b"".join(parts))
    for place, byte in data.draw(
        st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4)
    ):
        if place < len(slab):
            slab[place] = byte
    return slab
