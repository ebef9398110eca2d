"""Amounts as people say them."""

from __future__ import annotations

from typing import Final

_SIZES: Final = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_TIMES: Final = ((86_400.0, "days"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))
_SMALL_TIMES: Final = ((1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def size(count: float) -> str:
    """An amount of bytes, such as 12.5 MB."""
    for unit, name in _SIZES:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:.0f} B"


def span(seconds: float) -> str:
    """A length of time, such as 12.5 s or 3.0 h."""
    for unit, name in (*_TIMES, *_SMALL_TIMES):
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return "0 s"


def percent(share: float) -> str:
    """A part of a whole, such as 12.5%."""
    return f"{100 * share:.1f}%"


def number(count: int, one: str, many: str = "") -> str:
    """A number of things, such as 1 message or 2,000 messages."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
