"""The description of a resource: a group of entries with the same fields; see `resources`.

Source: AMPS Monitoring Guide, Statistics Types; Table Reference.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Final, TypeAlias

StatisticValue: TypeAlias = str | int | float
"""The value of a field. An empty text stands for no value."""


class MeasurementKind(Enum):
    """The kind of measurement of a value."""

    FIXED = "fixed"
    """Constant as long as the entry lives."""
    SNAPSHOT = "snapshot"
    """The state at the moment of the sample."""
    CUMULATIVE = "cumulative"
    """Counted since the entry, or the instance, began."""
    INTERVAL_AVERAGE = "interval average"
    """Per second, over the interval that ends with the sample."""
    RUNNING_AVERAGE = "running average"
    """Over all the time since the instance started."""


class ColumnType(Enum):
    """The type of a value, with SQLite's name."""

    TEXT = "TEXT"
    INTEGER = "INTEGER"
    REAL = "REAL"


@dataclass(frozen=True, slots=True)
class ResourceField:
    """One value of each entry of a resource.

    Attributes:
        name: as in paths, documents and columns.
        kind: the kind of measurement.
        type: the type. Programs expect whole numbers for rates and counts, so these are INTEGER.
        description: a description in a few words, for people.
        cumulative_field: the cumulative field of an interval average, which is computed from the
            growth of that field and not by a source. Empty: the source computes the value.
    """

    name: str
    kind: MeasurementKind
    type: ColumnType
    description: str
    cumulative_field: str = ""


@dataclass(frozen=True)
class Resource:
    """A place in the tree, with one entry or many.

    Attributes:
        path: below /amps, such as "instance/clients".
        entry: the name of one of its entries in XML; empty if the resource is one entry itself.
        table: the base name of its tables, such as "ICLIENTS"; empty if it is not recorded.
        fields: in the order of documents.
    """

    path: str
    entry: str
    table: str
    fields: tuple[ResourceField, ...] = field(repr=False)

    @cached_property
    def static_fields(self) -> tuple[ResourceField, ...]:
        """The fields that never change."""
        return tuple(one for one in self.fields if one.kind is MeasurementKind.FIXED)

    @cached_property
    def dynamic_fields(self) -> tuple[ResourceField, ...]:
        """The fields that each sample has anew, including fields computed from others."""
        return tuple(one for one in self.fields if one.kind is not MeasurementKind.FIXED)

    @cached_property
    def source_fields(self) -> tuple[ResourceField, ...]:
        """Those of the moving fields that come from a source."""
        return tuple(one for one in self.dynamic_fields if not one.cumulative_field)


TEXT: Final = ColumnType.TEXT
INTEGER: Final = ColumnType.INTEGER
REAL: Final = ColumnType.REAL


def fixed(name: str, about: str, of_type: ColumnType = TEXT) -> ResourceField:
    """Return a field that never changes."""
    return ResourceField(name, MeasurementKind.FIXED, of_type, about)


def snapshot(name: str, about: str, of_type: ColumnType = INTEGER) -> ResourceField:
    """Return a field with the state at the moment."""
    return ResourceField(name, MeasurementKind.SNAPSHOT, of_type, about)


def cumulative(name: str, about: str) -> ResourceField:
    """Return a field that counts."""
    return ResourceField(name, MeasurementKind.CUMULATIVE, INTEGER, about)


def rate(name: str, of: str, about: str) -> ResourceField:
    """Return a field with the growth of a cumulative field per second."""
    return ResourceField(name, MeasurementKind.INTERVAL_AVERAGE, INTEGER, about, of)


def average(name: str, about: str, of_type: ColumnType = REAL) -> ResourceField:
    """Return a field with an average over the interval, which its source computes."""
    return ResourceField(name, MeasurementKind.INTERVAL_AVERAGE, of_type, about)


def running(name: str, about: str) -> ResourceField:
    """Return a field with an average over all the time."""
    return ResourceField(name, MeasurementKind.RUNNING_AVERAGE, REAL, about)
