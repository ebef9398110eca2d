"""What reading MessagePack from elsewhere may raise."""

from __future__ import annotations

from typing import Final

MALFORMED: Final = (ValueError, RecursionError)
"""What msgspec's decoders raise for bytes that are not what was expected.

Their own errors (`msgspec.DecodeError`, `msgspec.ValidationError`) and those of texts that are not
UTF-8 are `ValueError`s; what is nested too deep is no error of theirs.
"""
