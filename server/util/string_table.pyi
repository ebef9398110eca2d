"""A dictionary of texts with batched lookups, in C; see string_table.pyx."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

class StringTable(Generic[T]):
    """Maps keys, nearly all of which are texts, to values; None is no value."""

    def __len__(self) -> int: ...
    def get(self, key: object) -> T | None:
        """Return the value of a key; None if it has none.

        Raises:
            TypeError: the key has no hash.
        """

    def get_all(self, keys: Sequence[object]) -> list[T | None]:
        """Return the value of each of some keys. See `get`."""

    def expect(self, keys: Iterable[object]) -> None:
        """Prefetch the slots of some keys, a few hundred, into the processor's caches."""

    def __getitem__(self, key: Hashable) -> T: ...
    def __setitem__(self, key: Hashable, value: T) -> None: ...
    def __delitem__(self, key: Hashable) -> None: ...
