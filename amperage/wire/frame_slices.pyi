"""Frames in a row, in C; the theory of it is in frame_slices.pyx."""

from collections.abc import Iterator, Sequence
from typing import overload

class Places(Sequence[bytes]):
    """Pieces of what was read, in order. Objects are made of those that are asked for."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[bytes]:
        """Goes through all of them, which makes all objects, once."""

    @overload
    def __getitem__(self, which: int) -> bytes: ...
    @overload
    def __getitem__(self, which: slice) -> Sequence[bytes]: ...
    def all(self) -> list[bytes]:
        """All of them as objects, which are made once; nobody changes the list."""

def cut_run(
    chunk: bytes, start: int, left: bytes, right: bytes | None, limit: int
) -> tuple[Places, Places, int]:
    """Cut whole frames in a row whose headers have one shape.

    Args:
        chunk: bytes of the stream.
        start: where a frame begins in them.
        left: the header, or what stands in it before a number.
        right: the end of the header behind that number; None if it has none.
        limit: the largest frame accepted, in bytes.

    Returns:
        The bodies; the numbers' digits, none if there is none; where the next frame begins, which
        has another shape, is not complete, or too large.
    """

def framed(bodies: Sequence[bytes], left: bytes, right: bytes) -> bytes:
    """Put bodies into frames, one behind the other.

    Args:
        bodies: the bodies.
        left: the header up to the length of the body.
        right: its end behind that.
    """

def framed_for(sub_id: str, body: bytes, left: bytes, keys: bytes) -> bytes:
    """Put a body into a frame for one subscription.

    Args:
        sub_id: the id of the subscription, which JSON needs not escape.
        body: the body.
        left: the header up to the length of the body.
        keys: further keys of the header, as JSON text, each with its leading comma.
    """

def framed_for_each(
    sub_ids: Sequence[str | None], bodies: Sequence[bytes], left: bytes, keys: bytes
) -> list[bytes | None]:
    """Put bodies into frames, each for one subscription. See `framed_for`.

    Args:
        sub_ids: a list of the ids; None for a body of which no frame is wanted.
        bodies: as many bodies.
        left: see above.
        keys: see above.

    Returns:
        The frames; None where there is no id.
    """
