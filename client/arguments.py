"""What callers give: checked before anything is queued, so that a mistake costs its call alone.

A wrong type is a TypeError that names the argument. Without the check, some would be sent as
something else: bytes as base64, one text as a list of its letters.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Final

from client.limits import LARGEST_BODY

Body = bytes | bytearray | memoryview | str
"""What can be published. A text is sent as UTF-8."""

_LARGEST: Final = (1 << 63) - 1


def body_bytes(body: Body) -> bytes:
    """A message's data as bytes.

    Raises:
        TypeError: it is neither bytes nor text.
        ValueError: it is text that UTF-8 cannot express, or larger than a message may be.
    """
    if isinstance(body, str):
        data = encoded("body", body)
    elif isinstance(body, bytes | bytearray | memoryview):
        data = bytes(body)
    else:
        raise TypeError(f"body: expected bytes or str, not {_kind(body)}")
    if len(data) > LARGEST_BODY:
        raise ValueError(f"body: expected {LARGEST_BODY} bytes at most, not {len(data)}")
    return data


def all_bodies(bodies: Iterable[Body]) -> Iterable[Body]:
    """The bodies of several messages.

    Raises:
        TypeError: it is one body.
    """
    if isinstance(bodies, str | bytes | bytearray | memoryview):
        raise TypeError(f"bodies: expected several messages, not one {_kind(bodies)}")
    return bodies


def required_text(name: str, value: str) -> str:
    """A text that has to be there.

    Raises:
        TypeError: it is something else.
        ValueError: UTF-8 cannot express it.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected str, not {_kind(value)}")
    encoded(name, value)
    return value


def text(name: str, value: str | None) -> str | None:
    """A text or None; raises as `required_text` does."""
    return None if value is None else required_text(name, value)


def number(name: str, value: int | None) -> int | None:
    """A number of a header, or None.

    Raises:
        TypeError: it is something else.
        ValueError: it does not fit into a header.
    """
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name}: expected int, not {_kind(value)}")
    if not 0 <= value <= _LARGEST:
        raise ValueError(f"{name}: expected 0 to {_LARGEST}, not {value}")
    return value


def texts(name: str, values: Iterable[str] | None) -> tuple[str, ...]:
    """Several texts; None is none.

    Raises:
        TypeError: it is one text, or something else.
    """
    if values is None:
        return ()
    if isinstance(values, str | bytes):
        raise TypeError(f"{name}: expected a list of texts, not one {_kind(values)}")
    return tuple(required_text(name, value) for value in values)


def choice(name: str, value: str, choices: Collection[str]) -> str:
    """One of a few texts.

    Raises:
        TypeError: it is no text.
        ValueError: it is none of them.
    """
    if required_text(name, value) not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(choices)}, not {value!r}")
    return value


def seconds(name: str, value: float) -> float:
    """A time to wait.

    Raises:
        TypeError: it is no number.
        ValueError: it is "not a number".
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name}: expected seconds, not {_kind(value)}")
    if math.isnan(value):
        raise ValueError(f"{name}: expected seconds, not {value}")
    return value


def milliseconds(name: str, value: float) -> int:
    """A time in seconds that a header gives in milliseconds.

    Raises:
        TypeError: it is no number.
        ValueError: it is negative, endless or "not a number".
    """
    if not 0 <= seconds(name, value) < math.inf:
        raise ValueError(f"{name}: expected seconds from 0 up, not {value}")
    return round(value * 1000)


def handler(name: str, value: object) -> None:
    """Check what is to be called later, or None.

    Raises:
        TypeError: it cannot be called.
    """
    if value is not None and not callable(value):
        raise TypeError(f"{name}: expected a function, not {_kind(value)}")


def several(name: str, values: Iterable[object], what: str) -> None:
    """Check what is gone through one by one: a text would be taken for a list of its letters.

    Raises:
        TypeError: it is one text, or nothing that has members.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(f"{name}: expected a list of {what}, not one {_kind(values)}")


def joined(name: str, values: Iterable[str] | None) -> str | None:
    """A comma-separated list, or None for none; raises as `texts` does."""
    return ",".join(texts(name, values)) or None


def encoded(name: str, value: str) -> bytes:
    """A text as UTF-8.

    Raises:
        ValueError: it has halves of surrogate pairs.
    """
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name}: no UTF-8 can be made of it: {error}") from None


def _kind(value: object) -> str:
    return type(value).__name__
