"""Numbers as text inside bodies."""

from __future__ import annotations


def double_text(value: float) -> str:
    """Format a double for a text format, as AMPS does in views: NaN is 0.

    A whole number has no decimal point, so it is an integer when it is read again.
    """
    return "0" if value != value else repr(value).removesuffix(".0")
