"""A dictionary of texts that many are looked up in at once, in C; the theory is in texts.pyx."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

class TextTable(Generic[T]):
    """Values by keys, nearly all of which are texts; None is no value."""

    def __len__(self) -> int: ...
    def get(self, key: object) -> T | None:
        """The value of a key; None if it has none.

        Raises:
            TypeError: it has no hash.
        """

    def get_all(self, keys: Sequence[object]) -> list[T | None]:
        """The value of each of some keys. See `get`."""

    def expect(self, keys: Iterable[object]) -> None:
        """Have the places of some keys, a few hundred, in the processor's caches soon."""

    def __getitem__(self, key: Hashable) -> T: ...
    def __setitem__(self, key: Hashable, value: T) -> None: ...
    def __delitem__(self, key: Hashable) -> None: ...
