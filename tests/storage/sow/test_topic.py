"""What publishing to a SOW topic and deleting from it come to."""

from __future__ import annotations

import json

import pytest

from server.expressions import parse
from server.message_types.base import BodyError
from server.storage.sow.keys.key_source import NO_KEY, KeyHash
from server.storage.sow.query.query import QuerySpec
from server.storage.sow.records import Record
from tests.storage.sow.support import SECOND, Clerk, make_topic, run, topic_spec


def clerk(*keys: str, **options: object) -> Clerk:
    return Clerk(make_topic(topic_spec(*keys, **options)))  # type: ignore[arg-type]  # as named there


# ---- publishing


def test_a_publish_replaces_the_record_of_its_key_as_a_whole() -> None:
    orders = clerk("/id")
    first = orders.publish({"id": 1, "px": 5, "note": "x"})
    assert first.previous is None
    second = orders.publish({"id": 1, "px": 6})
    assert second.previous == first.record
    assert second.key == first.key
    assert orders.all() == [{"id": 1, "px": 6}]


def test_bodies_are_stored_verbatim() -> None:
    orders = clerk("/id")
    body = b'{ "id" : 1,\t"px" : 102.00, "u":"\\u00e9" }'
    change = orders.publish(body)
    assert change.record is not None
    assert change.record.body == body


def test_a_delta_is_merged_with_the_record() -> None:
    orders = clerk("/id")
    orders.publish({"id": 1, "px": 5, "quote": {"bid": 1, "ask": 2}})
    change = orders.publish({"id": 1, "quote": {"bid": 3}}, delta=True)
    assert change.record is not None
    assert json.loads(change.record.body) == {"id": 1, "px": 5, "quote": {"bid": 3, "ask": 2}}


def test_a_delta_without_a_record_is_stored_as_it_is() -> None:
    orders = clerk("/id")
    orders.publish({"id": 1, "px": 5}, delta=True)
    assert orders.all() == [{"id": 1, "px": 5}]


def test_a_delta_that_cannot_be_parsed_changes_nothing() -> None:
    orders = clerk("/id")
    orders.publish(b"no json", key=None)
    with pytest.raises(BodyError):
        orders.publish(b"still none", delta=True)
    assert [
        record.body for record in orders.topic.find_by_keys([KeyHash("orders").hash_values([None])])
    ] == [b"no json"]


# ---- keys


def test_messages_without_the_key_field_share_one_record() -> None:
    orders = clerk("/id")
    keys = {orders.publish({"px": px}).key for px in (1, 2, 3)}
    assert len(keys) == 1
    assert orders.all() == [{"px": 3}]


def test_a_key_given_by_the_publisher_comes_back_verbatim() -> None:
    orders = clerk()
    assert orders.publish({"a": 1}, key="ACC-1|AAPL").key == "ACC-1|AAPL"
    assert orders.publish({"a": 2}, key="ACC-1|AAPL").previous is not None
    assert orders.publish({"a": 3}).key == NO_KEY == "18446744073709551615"
    assert orders.publish({"a": 4}).previous is not None


def test_a_key_given_by_the_publisher_does_not_count_where_fields_make_keys() -> None:
    orders = clerk("/id")
    change = orders.publish({"id": 1}, key="mine")
    assert change.key == KeyHash("orders").hash_values([1])


def test_topics_with_one_key_domain_give_equal_keys() -> None:
    one = clerk("/id", name="one", key_domain="shared").publish({"id": 7})
    two = clerk("/id", name="two", key_domain="shared").publish({"id": 7})
    three = clerk("/id", name="three").publish({"id": 7})
    assert one.key == two.key != three.key


# ---- preprocessing and enrichment


def test_preprocessing_makes_the_field_that_the_key_is_made_from() -> None:
    orders = clerk("/bucket", preprocessing=("/n % 2 AS /bucket",))
    for n in range(5):
        orders.publish({"n": n})
    assert orders.all() == [{"n": 4, "bucket": 0}, {"n": 3, "bucket": 1}]


def test_enrichment_sees_the_message_and_the_record_before() -> None:
    orders = clerk(
        "/id",
        enrichment=("COALESCE(/state OF CURRENT, /state OF PREVIOUS, 'new') AS /state",),
    )
    states = [
        orders.publish(message) for message in ({"id": 1}, {"id": 1, "state": "b"}, {"id": 1})
    ]
    assert [
        json.loads(change.record.body)["state"] for change in states if change.record is not None
    ] == ["new", "b", "b"]


def test_enrichment_comes_before_the_delta_is_merged() -> None:
    orders = clerk("/id", enrichment=("/qty OF CURRENT AS /seen",))
    orders.publish({"id": 1, "qty": 5})
    orders.publish({"id": 1, "px": 2}, delta=True)
    (record,) = orders.all()
    assert isinstance(record, dict)
    assert record["qty"] == 5
    assert record["px"] == 2


@pytest.mark.parametrize(
    ("fields", "message", "expected"),
    [
        (("NULL AS /x",), {"id": 1, "x": 5}, {"id": 1, "x": None}),
        (("NULL AS /x HINT OPTIONAL",), {"id": 1, "x": 5}, {"id": 1}),
        (("NULL AS /x HINT OPTIONAL",), {"id": 1}, {"id": 1}),
        (("/a + 1 AS /a", "/a + 1 AS /b"), {"id": 1, "a": 1}, {"id": 1, "a": 2, "b": 2}),
        (
            ("/a + 1 AS /a HINT SET_CURRENT", "/a + 1 AS /b"),
            {"id": 1, "a": 1},
            {"id": 1, "a": 2, "b": 3},
        ),
        (
            ("NULL AS /a HINT SET_CURRENT,OPTIONAL", "/a IS NULL AS /b"),
            {"id": 1, "a": 1},
            {"id": 1, "b": True},
        ),
        (("SOW_KEY() AS /k",), {"id": 1}, {"id": 1, "k": KeyHash("orders").hash_values([1])}),
        (("TOPIC_NAME() AS /k",), {"id": 1}, {"id": 1, "k": "orders"}),
    ],
)
def test_fields_are_written_as_their_hints_say(
    fields: tuple[str, ...], message: object, expected: object
) -> None:
    orders = clerk("/id", enrichment=fields)
    orders.publish(message)
    (found,) = orders.all()
    assert found == expected


