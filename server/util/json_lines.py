"""The output of commands with `--json`: an object per line, as docs/tools.md describes it.

Names are those of the output as text, with underscores. Identifiers of 64 bits are strings of
digits, since many JSON parsers round such numbers. Bytes that are no UTF-8 text are in base64,
under a name that ends in `_base64`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Final

_BASE64: Final = "_base64"


def json_line(values: Mapping[str, object]) -> bytes:
    """Return an object on one line, with its newline.

    Args:
        values: names, with blanks or underscores, and values; any text and any bytes are allowed.
    """
    plain = dict(plain_field(name.replace(" ", "_"), value) for name, value in values.items())
    return json.dumps(plain, ensure_ascii=False).encode() + b"\n"


def json_document(values: Mapping[str, object]) -> bytes:
    """Return an object over several lines, the form of reports."""
    plain = dict(plain_field(name.replace(" ", "_"), value) for name, value in values.items())
    return json.dumps(plain, ensure_ascii=False, indent=2).encode() + b"\n"


def plain_field(name: str, value: object) -> tuple[str, object]:
    """Return a name and a value for JSON; bytes that are no UTF-8 text in base64."""
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    if not isinstance(value, bytes):
        return name, value
    try:
        return name, value.decode()
    except UnicodeDecodeError:
        return base64_field(name, value)


def base64_field(name: str, octets: bytes) -> tuple[str, str]:
    """Return bytes in base64, and the name with the suffix for it."""
    return name + _BASE64, base64.b64encode(octets).decode()
