"""Samples become snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from server.statistics.rates import SampleRates
from server.statistics.resources import CLIENTS, RESOURCES
from server.statistics.sample import StatisticsEntry, StatisticsSnapshot
from server.statistics.schema import Resource, ResourceField, StatisticValue
from server.statistics.timestamps import from_unix

from .support import NOON, Clients, fixed, moving, sample


def value(
    snapshot: StatisticsSnapshot, entry: str, name: str, resource: Resource = CLIENTS
) -> StatisticValue:
    [place] = [at for at, field in enumerate(resource.fields) if field.name == name]
    return snapshot.entries[resource.path][entry][place]


def test_a_rate_is_growth_in_a_second_as_a_whole_number() -> None:
    rates, clients = SampleRates(), Clients()
    first = rates.complete(clients.sample(0, {"1": 1000}))
    second = rates.complete(clients.sample(10, {"1": 1096, "2": 500}))
    assert value(first, "1", "bytes_in_per_sec") == 0
    assert value(second, "1", "bytes_in") == 1096
    assert value(second, "1", "bytes_in_per_sec") == 10
    assert value(second, "2", "bytes_in_per_sec") == 50  # it came since the sample before
    assert type(value(second, "1", "bytes_in_per_sec")) is int


def test_the_rate_of_what_stays_as_it_is_falls_to_nothing() -> None:
    rates, clients = SampleRates(), Clients()
    rates.complete(clients.sample(0, {"1": 1000}))
    same = clients.sample(10, {"1": 1100})
    later = [replace(same, elapsed=elapsed) for elapsed in (10.0, 20.0, 30.0)]
    found = [value(rates.complete(one), "1", "bytes_in_per_sec") for one in later]
    assert found == [10, 0, 0]
    assert value(rates.complete(clients.sample(40, {"1": 1300})), "1", "bytes_in_per_sec") == 20


@pytest.mark.parametrize("later", [10.0, 0.0])
def test_no_rate_is_negative_or_without_end(later: float) -> None:
    rates, clients = SampleRates(), Clients()
    rates.complete(clients.sample(0, {"1": 1000}))
    assert value(rates.complete(clients.sample(later, {"1": 10})), "1", "bytes_in_per_sec") == 0


def test_an_id_that_is_used_again_begins_anew() -> None:
    rates, clients = SampleRates(), Clients()
    rates.complete(clients.sample(0, {"1": 1000}))
    rates.complete(clients.sample(10, {}))
    assert value(rates.complete(clients.sample(20, {"1": 10})), "1", "bytes_in_per_sec") == 1


def test_all_fields_are_in_their_place() -> None:
    given = {one: [StatisticsEntry("x", fixed(one, "name"), moving(one, 7))] for one in RESOURCES}
    snapshot = SampleRates().complete(sample(0, given))
    for resource in RESOURCES:
        wanted: dict[str, StatisticValue] = {
            one.name: 0 for one in resource.dynamic_fields if one.cumulative_field
        }
        wanted |= _by_name(resource.static_fields, fixed(resource, "name"))
        wanted |= _by_name(resource.source_fields, moving(resource, 7))
        assert _by_name(resource.fields, snapshot.entries[resource.path]["x"]) == wanted


def _by_name(
    fields: Sequence[ResourceField], values: Sequence[StatisticValue]
) -> dict[str, StatisticValue]:
    return dict(zip((one.name for one in fields), values, strict=True))


def test_no_two_snapshots_in_a_row_are_of_the_same_moment() -> None:
    rates, clients = SampleRates(), Clients()
    timestamps = [rates.complete(clients.sample(at, {})).timestamp for at in (0, 0, 1, -5)]
    assert timestamps == [from_unix(NOON) + after for after in (0, 1, 1000, -5000)]
