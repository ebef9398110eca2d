"""What filters cost, as it is found out by looking at some of the messages."""

from __future__ import annotations

import pytest

from server.expressions import BUILTINS
from server.message_types.registry import MessageTypes
from server.topics.subscriptions.matching.filter_costs import costliest
from server.topics.subscriptions.matching.filter_layout import Filter
from server.topics.subscriptions.matching.filter_set import FilterSet
from tests.support.content_filters import content_filter

JSON = MessageTypes().get("json")
COSTLY = " OR ".join(f"/text LIKE 'x{number}.*y'" for number in range(60))
BODY = b'{"id": 3, "text": "%s"}' % (b"x1" * 50)


def filters_of(*texts: str) -> tuple[FilterSet, list[Filter]]:
    """Some filters, each with one user."""
    filters = FilterSet(JSON, BUILTINS, unexpected)
    return filters, [filters.add(content_filter(text)) for text in texts]


def unexpected(filter_: Filter, error: Exception) -> None:
    """None of these filters fails."""
    raise AssertionError(filter_.text) from error


def match(filters: FilterSet, bodies: list[bytes]) -> list[tuple[Filter, ...]]:
    """Match a run of messages."""
    filters.count_messages(len(bodies))
    return [filters.match(body) for body in bodies]


def look_until_seen(filters: FilterSet, filter_: Filter, looks: int = 10) -> None:
    """Match messages until some have been looked at; looks that were interrupted do not count."""
    for _ in range(100_000):
        match(filters, [BODY])
        if filters.cost(filter_, "t").sample_count >= looks:
            return
    pytest.fail("nobody looks")


def test_messages_are_matched_as_ever_while_they_are_looked_at() -> None:
    filters, [three, four, long] = filters_of("/id = 3", "/id = 4", "/text LIKE 'x'")
    bodies = [b'{"id": %d, "text": "x"}' % (number % 5) for number in range(5_000)]
    matched = [set(found) for body in bodies for found in match(filters, [body])]
    expected = [{0: {long}, 3: {three, long}, 4: {four, long}} for _ in bodies]
    assert matched == [every.get(number % 5, {long}) for number, every in enumerate(expected)]
    assert filters.cost(three, "t").sample_count > 10


def test_the_costly_one_of_some_filters_is_known() -> None:
    filters, [cheap, costly] = filters_of("/id > 2", COSTLY)
    look_until_seen(filters, costly)
    costs = [filters.cost(one, "t") for one in (cheap, costly)]
    first, second = costliest(costs, 2)
    assert (first.filter, second.filter) == (costly.text, cheap.text)
    assert first.seconds_per_message > 2 * second.seconds_per_message > 0
    assert (
        0
        < first.engine_share
        == pytest.approx(first.seconds_per_message * first.messages_per_second)
    )
    assert first.total_seconds == pytest.approx(first.seconds_per_message * first.messages)
    assert (first.user_count, first.filter_count, first.topic) == (1, 2, "t")
    assert first.reading_seconds > 0


def test_a_filter_that_an_index_does_not_find_costs_nothing() -> None:
    filters, [found, other] = filters_of("/id = 3 AND /text LIKE 'x'", "/id = 4 AND /text LIKE 'x'")
    look_until_seen(filters, found)
    assert filters.cost(found, "t").seconds_per_message > 0
    assert filters.cost(other, "t").seconds_per_message == 0


def test_a_filter_answers_for_messages_since_it_came() -> None:
    filters, [first] = filters_of("/id > 2")
    match(filters, [BODY] * 100)
    later = filters.add(content_filter("/id > 1"))
    match(filters, [BODY] * 7)
    assert filters.cost(first, "t").messages == 107
    assert filters.cost(later, "t").messages == 7


def test_of_very_many_filters_some_are_looked_at_and_stand_for_the_others() -> None:
    filters, added = filters_of(*(f"/id > {number}" for number in range(600)))
    look_until_seen(filters, added[0], looks=30)
    costs = [filters.cost(one, "t") for one in added]
    looked_at = [one for one in costs if one.seconds_per_message > 0]
    assert 256 < len(looked_at) <= 600
    assert sum(one.seconds_per_message for one in costs) > 256 * min(
        one.seconds_per_message for one in looked_at
    )


def test_one_that_fails_in_a_look_leaves_the_others_as_they_are() -> None:
    failed = []
    filters = FilterSet(JSON, BUILTINS, lambda filter_, _: failed.append(filter_))
    stubborn = "/text LIKE '(x+x+)+y' OR /text LIKE '(x+x+)+z'"
    exprs = [content_filter(text) for text in ("/id = 3", stubborn, "/id > 2")]
    plain, costly, last = map(filters.add, exprs)
    body = b'{"id": 3, "text": "%s"}' % (b"x" * 200_000)
    for _ in range(20):
        (matched,) = match(filters, [body])
        assert set(matched) == {plain, last}
    assert failed == [costly]
