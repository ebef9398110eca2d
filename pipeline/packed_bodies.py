"""Bodies in one buffer, as in journals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Self, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

OffsetArray = npt.NDArray[np.int64]


class PackedBodies(Sequence[memoryview]):
    """A sequence of bodies in one buffer; a view of each is created on access.

    Args:
        data: the bytes that contain the bodies.
        starts: the offsets where they begin.
        ends: the offsets where they end.
    """

    __slots__ = ("_view", "data", "ends", "starts")

    def __init__(self, data: bytes, starts: OffsetArray, ends: OffsetArray) -> None:
        self.data = data
        self.starts = starts
        self.ends = ends
        self._view = memoryview(data)

    @classmethod
    def concatenate(cls, parts: Sequence[PackedBodies]) -> PackedBodies:
        """Concatenate buffers of bodies."""
        if len(parts) == 1:
            return parts[0]
        shifts = np.cumsum([0, *(len(part.data) for part in parts)])[:-1]
        shifted = list(zip(parts, shifts, strict=True))
        return cls(
            b"".join(part.data for part in parts),
            np.concatenate([part.starts + shift for part, shift in shifted]),
            np.concatenate([part.ends + shift for part, shift in shifted]),
        )

    def slice_range(self, start: int, stop: int) -> Self:
        """Return the bodies from an index to before another one."""
        return type(self)(self.data, self.starts[start:stop], self.ends[start:stop])

    def to_list(self) -> list[bytes]:
        """Return a copy of each body."""
        places = map(slice, self.starts.tolist(), self.ends.tolist())
        return list(map(self.data.__getitem__, places))

    def to_arrow(self) -> pa.Array:
        """Return the bodies as an Arrow array, without copying the buffer.

        If there are other bytes between the bodies, these become values of the array as well, and
        every other value is taken.
        """
        count = len(self)
        if count == 0 or np.array_equal(self.starts[1:], self.ends[:-1]):
            offsets = np.append(self.starts, self.ends[-1:] if count else 0).astype(np.int32)
            return _binary(offsets, self.data)
        borders = np.stack((self.starts, self.ends), axis=1).reshape(-1).astype(np.int32)
        every_other = pa.array(np.arange(0, len(borders) - 1, 2))
        return _binary(borders, self.data).take(every_other)

    def select(self, places: Iterable[int]) -> Self:
        """Return the bodies at some indexes."""
        selected = np.fromiter(places, np.int64)
        return type(self)(self.data, self.starts[selected], self.ends[selected])

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[memoryview]:
        return map(self._view.__getitem__, map(slice, self.starts.tolist(), self.ends.tolist()))

    @overload
    def __getitem__(self, index: int) -> memoryview: ...

    @overload
    def __getitem__(self, index: slice) -> list[memoryview]: ...

    def __getitem__(self, index: int | slice) -> memoryview | list[memoryview]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return self._view[self.starts[index] : self.ends[index]]


def _binary(offsets: npt.NDArray[np.int32], data: bytes) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