# ---- deleting


def test_records_are_deleted_by_key_body_and_filter() -> None:
    orders = clerk("/id")
    keys = [orders.publish({"id": number, "even": number % 2 == 0}).key for number in range(6)]
    changes = orders.delete(*orders.topic.find_by_keys([keys[0], "unknown", keys[0]]))
    assert [(change.key, change.record) for change in changes] == [(keys[0], None)]
    assert changes[0].previous is not None
    changes = orders.delete(*orders.topic.find_by_body(b'{"id":1}'))
    assert [change.key for change in changes] == [keys[1]]
    assert orders.topic.find_by_body(b'{"id":1}') == []
    query = orders.query(QuerySpec(filter=parse("/id >= 4")))
    found = run(query)
    assert sorted(record.key for record in found) == sorted(keys[4:])
    assert (query.matches, query.topic_matches) == (2, 4)
    orders.delete(*found)
    assert len(orders.topic.table) == 2
    assert len(orders.delete(*run(orders.query(QuerySpec())))) == 2
    assert orders.all() == []


# ---- expiration


@pytest.mark.parametrize(
    ("enabled", "default", "message", "expires_after"),
    [
        (True, 30, None, 30),
        (True, 30, 5, 5),
        (True, 30, 0, None),
        (True, None, None, None),
        (True, None, 7, 7),
        (False, None, 7, None),
        (False, None, None, None),
    ],
)
def test_a_record_expires_when_message_and_topic_say(
    enabled: bool, default: int | None, message: int | None, expires_after: int | None
) -> None:
    orders = clerk(
        "/id",
        expiration_enabled=enabled,
        expiration=None if default is None else default * SECOND,
    )
    change = orders.publish({"id": 1}, expiration=message)
    due = None if expires_after is None else orders.now + expires_after * SECOND
    assert orders.topic.next_expiry() == due
    assert change.record is not None
    stamp = message if message is not None else default
    assert change.record.expires == (orders.now + stamp * SECOND if stamp else 0)
    if due is not None:
        assert orders.topic.expire(due - 1, 2) is None
        expired = orders.topic.expire(due, 3)
        assert expired is not None
        assert expired.record is None
        assert expired.previous == change.record
        assert orders.topic.next_expiry() is None


def test_an_update_renews_the_lifetime() -> None:
    orders = clerk("/id", expiration_enabled=True, expiration=45 * SECOND)
    orders.publish({"id": 1})
    orders.now += 15 * SECOND
    orders.publish({"id": 1}, delta=True)
    assert orders.topic.next_expiry() == orders.now + 45 * SECOND
    orders.publish({"id": 1}, expiration=0)
    assert orders.topic.next_expiry() is None


def test_expired_records_are_removed_one_by_one() -> None:
    orders = clerk("/id", expiration_enabled=True)
    for number in range(3):
        orders.publish({"id": number}, expiration=1)
    later = orders.now + 2 * SECOND
    gone = [orders.topic.expire(later, 50) for _ in range(3)]
    assert len({change.key for change in gone if change is not None}) == 3
    assert orders.topic.next_expiry() is None
    assert orders.topic.expire(later, 51) is None


# ---- many logical topics


def test_a_pattern_keeps_topics_apart_in_one_table() -> None:
    desks = clerk("/id", name="desks", pattern="^desk")
    one = desks.publish({"id": 1, "d": "a"}, topic="desk.a")
    two = desks.publish({"id": 1, "d": "b"}, topic="desk.b")
    assert one.key != two.key
    assert (one.topic, two.topic) == ("desk.a", "desk.b")
    query = desks.query(QuerySpec(topic_predicate=lambda name: name == "desk.b"))
    found = [record for piece in query for record in piece]
    assert [(record.topic, json.loads(record.body)["d"]) for record in found] == [("desk.b", "b")]
    assert query.topic_matches == 1
    assert desks.bodies(QuerySpec(filter=parse("TOPIC_NAME() = 'desk.a'"))) == [{"id": 1, "d": "a"}]
    assert len(desks.topic.find_by_keys([one.key, two.key], lambda name: name == "desk.a")) == 1


def test_a_pattern_keeps_topics_apart_that_share_a_key() -> None:
    desks = clerk(name="desks", pattern="^desk")
    for topic in ("desk.a", "desk.b"):
        desks.publish({"of": topic}, topic=topic, key="same")
    assert len(desks.topic.table) == 2
    (change,) = desks.delete(*desks.topic.find_by_keys(["same"], lambda name: name == "desk.b"))
    assert change.topic == "desk.b"
    assert desks.bodies(QuerySpec(keys=("same",))) == [{"of": "desk.a"}]


def test_a_record_that_comes_as_it_is_is_not_enriched_again() -> None:
    orders = clerk("/id", enrichment=("1 AS /enriched",))
    orders.topic.apply(Record("k", b'{"id":1}', "orders", 5, 0, 9, "", "1|9|"))
    assert orders.all() == [{"id": 1}]
    assert orders.topic.table.store.last_sequence == 9
