"""Text inside bodies: any bytes become text and the same bytes again."""

from __future__ import annotations


def decode_text(data: bytes) -> str:
    """Read UTF-8; bytes that are not UTF-8 become lone surrogates."""
    return data.decode("utf-8", "surrogateescape")


def encode_text(text: str) -> bytes:
    r"""Write UTF-8, the reverse of `decode_text`; any string can be written (JSON's `\ud800`)."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def double_text(value: float) -> str:
    """Write a double where everything is text, as AMPS does in views: NaN is 0.

    One that is a whole number has no decimal point: read again, it is an integer.
    """
    return "0" if value != value else repr(value).removesuffix(".0")
