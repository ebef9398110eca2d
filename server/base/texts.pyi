"""A dictionary of texts that many are looked up in at once, in C; the theory is in texts.pyx."""

from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

class TextTable(Generic[T]):
    """Values by texts; None is none."""

    def __len__(self) -> int: ...
    def get(self, text: object) -> T | None:
        """The value of a text; None if it has none, or is no text.

        Raises:
            TypeError: it is no text, and has no hash.
        """

    def get_all(self, texts: Sequence[object]) -> list[T | None]:
        """The value of each of some texts. See `get`."""

    def __getitem__(self, text: str) -> T: ...
    def __setitem__(self, text: str, value: T) -> None: ...
    def __delitem__(self, text: str) -> None: ...
