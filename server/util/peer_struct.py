"""Messages that instances exchange: MessagePack arrays of the fields of a struct."""

from __future__ import annotations

from typing import Final

import msgspec

MSGPACK_ERRORS: Final = (ValueError, RecursionError)
"""Exceptions that msgspec's decoders raise for malformed or unexpected bytes.

Their own errors (`msgspec.DecodeError`, `msgspec.ValidationError`) and those of texts that are not
UTF-8 are `ValueError`s; the error of values nested too deep is not one of theirs.
"""


class PeerStruct(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The base of such messages; type checkers want subclasses to be declared frozen, too."""
