"""Numbers as text inside bodies."""

from __future__ import annotations


def double_text(value: float) -> str:
    """Write a double where everything is text, as AMPS does in views: NaN is 0.

    One that is a whole number has no decimal point: read again, it is an integer.
    """
    return "0" if value != value else repr(value).removesuffix(".0")
