"""The interface of message types.

A message type converts a body (bytes) into values and values into a body. It knows nothing of
topics, filters or sessions. A caller passes the paths that it needs once, and gets a function that
reads exactly these, so that a type parses no more of a body than necessary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, Union

from server.message_types.paths import Path

if TYPE_CHECKING:
    from server.message_types.options import MessageTypeOptions
    from server.message_types.registry import Find
    from server.message_types.select_list import FieldSelection

Value: TypeAlias = Union[bool, int, float, str, list["Value"], None]  # noqa: UP007 - "X | Y" takes no forward reference
"""The value at a path: None for NULL (absent, null or a sub-document), a scalar, or an array of
values.

Text is decoded as UTF-8 with `surrogateescape`, so that any bytes survive a round trip.
"""

Extractor: TypeAlias = Callable[[bytes], tuple[Value, ...]]
"""Reads one value per path from a body. Never raises: an unreadable value is NULL."""

FieldValue: TypeAlias = tuple[Path, Value]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The features that a type supports (AMPS User Guide, Message Types)."""

    fields: bool = True
    """Paths can be read: content filters, SOW keys from fields, indexes."""
    delta: bool = True
    """Delta publish merges, delta subscriptions send differences; else bodies stay unchanged."""
    build: bool = True
    """Bodies can be made from values: view target, aggregation, enrichment, event topics."""
    select: bool = True
    """Select lists apply."""
    typed: bool = True
    """Values have types; else all are texts, and a text that is a number is meant as one."""
    events: bool = True
    """Event topics (/AMPS/...) and stats acks can have such bodies, if `build` is supported."""


class MessageTypeError(ValueError):
    """A message type cannot be made from its configuration.

    Attributes:
        option: the option at fault, as spelled in the configuration, or None for the type as a
            whole.
        message: the error and the expected input.
    """

    def __init__(self, option: str | None, message: str) -> None:
        super().__init__(message if option is None else f"{option}: {message}")
        self.option = option
        self.message = message


class BodyError(ValueError):
    """A body that has to be rebuilt (merged, selected, enriched) cannot be parsed."""


class TypeWithoutOptions:
    """The base of message types that have no options.

    Args:
        name: the name of the type.
        options: the configured options; any is an error.
        _find: returns other types, which such a type does not use.
    """

    def __init__(self, name: str, options: MessageTypeOptions, _find: Find) -> None:
        options.refuse_unknown()
        self.name = name


class MessageType(Protocol):
    """One configured message type."""

    @property
    def name(self) -> str:
        """The name of the type in transports, topics and logons."""

    @property
    def capabilities(self) -> Capabilities:
        """The features that the type supports."""

    def extractor(self, paths: Sequence[Path]) -> Extractor:
        """Compile a function that reads `paths`, in order, from a body.

        Args:
            paths: the paths to read; the same path may occur twice.

        Returns:
            A function from a body to as many values as there are paths.
        """

    def build(self, fields: Sequence[FieldValue]) -> bytes:
        """Make a body from values, in their order; NULL is written where the format has a null."""

    def merge(self, stored: bytes, delta: bytes, *, nulls: bool = False) -> bytes:
        """Apply a delta to a stored body: present fields replace, absent and NULL ones stay.

        Args:
            stored: the body.
            delta: the delta.
            nulls: NULLs replace as well, as they must in a body returned by `differ`.

        Raises:
            BodyError: one of the bodies cannot be parsed.
        """

    def differ(self, previous: bytes, current: bytes, keep: Sequence[Path]) -> bytes | None:
        """Return the body for a delta subscriber: the fields of `current` that differ, and `keep`.

        Returns:
            None when no field outside `keep` differs.

        Raises:
            BodyError: one of the bodies cannot be parsed.
        """

    def select(self, body: bytes, selection: FieldSelection) -> bytes:
        """Return the body with the fields that a select list includes.

        Raises:
            BodyError: the body cannot be parsed.
        """

    def update(self, body: bytes, fields: Sequence[FieldValue]) -> bytes:
        """Set fields of a body (None sets NULL or removes), and keep all others unchanged.

        Raises:
            BodyError: the body cannot be parsed.
        """
