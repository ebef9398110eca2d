"""What sources make of counters: where counting begins, what is summed up, what stays the same."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from server.statistics.resources import CLIENTS, SOW, SUBSCRIPTIONS
from server.statistics.sample import StatisticsEntry, StatisticsSource
from server.statistics.schema import Resource, StatisticValue
from server.statistics.sources.clients import ClientsSource
from server.statistics.sources.processors import ProcessorsSource
from server.statistics.sources.sow import SowSource
from server.statistics.sources.subscriptions import SubscriptionsSource
from server.statistics.sources.texts import duration, moment, topic_ids
from tests.engine.support import Core
from tests.storage.sow.support import topic_spec


@pytest.fixture
def core() -> Core:
    return Core()


def values(resource: Resource, entry: StatisticsEntry) -> Mapping[str, StatisticValue]:
    """The values of an entry that a source gives, by name."""
    names = [field.name for field in (*resource.static_fields, *resource.source_fields)]
    return dict(zip(names, (*entry.static_values, *entry.dynamic_values), strict=True))


def taken(source: StatisticsSource) -> dict[str, Mapping[str, StatisticValue]]:
    """The entries of a source, by id."""
    return {entry.id: values(source.resource, entry) for entry in source.entries()}


def processors(core: Core) -> tuple[ClientsSource, ProcessorsSource]:
    """The processors, and the clients, which have to be taken before."""
    clients = ClientsSource(core.engine)
    return clients, ProcessorsSource(core.engine, clients, None, lambda: 0.0)


@pytest.mark.parametrize(
    ("names", "ids"),
    [
        ([("a", "json"), ("b", "fix"), ("a", "fix")], ["a!json", "b!fix", "a!fix"]),
        ([], []),
    ],
)
def test_topics_with_the_same_name_are_told_apart(
    names: list[tuple[str, str]], ids: list[str]
) -> None:
    assert topic_ids(names) == ids


def test_moments_and_durations_are_texts() -> None:
    assert moment(0) == "19700101T000000.000000Z"
    assert moment(None) == ""
    assert duration(0) == "00:00:00.000000"
    assert duration(90_061.5) == "25:01:01.500000"


def test_records_that_are_there_at_the_start_do_not_count(core: Core) -> None:
    core.keep(topic_spec("/id", name="records"))
    peer = core.log_on()
    for number in (1, 2, 1):
        peer.send({"c": "publish", "t": "records"}, b'{"id":%d}' % number)
    source = SowSource(core.engine.sow_registry, core.engine.topics, core.clock.elapsed)
    counts = "insert_count", "update_count", "delete_count", "valid_keys"

    def counted() -> tuple[StatisticValue, ...]:
        found = taken(source)["records!json"]
        return tuple(found[name] for name in counts)

    assert counted() == (0, 0, 0, 2)
    for number in (2, 3):
        peer.send({"c": "publish", "t": "records"}, b'{"id":%d}' % number)
    peer.send({"c": "sow_delete", "t": "records", "filter": "/id < 3"})
    core.clock.advance(1)
    assert counted() == (1, 1, 2, 1)


def test_what_clients_did_that_have_gone_stays_in_the_sums(core: Core) -> None:
    clients, source = processors(core)
    subscriber, publisher = core.log_on("subscriber"), core.log_on("publisher")
    subscriber.send({"c": "subscribe", "t": "plain", "sub_id": "1", "cid": "1"})
    for _ in range(3):
        publisher.send({"c": "publish", "t": "plain"}, b"{}")
    assert len(taken(clients)) == 2
    before = taken(source)["external"]
    assert (before["matches_found"], before["messages_received"]) == (3, 6)
    subscriber.leave()
    publisher.leave()
    core.clock.advance(1)
    assert taken(clients) == {}
    assert taken(source)["external"] == before


def test_an_entry_that_lives_on_keeps_its_fixed_values(core: Core) -> None:
    peer = core.log_on("peer")
    peer.send({"c": "subscribe", "t": "plain", "sub_id": "1", "cid": "1"})
    for source in (ClientsSource(core.engine), SubscriptionsSource(core.engine)):
        (first,) = source.entries()
        (second,) = source.entries()
        assert second.id == first.id
        assert second.static_values is first.static_values


def test_a_subscription_that_replaces_another_is_another(core: Core) -> None:
    source = SubscriptionsSource(core.engine)
    peer = core.log_on("peer")
    subscribe = {"c": "subscribe", "t": "plain", "sub_id": "1", "cid": "1"}
    peer.send(subscribe)
    (first,) = source.entries()
    peer.send(subscribe | {"t": "other", "opts": "replace"})
    (second,) = source.entries()
    assert values(SUBSCRIPTIONS, second)["topic"] == "other"
    assert int(second.id) > int(first.id)


def test_subscriptions_that_come_and_go_are_noticed(core: Core) -> None:
    """Those of a client are taken together while they are the same."""
    source = SubscriptionsSource(core.engine)
    peers = [core.log_on(f"peer {number}") for number in range(3)]

    def subscribe(number: int) -> None:
        peers[number % 3].send({"c": "subscribe", "t": f"t{number}", "sub_id": str(number)})

    def there() -> set[StatisticValue]:
        entries = list(source.entries())
        assert len({entry.id for entry in entries}) == len(entries)
        return {values(SUBSCRIPTIONS, entry)["topic"] for entry in entries}

    for number in range(450):
        subscribe(number)
    assert there() == there() == {f"t{number}" for number in range(450)}
    for number in (0, 4, 447):
        peers[number % 3].send({"c": "unsubscribe", "sub_id": str(number)})
    subscribe(1000)
    assert there() == {f"t{n}" for n in (*range(450), 1000) if n not in (0, 4, 447)}
    kept = {entry.id: entry for entry in source.entries()}
    peers[1].leave()
    left = list(source.entries())
    assert 290 < len(left) < 310
    assert all(kept[entry.id] is entry for entry in left)


def test_a_client_that_does_nothing_stays_as_it_is_until_it_does_something(core: Core) -> None:
    source = ClientsSource(core.engine)
    peer, other = core.log_on("peer"), core.log_on("other")
    peer.send({"c": "subscribe", "t": "plain", "sub_id": "1"})
    first = {entry.id: entry for entry in source.entries()}
    assert {entry.id: entry for entry in source.entries()} == first
    other.send({"c": "publish", "t": "plain"}, b"{}")
    found = {values(CLIENTS, entry)["client_name"]: entry for entry in source.entries()}
    received, sent = (values(CLIENTS, found[name]) for name in ("peer", "other"))
    before = values(CLIENTS, first[found["peer"].id])
    assert int(received["messages_out"]) == int(before["messages_out"]) + 1
    assert sent["messages_in"] == 2
    peer.send({"c": "unsubscribe", "sub_id": "1"})
    found = {values(CLIENTS, entry)["client_name"]: entry for entry in source.entries()}
    assert values(CLIENTS, found["peer"])["subscription_count"] == 0
    assert source.all_totals.messages_in == 5


def test_a_client_that_logs_on_becomes_another(core: Core) -> None:
    source = ClientsSource(core.engine)
    peer = core.connect()
    (before,) = source.entries()
    assert values(CLIENTS, before)["client_name"] == "core-test-1"
    peer.send({"c": "logon", "cid": "1", "client_name": "named", "mt": "json", "x": "corr"})
    (after,) = source.entries()
    assert after.id == before.id
    found = values(CLIENTS, after)
    assert (found["client_name"], found["correlation_id"]) == ("named", "corr")


def test_a_topic_is_named_as_it_is(core: Core) -> None:
    core.keep(topic_spec("/id", name="records"))
    found = taken(SowSource(core.engine.sow_registry, core.engine.topics, core.clock.elapsed))
    assert found["records!json"]["topic"] == "records"
    assert found["records!json"]["resident_percent"] == 100
    assert set(found["records!json"]) == {
        field.name for field in (*SOW.static_fields, *SOW.source_fields)
    }
