"""Reading a few fields of a JSON body, in C; the theory of it is in json_fields.pyx."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from server.message_types.base import Value
from server.message_types.bulk import JoinedBodies, RawColumn
from server.message_types.paths import Path

class WantedMember(Protocol):
    """A member of an object that paths lead to or through."""

    @property
    def name(self) -> bytes:
        """Its name, encoded."""

    @property
    def slot(self) -> int:
        """Of the path that ends here, -1 if none does."""

    @property
    def below(self) -> Sequence[tuple[int, Path]]:
        """Of all paths that come by: the slot, and what is left of the path."""

    @property
    def members(self) -> Sequence[WantedMember]:
        """What is wanted of its members, if it is an object."""

    @property
    def by_parts(self) -> bool:
        """Whether its value is always given to `part`."""

class FieldReader:
    """Reads the wanted members of bodies; the first of equal names counts. Use one per thread.

    Args:
        members: what is wanted of the outermost object.
        slots: how many values a body gives.
        text: reads a text that has escapes or is no UTF-8, quotes included.
        number: reads a number that a double or 64 bits may not hold exactly.
        part: reads an array, or what `by_parts` is true of: gives a value for each of `below`, or
            None if it cannot.
        scan: reads a body that is not plain.
        octets: encodes a text, whatever it is.
    """

    def __init__(
        self,
        members: Sequence[WantedMember],
        slots: int,
        text: Callable[[bytes], str],
        number: Callable[[bytes], Value],
        part: Callable[[bytes, Sequence[tuple[int, Path]]], Sequence[Value] | None],
        scan: Callable[[bytes], tuple[Value, ...]],
        octets: Callable[[str], bytes],
    ) -> None: ...
    def read(self, body: bytes) -> tuple[Value, ...]:
        """The values of one body, by slot. Never raises."""

    def read_all(self, bodies: Sequence[bytes]) -> list[tuple[Value, ...]]:
        """For each slot the values of all bodies. Never raises."""

    def read_columns(self, joined: Iterable[JoinedBodies], count: int) -> Sequence[RawColumn]:
        """For each slot the values of all bodies as a `RawColumn`.

        Args:
            joined: the bodies.
            count: how many these are altogether.

        Raises:
            ValueError: there are fewer or more, or one does not lie in its data.
        """
