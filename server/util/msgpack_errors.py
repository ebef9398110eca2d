"""The exceptions of decoding MessagePack from outside."""

from __future__ import annotations

from typing import Final

MSGPACK_ERRORS: Final = (ValueError, RecursionError)
"""Exceptions that msgspec's decoders raise for malformed or unexpected bytes.

Their own errors (`msgspec.DecodeError`, `msgspec.ValidationError`) and those of texts that are not
UTF-8 are `ValueError`s; the error of values nested too deep is not one of theirs.
"""
