"""Checks of arguments, made before a command is queued, so that a mistake affects one call only.

A wrong type is a TypeError that names the argument. Without the check, some values would be sent
wrongly: bytes as base64, one text as a list of its letters.
"""

from __future__ import annotations

import inspect
import math
import uuid
from collections.abc import Callable, Collection, Iterable
from typing import Final

from amperage.client.limits import MAX_BODY_SIZE

MessageBody = bytes | bytearray | memoryview | str
"""The types of a message's body. A text is sent as UTF-8."""

_MAX_NUMBER: Final = (1 << 63) - 1


def body_bytes(body: MessageBody) -> bytes:
    """Return a message's body as bytes.

    Raises:
        TypeError: it is neither bytes nor text.
        ValueError: it is text that UTF-8 cannot encode, or is too large.
    """
    if isinstance(body, str):
        data = encoded("body", body)
    elif isinstance(body, bytes | bytearray | memoryview):
        data = bytes(body)
    else:
        raise TypeError(f"body: expected bytes or str, not {_kind(body)}")
    if len(data) > MAX_BODY_SIZE:
        raise ValueError(f"body: expected {MAX_BODY_SIZE} bytes at most, not {len(data)}")
    return data


def all_bodies(bodies: Iterable[MessageBody]) -> Iterable[MessageBody]:
    """Return the bodies of several messages.

    Raises:
        TypeError: the argument is one body.
    """
    if isinstance(bodies, str | bytes | bytearray | memoryview):
        raise TypeError(f"bodies: expected several messages, not one {_kind(bodies)}")
    return bodies


def required_text(name: str, value: str) -> str:
    """Return a mandatory text.

    Raises:
        TypeError: the value is not text.
        ValueError: UTF-8 cannot encode it.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected str, not {_kind(value)}")
    encoded(name, value)
    return value


def text(name: str, value: str | None) -> str | None:
    """Return a text or None. Raises the errors of `required_text`."""
    return None if value is None else required_text(name, value)


def number(name: str, value: int | None) -> int | None:
    """Return a number for a header, or None.

    Raises:
        TypeError: the value is not a whole number.
        ValueError: it is out of range for a header.
    """
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name}: expected int, not {_kind(value)}")
    if not 0 <= value <= _MAX_NUMBER:
        raise ValueError(f"{name}: expected 0 to {_MAX_NUMBER}, not {value}")
    return value


def texts(name: str, values: Iterable[str] | None) -> tuple[str, ...]:
    """Return several texts; an empty tuple for None.

    Raises:
        TypeError: the argument is one text, or not a list of texts.
    """
    if values is None:
        return ()
    if isinstance(values, str | bytes):
        raise TypeError(f"{name}: expected a list of texts, not one {_kind(values)}")
    return tuple(required_text(name, value) for value in values)


def choice(name: str, value: str, choices: Collection[str]) -> str:
    """Return a text that must be one of several.

    Raises:
        TypeError: the value is not text.
        ValueError: it is none of the choices.
    """
    if required_text(name, value) not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(choices)}, not {value!r}")
    return value


def seconds(name: str, value: float) -> float:
    """Return a timeout in seconds.

    Raises:
        TypeError: the value is not a number.
        ValueError: it is NaN.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name}: expected seconds, not {_kind(value)}")
    if math.isnan(value):
        raise ValueError(f"{name}: expected seconds, not {value}")
    return value


def milliseconds(name: str, value: float) -> int:
    """Convert a time in seconds to milliseconds, for a header.

    Raises:
        TypeError: the value is not a number.
        ValueError: it is negative, infinite or NaN.
    """
    if not 0 <= seconds(name, value) < math.inf:
        raise ValueError(f"{name}: expected seconds from 0 up, not {value}")
    return round(value * 1000)


def handler(name: str, value: object, *, may_be_async: bool = False) -> None:
    """Check a callback, or None.

    Args:
        name: the name of the argument.
        value: the callback.
        may_be_async: whether the client awaits the results of coroutine functions.

    Raises:
        TypeError: it is not callable, or is a coroutine function, which would not be awaited.
    """
    if value is None:
        return
    if not callable(value):
        raise TypeError(f"{name}: expected a function, not {_kind(value)}")
    if not may_be_async and _is_async(value):
        raise TypeError(
            f"{name}: expected a plain function, not a coroutine function (async def):"
            " nothing would await it"
        )


def call_blocking_callback(name: str, callback: Callable[..., object], *arguments: object) -> None:
    """Call a callback of a blocking client.

    Raises:
        TypeError: it has returned a coroutine, which would not be awaited.
    """
    if inspect.iscoroutine(answer := callback(*arguments)):
        answer.close()
        raise TypeError(f"{name}: expected a plain function, not one that returns a coroutine")


def methods(name: str, value: object, method_names: Iterable[str]) -> None:
    """Check an object by the methods that the client calls, or None.

    Args:
        name: the name of the argument.
        value: the object.
        method_names: the names of the methods.

    Raises:
        TypeError: it lacks a method, or one is a coroutine function, which would not be awaited.
    """
    if value is None:
        return
    names = tuple(method_names)
    missing = [method for method in names if not callable(getattr(value, method, None))]
    if missing:
        raise TypeError(
            f"{name}: expected an object with the methods {', '.join(names)};"
            f" {_kind(value)} lacks {', '.join(missing)}"
        )
    for method in names:
        handler(f"{name}.{method}", getattr(value, method))


def instance(name: str, value: object, kind: type) -> None:
    """Check an object of a class, or None.

    Raises:
        TypeError: it is of another class.
    """
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{name}: expected {kind.__name__}, not {_kind(value)}")


def check_interval(name: str, value: int) -> None:
    """Check the interval of heartbeats, in seconds.

    Raises:
        TypeError: the value is not a whole number.
        ValueError: it is less than one.
    """
    if isinstance(value, int) and value < 1:
        raise ValueError(f"{name}: expected seconds from 1 up, not {value}")
    number(name, value)


def client_name(value: str | None) -> str:
    """Return a client name, or a generated one if it is missing.

    Raises:
        TypeError: the name is not text.
    """
    return text("name", value) or f"client-{uuid.uuid4().hex[:12]}"


def several(name: str, values: Iterable[object], what: str) -> None:
    """Check an iterable that must not be text, which would be taken for a list of its letters.

    Raises:
        TypeError: the argument is one text, or is not iterable.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(f"{name}: expected a list of {what}, not one {_kind(values)}")


def joined(name: str, values: Iterable[str] | None) -> str | None:
    """Return a comma-separated list, or None if it is empty. Raises the errors of `texts`."""
    return ",".join(texts(name, values)) or None


def encoded(name: str, value: str) -> bytes:
    """Encode a text as UTF-8.

    Raises:
        ValueError: it has halves of surrogate pairs.
    """
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name}: no UTF-8 can be made of it: {error}") from None


def _is_async(value: object) -> bool:
    called = getattr(type(value), "__call__", None)  # noqa: B004 - whether it is async
    return inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(called)


def _kind(value: object) -> str:
    return type(value).__name__
