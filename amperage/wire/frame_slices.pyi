"""Frames in a row, in C; the theory of it is in frame_slices.pyx."""

from collections.abc import Iterator, Sequence
from typing import overload

class FrameSlices(Sequence[bytes]):
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

def framed(bodies: Sequence[bytes], left: bytes, right: bytes) -> bytes:
    """Put bodies into frames, one behind the other.

    Args:
        bodies: the bodies.
        left: the header up to the length of the body.
        right: its end behind that.
    """

class SharedFrames:
    """Frames that refer to their bodies. `bytes` copies them."""

    def __len__(self) -> int: ...
    def __bytes__(self) -> bytes: ...

def framed_shared(bodies: Sequence[bytes], left: bytes, right: bytes) -> bytes | SharedFrames:
    """Put bodies into frames, and copy no bodies that are long; see `framed`."""

def framed_for(sub_id: str, body: bytes, left: bytes, keys: bytes) -> bytes:
    """Put a body into a frame for one subscription.

    Args:
        sub_id: the id of the subscription, which JSON needs not escape.
        body: the body.
        left: the header up to the length of the body.
        keys: further keys of the header, as JSON text, each with its leading comma.
    """

def framed_for_each(
    sub_ids: Sequence[str | None], bodies: Sequence[bytes], lefts: list[bytes], keys: bytes
) -> list[bytes | None]:
    """Put bodies into frames, each for one subscription. See `framed_for`.

    Args:
        sub_ids: a list of the ids; None for a body of which no frame is wanted.
        bodies: as many bodies.
        lefts: the header of each up to the length of the body.
        keys: see above.

    Returns:
        The frames; None where there is no id.
    """

class HeaderParts:
    """The parts of headers around the body's length, by the key of a kind of message."""

    def __len__(self) -> int: ...
    def set(
        self,
        key: int,
        left: bytes,
        keys: bytes,
        right: bytes,
        *,
        has_sow_key: bool = False,
        has_timestamp: bool = False,
        has_bookmark: bool = False,
    ) -> None:
        """Set the parts for messages with a key.

        Args:
            key: the key, not negative and small: memory is proportional to the largest one.
            left: the header up to the length of the body, or to the SOW key before that.
            keys: the keys behind the length that all these messages have.
            right: its end, behind timestamp and bookmark.
            has_sow_key: whether headers have the SOW key of the message.
            has_timestamp: whether they have the timestamp.
            has_bookmark: whether they have the bookmark of the message, if it has one.
        """

    def discard(self, key: int) -> None:
        """Frame no more messages with a key."""

def framed_by_key(
    bodies: Sequence[bytes],
    keys: Sequence[int],
    parts: HeaderParts,
    sow_keys: Sequence[int] = ...,
    timestamp: bytes = ...,
    publisher: int = ...,
    numbers: Sequence[int] = ...,
) -> tuple[bytes, int]:
    """Put bodies into frames, one behind the other, with headers of several kinds.

    Args:
        bodies: the bodies.
        keys: a list of the key of each body.
        parts: the parts of the headers, by key; bodies with other keys are left out.
        sow_keys: a list of the SOW key of each body, below 2**64; empty if no header has one.
        timestamp: the header key of the timestamp.
        publisher: the publisher's identity in bookmarks.
        numbers: the number of each body in its bookmark, 0 for none; empty if no body has one.

    Returns:
        The frames, and how many there are.
    """
