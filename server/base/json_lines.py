"""What commands print with `--json`: an object per line, as docs/tools.md describes it.

Names are those of the text that people get, with underscores. Identifiers of 64 bits are strings of
digits, since many readers of JSON round such numbers. Bytes that are no text in UTF-8 are in
base64, under a name that says so.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Final

_BASE64: Final = "_base64"


def json_line(values: Mapping[str, object]) -> bytes:
    """Return an object with its new line.

    Args:
        values: names, with blanks or underscores, and values; texts and bytes may hold anything.
    """
    plain = dict(plain_field(name.replace(" ", "_"), value) for name, value in values.items())
    return json.dumps(plain, ensure_ascii=False).encode() + b"\n"


def json_document(values: Mapping[str, object]) -> bytes:
    """Return an object over several lines, as reports are."""
    plain = dict(plain_field(name.replace(" ", "_"), value) for name, value in values.items())
    return json.dumps(plain, ensure_ascii=False, indent=2).encode() + b"\n"


def plain_field(name: str, value: object) -> tuple[str, object]:
    """Return a name and a value as JSON has them; bytes that are no text in UTF-8 in base64."""
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    if not isinstance(value, bytes):
        return name, value
    try:
        return name, value.decode()
    except UnicodeDecodeError:
        return base64_field(name, value)


def base64_field(name: str, octets: bytes) -> tuple[str, str]:
    """Return bytes in base64, and the name that says so."""
    return name + _BASE64, base64.b64encode(octets).decode()
