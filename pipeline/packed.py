"""Bodies that lie in one piece of memory, as journals have them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Self, overload

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int64]


class Bodies(Sequence[memoryview]):
    """Bodies where they lie: a view of each, made when it is asked for.

    Args:
        data: bytes among which they are.
        starts: where they begin.
        ends: and end.
    """

    __slots__ = ("_view", "data", "ends", "starts")

    def __init__(self, data: bytes, starts: Places, ends: Places) -> None:
        self.data = data
        self.starts = starts
        self.ends = ends
        self._view = memoryview(data)

    @classmethod
    def of(cls, bodies: Sequence[bytes | memoryview]) -> Self:
        """Put bodies one behind the other."""
        ends = np.cumsum(np.fromiter(map(len, bodies), np.int64, len(bodies)), dtype=np.int64)
        starts = np.zeros_like(ends)
        starts[1:] = ends[:-1]
        return cls(b"".join(bodies), starts, ends)

    def some(self, places: Iterable[int]) -> Self:
        """Those at some places."""
        chosen = np.fromiter(places, np.int64)
        return type(self)(self.data, self.starts[chosen], self.ends[chosen])

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[memoryview]:
        return map(self._view.__getitem__, map(slice, self.starts.tolist(), self.ends.tolist()))

    @overload
    def __getitem__(self, place: int) -> memoryview: ...

    @overload
    def __getitem__(self, place: slice) -> list[memoryview]: ...

    def __getitem__(self, place: int | slice) -> memoryview | list[memoryview]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        return self._view[self.starts[place] : self.ends[place]]
