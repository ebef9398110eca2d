"""Reads a few fields of a JSON body, in C; json_fields.pyx describes the design."""

from collections.abc import Callable, Iterable, Sequence

from server.message_types.base import Value
from server.message_types.bulk import JoinedBodies, RawColumn
from server.message_types.json_read import JsonPathNode
from server.message_types.paths import Path

class FieldReader:
    """Reads the wanted members of bodies; the first of equal names counts. Use one per thread.

    Args:
        members: the wanted members of the outermost object.
        slots: number of values of a body.
        text: reads a text that has escapes or is no UTF-8, quotes included.
        number: reads a number that a double or 64 bits may not hold exactly.
        part: reads an array, or a member with `by_parts`: returns a value for each of `below`, or
            None if it cannot read them.
        scan: reads a body that is not plain.
        octets: encodes any text.
    """

    def __init__(
        self,
        members: Sequence[JsonPathNode],
        slots: int,
        text: Callable[[bytes], str],
        number: Callable[[bytes], Value],
        part: Callable[[bytes, Sequence[tuple[int, Path]]], Sequence[Value] | None],
        scan: Callable[[bytes], tuple[Value, ...]],
        octets: Callable[[str], bytes],
    ) -> None: ...
    def read(self, body: bytes) -> tuple[Value, ...]:
        """Return the values of one body, by slot. Never raises."""

    def read_all(self, bodies: Sequence[bytes]) -> list[tuple[Value, ...]]:
        """Return for each slot the values of all bodies. Never raises."""

    def read_columns(self, joined: Iterable[JoinedBodies], count: int) -> Sequence[RawColumn]:
        """Return for each slot the values of all bodies as a `RawColumn`.

        Args:
            joined: the bodies.
            count: their total number.

        Raises:
            ValueError: there are fewer or more bodies, or one is outside its data.
        """
