"""/metrics, as a parser of somebody else's reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from cryptography.x509 import load_pem_x509_certificate
from prometheus_client import Metric
from prometheus_client.openmetrics import parser as open_metrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from server.admin.metrics.exposition import ExpositionFormat, form_for, render
from server.admin.metrics.families import MAX_LISTED_ENTRIES, REST
from server.admin.metrics.pages import MAX_DETAILED_ENTRIES, details_of, families_of
from server.statistics.histograms import Distribution
from server.statistics.sample import StatisticsSnapshot
from server.statistics.schema import StatisticValue
from server.util.histogram import Histogram
from tests.admin.support import (
    MOMENT,
    Admin,
    Reply,
    example_snapshot,
    running_admin,
    tls_transport,
)
from tests.admin.test_programs import ELEMENTS
from tests.support.raw import RawPeer
from tests.support.waiting import wait_until
from tests.transports.support import Authority

_OPEN: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_NASTY: Final = ('quoted "topic"', "back\\slash", "two\nlines", "\\n", 'all\\"\n', "Ümläut{},=")

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read_open(text: str) -> Iterable[Metric]:
    """Read OpenMetrics."""
    families: Iterable[Metric] = open_metrics.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]  # it has no types
    return families


def series_of(families: Iterable[Metric]) -> Series:
    """All series of a document, of which no two may be the same."""
    found: Series = {}
    for family in families:
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value
    return found


def value_of(series: Series, name: str, **labels: str) -> float:
    """The value of one of them."""
    return series[name, frozenset(labels.items())]


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    with running_admin(tmp_path_factory.mktemp("metrics"), elements=ELEMENTS) as running:
        yield running


def _comes(admin: Admin, number: float, name: str, **labels: str) -> None:
    def found() -> float:
        return value_of(series_of(read_text(admin.ask("/metrics").text)), name, **labels)

    wait_until(lambda: found() == number, lambda: f"{name} is {found()}, and not {number}")


def _persist(peer: RawPeer, number: int) -> None:
    header = {"c": "publish", "t": "jobs", "cid": str(number), "s": number, "a": "persisted"}
    assert peer.ask(header, b'{"id":1}')["status"] == "success"


def test_values_follow_what_was_done(admin: Admin) -> None:
    transport = {"transport": "any-tcp"}
    with admin.server.log_on("consumer") as consumer, admin.server.log_on("publisher") as peer:
        consumer.subscribe("work", "1")
        consumer.subscribe("orders", "2")
        for number in range(7):
            peer.publish("orders", b'{"id":%d}' % (number % 5))
        for number in range(3):
            _persist(peer, number + 1)
        sent_in_all = 1 + 1 + 2 + 7 + 3
        _comes(admin, sent_in_all, "amperage_transport_received_messages_total", **transport)
        series = series_of(read_text(admin.ask("/metrics").text))
        orders = {"topic": "orders", "message_type": "json"}
        expected = {
            ("amperage_transport_clients", "transport"): 2,
            ("amperage_transport_connections_total", "transport"): 2,
            ("amperage_subscriptions", "transport"): 2,
            ("amperage_unread_messages", "transport"): 0,
        }
        for (name, _), number in expected.items():
            assert value_of(series, name, **transport) == number, name
        assert value_of(series, "amperage_sow_inserts_total", **orders) == 5
        assert value_of(series, "amperage_sow_updates_total", **orders) == 2
        assert value_of(series, "amperage_sow_records", **orders) == 5
        assert value_of(series, "amperage_queue_messages", queue="work!json") == 3
        external = {"processor": "external"}
        name = "amperage_processor_received_messages_total"
        assert value_of(series, name, **external) == sent_in_all
        assert value_of(series, "amperage_publish_to_persisted_seconds_count") == 3
        assert 0 < value_of(series, "amperage_publish_to_persisted_seconds_sum") < 60
        assert value_of(series, "amperage_log_write_size_bytes_sum") > 3 * len(b'{"id":1}')
        for _ in range(3):
            message, _ = _queued(consumer)
            consumer.send({"c": "sow_delete", "t": "work", "bm": message["bm"], "cid": "9"})
        name = "amperage_queue_time_to_acknowledge_seconds_count"
        _comes(admin, 3, name, queue="work!json")
    _comes(admin, 0, "amperage_transport_clients", **transport)
    series = series_of(read_text(admin.ask("/metrics").text))
    name = "amperage_transport_received_messages_total"
    assert value_of(series, name, **transport) == sent_in_all + 3
    assert value_of(series, "amperage_transport_connections_total", **transport) == 2


def _queued(consumer: RawPeer) -> tuple[dict[str, str], bytes]:
    while True:
        header, body = consumer.receive()
        if header.get("sids") == "1":
            return header, body


def test_both_forms_say_the_same(admin: Admin) -> None:
    wait_until(lambda: _is_same(admin))


def _is_same(admin: Admin) -> bool:
    """Whether they do, but for what is of the moment; both have to be of the same sample."""
    text, other = admin.ask("/metrics"), admin.ask("/metrics", Accept=_OPEN)
    assert text.headers["content-type"] == _TEXT
    assert other.headers["content-type"] == _OPEN
    assert other.text.endswith("\n# EOF\n")
    first, second = series_of(read_text(text.text)), series_of(read_open(other.text))
    assert first.keys() == second.keys()
    moment = ("amperage_sample_timestamp_seconds", frozenset[tuple[str, str]]())
    if first[moment] != second[moment]:
        return False
    for key, value in first.items():
        if not key[0].startswith(("process_", "amperage_turn")):
            assert second[key] == value
    return True


def test_a_document_is_made_once_per_sample(admin: Admin) -> None:
    def is_unchanged() -> bool:
        first = admin.ask("/metrics")
        again = admin.ask("/metrics", If_None_Match=first.headers["etag"])
        return again.status == 304

    wait_until(is_unchanged)  # process_cpu_seconds_total would be another otherwise
    assert admin.ask("/metrics", Accept_Encoding="gzip").headers["content-encoding"] == "gzip"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", ExpositionFormat.PROMETHEUS),
        ("*/*", ExpositionFormat.PROMETHEUS),
        ("text/html, */*;q=0.8", ExpositionFormat.PROMETHEUS),
        ("application/openmetrics-text", ExpositionFormat.OPEN_METRICS),
        (
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*",
            ExpositionFormat.OPEN_METRICS,
        ),
        ("text/plain;q=0.9, application/openmetrics-text;q=0.1", ExpositionFormat.PROMETHEUS),
        ("application/openmetrics-text;q=0", ExpositionFormat.PROMETHEUS),
        ("application/openmetrics-text;version=9.0.0", ExpositionFormat.PROMETHEUS),
        ("application/openmetrics-text;q=much", ExpositionFormat.PROMETHEUS),
    ],
)
def test_whoever_asks_for_open_metrics_gets_it(accept: str, form: ExpositionFormat) -> None:
    assert form_for(accept) is form


_LABELS: Final = {
    "sow": "topic",
    "views": "topic",
    "conflated_topics": "topic",
    "transports": "name",
    "replication": "name",
}
"""Whose values tell the entries of a resource apart, where it is not their ids."""


def _snapshot(entries: int, **changed: dict[str, dict[str, StatisticValue]]) -> StatisticsSnapshot:
    """A snapshot whose entries have names of their own."""
    named: dict[str, dict[str, dict[str, StatisticValue]]] = {
        f"instance__{resource}": {
            str(number): {
                field: f"{field}-{number}",
                **changed.get(resource, {}).get(str(number), {}),
            }
            for number in range(1, entries + 1)
        }
        for resource, field in _LABELS.items()
    }
    return example_snapshot(MOMENT, entries, **named)


def test_what_there_are_many_of_is_bounded() -> None:
    count = MAX_LISTED_ENTRIES + 250
    changed: dict[str, StatisticValue] = {"valid_keys": 3, "update_count": 2}
    snapshot = _snapshot(count, sow={str(count): changed})
    for form, read in (
        (ExpositionFormat.OPEN_METRICS, read_open),
        (ExpositionFormat.PROMETHEUS, read_text),
    ):
        series = series_of(read(render(families_of(snapshot, []), form).decode()))
        names = Counter(name for name, _ in series)
        assert max(names.values()) == MAX_LISTED_ENTRIES + 1
        rest = {"topic": REST, "message_type": REST}
        assert value_of(series, "amperage_sow_records", **rest) == 249 * 12 + 3
        assert value_of(series, "amperage_sow_updates_total", **rest) == 249 * 12 + 2
        assert value_of(series, "amperage_queue_oldest_lease_age_seconds", queue=REST) == 0.5
        assert value_of(series, "amperage_series_left_out") >= 250 * names[
            "amperage_sow_records"
        ] / (MAX_LISTED_ENTRIES + 1)
        assert value_of(series, "amperage_unread_messages", transport="name-1") == 0


def test_details_are_bounded_and_have_no_rest() -> None:
    snapshot = example_snapshot(entries=MAX_DETAILED_ENTRIES + 5)
    text = render(details_of(snapshot, "subscriptions"), ExpositionFormat.PROMETHEUS).decode()
    series = series_of(read_text(text))
    assert value_of(series, "amperage_detailed_series_left_out") == 2 * 5
    assert len(series) == 2 * MAX_DETAILED_ENTRIES + 1
    assert REST not in text


def test_names_of_any_kind_arrive_as_they_are() -> None:
    changed: dict[str, dict[str, StatisticValue]] = {
        str(number): {"topic": name} for number, name in enumerate(_NASTY, 1)
    }
    snapshot = _snapshot(len(_NASTY), sow=changed)
    for form, read in (
        (ExpositionFormat.OPEN_METRICS, read_open),
        (ExpositionFormat.PROMETHEUS, read_text),
    ):
        text = render(families_of(snapshot, []), form).decode()
        family = next(one for one in read(text) if one.name == "amperage_sow_records")
        assert [sample.labels["topic"] for sample in family.samples] == list(_NASTY)


def test_a_histogram_counts_what_is_below_each_bound() -> None:
    times, sizes = Histogram(), Histogram()
    for number in (0, 15, 16, 1_000, 1_000_000, 10**12):
        times.add(number)
    for number in (64, 1_024, 1_023, 1 << 40):
        sizes.add(number)
    distributions = [
        Distribution("turn", "microseconds", "turns", "", times),
        Distribution("log_write_size", "bytes", "sizes", "", sizes),
    ]
    families = families_of(_snapshot(2), distributions)
    series = series_of(read_open(render(families, ExpositionFormat.OPEN_METRICS).decode()))

    def below(bound: str) -> float:
        return value_of(series, "amperage_turn_seconds_bucket", le=bound)

    assert [below("1.6e-05"), below("3.2e-05"), below("0.001024")] == [2, 3, 4]
    assert [below("1.048576"), below("134.217728"), below("+Inf")] == [5, 5, 6]
    assert value_of(series, "amperage_turn_seconds_count") == 6
    assert value_of(series, "amperage_turn_seconds_sum") == pytest.approx(1_000_001.001031)
    assert value_of(series, "amperage_log_write_size_bytes_bucket", le="63.0") == 0
    assert value_of(series, "amperage_log_write_size_bytes_bucket", le="1023.0") == 2
    assert value_of(series, "amperage_log_write_size_bytes_bucket", le="2047.0") == 3


def test_histograms_of_queues_are_bounded() -> None:
    held = [Histogram() for _ in range(130)]
    for histogram in held:
        histogram.add(5_000)
    name = "queue_time_to_acknowledge"
    distributions = [
        Distribution(name, "microseconds", "times", f"q{number}", one)
        for number, one in enumerate(held)
    ]
    families = families_of(_snapshot(2), distributions)
    series = series_of(read_text(render(families, ExpositionFormat.PROMETHEUS).decode()))
    assert value_of(series, f"amperage_{name}_seconds_count", queue="q99") == 1
    assert value_of(series, f"amperage_{name}_seconds_count", queue=REST) == 30
    assert len([key for key in series if key[0] == f"amperage_{name}_seconds_count"]) == 101


@pytest.mark.parametrize("family", ["clients", "subscriptions", "topics"])
def test_details_are_there_on_request(admin: Admin, family: str) -> None:
    with admin.server.log_on('say "hi"') as peer:
        peer.subscribe("orders", "1")

        def found() -> Reply:
            return admin.ask(f"/metrics/detailed?family={family}")

        expected = {
            "clients": 'amperage_detailed_client_subscriptions{client="',
            "subscriptions": 'sub_id="1",topic="orders",message_type="json"} ',
            "topics": 'amperage_detailed_sow_records{topic="orders",message_type="json"} ',
        }
        wait_until(lambda: expected[family] in found().text)
        common = series_of(read_text(admin.ask("/metrics").text)).keys()
        assert not common & series_of(read_text(found().text)).keys()


def test_details_of_what_there_is_not_are_refused(admin: Admin) -> None:
    for query in ("", "?family=everything"):
        reply = admin.ask(f"/metrics/detailed{query}")
        assert reply.status == 400
        assert "clients, subscriptions, topics" in reply.text


def _expiry(path: Path) -> float:
    return load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc.timestamp()


def test_the_expiry_of_a_certificate_follows_the_file(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "servers")
    with running_admin(tmp_path, transports=tls_transport(authority)) as admin:
        path = tmp_path / "servers-localhost.crt"
        labels = {"certificate": "1", "path": str(path), "used_by": "transport secure"}
        name = "amperage_certificate_expiry_timestamp_seconds"
        _comes(admin, _expiry(path), name, **labels)
        moment = datetime(2033, 5, 6, 7, 8, 9, tzinfo=UTC)
        authority.issue("localhost", not_after=moment)
        _comes(admin, moment.timestamp(), name, **labels)
        path.unlink()
        wait_until(lambda: f"\n{name}" not in admin.ask("/metrics").text)
