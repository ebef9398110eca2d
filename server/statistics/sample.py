"""Samples: the entries of all sources at one moment. Immutable, and passed between threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from server.statistics.schema import Resource, StatisticValue


class StatisticsEntry(NamedTuple):
    """One entry of a resource.

    Attributes:
        id: its name in paths; no other entry of the resource has it while this one lives. Empty
            where the resource is one entry itself.
        static_values: values of `Resource.static_fields`; the same object in every sample for as
            long as the entry lives, so that a new object marks a new life.
        dynamic_values: values of `Resource.source_fields`.
    """

    id: str
    static_values: tuple[StatisticValue, ...]
    dynamic_values: tuple[StatisticValue, ...]


class StatisticsSource(Protocol):
    """The source of a resource's entries."""

    @property
    def resource(self) -> Resource:
        """The resource."""

    def entries(self) -> Iterator[StatisticsEntry]:
        """Yield the present entries.

        Other work is done between two entries: iterate over a copy; an entry that is removed
        meanwhile may be left out.
        """


@dataclass(frozen=True, slots=True)
class StatisticsSample:
    """The entries of all sources.

    Attributes:
        taken_at: when it was begun, in seconds since the Unix epoch.
        elapsed: the same on a monotonic clock, in seconds.
        entries: by the path of the resource.
    """

    taken_at: float
    elapsed: float
    entries: Mapping[str, list[StatisticsEntry]]


@dataclass(frozen=True, slots=True)
class StatisticsSnapshot:
    """A sample that has been completed: with the host's figures, and with rates.

    Attributes:
        timestamp: in milliseconds, as the database counts them.
        entries: by the path of the resource, by id: values in the order of `Resource.fields`.
    """

    timestamp: int
    entries: Mapping[str, Mapping[str, tuple[StatisticValue, ...]]]
