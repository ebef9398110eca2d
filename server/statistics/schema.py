"""What a resource is: a group of entries with the same fields. `resources` has all of them.

Source: AMPS Monitoring Guide, Statistics Types; Table Reference.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Final, TypeAlias

Value: TypeAlias = str | int | float
"""Of a field. An empty text stands for nothing."""


class Kind(Enum):
    """How a value comes about."""

    FIXED = "fixed"
    """The same for as long as the entry lives."""
    SNAPSHOT = "snapshot"
    """What it is at the moment of the sample."""
    CUMULATIVE = "cumulative"
    """Counted since the entry, or the instance, began."""
    INTERVAL_AVERAGE = "interval average"
    """Per second, over the interval that ends with the sample."""
    RUNNING_AVERAGE = "running average"
    """Over all the time since the instance started."""


class Type(Enum):
    """What values are, with what SQLite calls it."""

    TEXT = "TEXT"
    INTEGER = "INTEGER"
    REAL = "REAL"


@dataclass(frozen=True, slots=True)
class Field:
    """One value of each entry of a resource.

    Attributes:
        name: as in paths, documents and columns.
        kind: how it comes about.
        type: what it is. Programs take rates and counts for whole numbers, so these are INTEGER.
        about: what it is, in a few words, for people.
        of: the cumulative field whose growth an interval average is; it is computed from that, and
            no source gives it. Empty: the source does.
    """

    name: str
    kind: Kind
    type: Type
    about: str
    of: str = ""


@dataclass(frozen=True)
class Resource:
    """A place in the tree, with one entry or many.

    Attributes:
        path: below /amps, such as "instance/clients".
        entry: what one of its entries is called in XML; empty if the resource is one entry itself.
        table: the base name of its tables, such as "ICLIENTS"; empty if it is not recorded.
        fields: in the order of documents.
    """

    path: str
    entry: str
    table: str
    fields: tuple[Field, ...] = field(repr=False)

    @cached_property
    def fixed(self) -> tuple[Field, ...]:
        """The fields that stay as they are."""
        return tuple(one for one in self.fields if one.kind is Kind.FIXED)

    @cached_property
    def moving(self) -> tuple[Field, ...]:
        """The fields that each sample has anew, those included that are computed from others."""
        return tuple(one for one in self.fields if one.kind is not Kind.FIXED)

    @cached_property
    def given(self) -> tuple[Field, ...]:
        """Those of the moving fields that a source gives."""
        return tuple(one for one in self.moving if not one.of)


TEXT: Final = Type.TEXT
INTEGER: Final = Type.INTEGER
REAL: Final = Type.REAL


def fixed(name: str, about: str, of_type: Type = TEXT) -> Field:
    """Return a field that stays as it is."""
    return Field(name, Kind.FIXED, of_type, about)


def snapshot(name: str, about: str, of_type: Type = INTEGER) -> Field:
    """Return a field that is what it is at the moment."""
    return Field(name, Kind.SNAPSHOT, of_type, about)


def cumulative(name: str, about: str, of_type: Type = INTEGER) -> Field:
    """Return a field that counts."""
    return Field(name, Kind.CUMULATIVE, of_type, about)


def rate(name: str, of: str, about: str) -> Field:
    """Return how much a cumulative field grows in a second."""
    return Field(name, Kind.INTERVAL_AVERAGE, INTEGER, about, of)


def average(name: str, about: str, of_type: Type = REAL) -> Field:
    """Return an average over the interval that its source computes itself."""
    return Field(name, Kind.INTERVAL_AVERAGE, of_type, about)


def running(name: str, about: str) -> Field:
    """Return an average over all the time."""
    return Field(name, Kind.RUNNING_AVERAGE, REAL, about)
