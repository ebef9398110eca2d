"""Checksums of texts."""

from __future__ import annotations

from typing import Final

import google_crc32c

from server.expressions.functions.registry import Function, Parameter

_REFLECTED_64: Final = 0xC96C5795D7870F42
"""The polynomial of CRC-64/XZ (ECMA-182), bits reversed."""


def _table_64() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        entry = byte
        for _ in range(8):
            entry = (entry >> 1) ^ (_REFLECTED_64 if entry & 1 else 0)
        table.append(entry)
    return tuple(table)


_TABLE_64: Final = _table_64()


def _crc32(octets: bytes) -> int:
    """Return CRC-32C without the final complement, AMPS's CRC32 as 60East's FAQ describes it."""
    return int(google_crc32c.value(octets)) ^ 0xFFFFFFFF


def _crc64(octets: bytes) -> int:
    remainder = 0xFFFFFFFFFFFFFFFF
    for byte in octets:
        remainder = _TABLE_64[(remainder ^ byte) & 0xFF] ^ (remainder >> 8)
    return remainder ^ 0xFFFFFFFFFFFFFFFF


FUNCTIONS: Final = (
    Function(
        "CRC32",
        "Checksums",
        "The CRC-32C of the text without its final complement, an integer from 0 to 2^32 - 1.",
        _crc32,
        (Parameter.TEXT,),
    ),
    Function(
        "CRC64",
        "Checksums",
        "The CRC-64/XZ of the text, an integer from 0 to 2^64 - 1.",
        _crc64,
        (Parameter.TEXT,),
    ),
)
"""AMPS User Guide, CRC Functions. The reference does not specify the variant of CRC-64."""
