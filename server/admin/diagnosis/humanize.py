"""Formats amounts for display."""

from __future__ import annotations

from typing import Final

_SIZES: Final = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_TIMES: Final = ((86_400.0, "days"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))
_SMALL_TIMES: Final = ((1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def size(count: float) -> str:
    """Return an amount of bytes as text, such as 12.5 MB."""
    for unit, name in _SIZES:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:.0f} B"


def span(seconds: float) -> str:
    """Return a length of time as text, such as 12.5 s or 3.0 h."""
    for unit, name in (*_TIMES, *_SMALL_TIMES):
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return "0 s"


def percent(share: float) -> str:
    """Return a share as text, such as 12.5%."""
    return f"{100 * share:.1f}%"


def number(count: int, singular: str, plural: str = "") -> str:
    """Return a number of things as text, such as 1 message or 2,000 messages."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"
