"""Reading the same fields of many bodies at once, for columns.

A type that does this faster than body by body has a `bulk_extractor`; it is no part of
`MessageType`, so that types from libraries need not have one. What it reads is what the type's
`extractor` reads, whatever the bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from server.message_types.base import MessageType, Value
from server.message_types.paths import Path

BulkExtractor: TypeAlias = Callable[[Sequence[bytes]], Sequence[Sequence[Value]]]
"""Reads bodies, at least one: for each path the values of all. Never raises."""


@runtime_checkable
class ReadsInBulk(Protocol):
    """A message type that reads many bodies at once."""

    def bulk_extractor(self, paths: Sequence[Path]) -> BulkExtractor:
        """Compile a function that reads `paths` from bodies; see `MessageType.extractor`."""


def bulk_extractor(message_type: MessageType, paths: Sequence[Path]) -> BulkExtractor:
    """Compile a function that reads `paths` from many bodies of a type."""
    if isinstance(message_type, ReadsInBulk):
        return message_type.bulk_extractor(paths)
    extract = message_type.extractor(paths)
    return lambda bodies: list(zip(*map(extract, bodies), strict=True))
