"""Which records two instances compare, and what a comparison sees of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from config_schema.topology import InstanceDescription, describe
from server.expressions.functions.builtin import BUILTINS
from server.message_types.registry import MessageTypes
from server.replication.anti_entropy.digests import RecordState, digest_of, portions
from server.replication.anti_entropy.topic_records import TopicRecords, goes_from, is_kept_by
from server.storage.sow.memory_store import MemoryStore
from server.storage.sow.topic_records import SowTopicRecords
from tests.replication.links.members import CONFIGURATION, compiled, destination
from tests.storage.sow.support import topic_spec

KEPT = """
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>desk/own</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>desk</Name><MessageType>json</MessageType><Key>/id</Key><Pattern>^desk/</Pattern>
    <Durability>transient</Durability>
  </Topic>
</SOW>
"""


def description(directory: Path, name: str, destinations: str = "") -> InstanceDescription:
    if destinations:
        destinations = f"<Replication>{destinations}</Replication>"
    text = CONFIGURATION.format(name=name, elements=destinations + KEPT)
    return describe(compiled(text, directory))


def records(pattern: str | None = None) -> SowTopicRecords:
    spec = topic_spec("/id", name="orders", pattern=pattern, expiration_enabled=True)
    return SowTopicRecords(spec, MessageTypes().get("json"), MemoryStore(), BUILTINS)


def everything(_name: str) -> bool:
    return True


@pytest.mark.parametrize(
    ("destinations", "goes", "stays"),
    [
        (destination("b", topic="orders"), ["orders"], ["orders/1", "quotes"]),
        (destination("b", topic="^orders"), ["orders", "orders/1"], ["quotes"]),
        (destination("b", topic="desk"), ["desk", "desk/1"], ["desk/own", "a desk/1"]),
        (
            destination("b", topic="orders", elements="<Filter>/id = 1</Filter>"),
            [],
            ["orders"],
        ),
        (destination("c", topic="orders"), [], ["orders"]),  # of another group
        ("", [], ["orders"]),
        (
            destination("b", topic="orders") + destination("other", topic="quotes"),
            ["orders"],
            ["quotes"],
        ),
    ],
)
def test_what_is_sent_without_a_filter_is_compared(
    tmp_path: Path, destinations: str, goes: list[str], stays: list[str]
) -> None:
    source = description(tmp_path, "a", destinations)
    is_sent = goes_from(source, description(tmp_path, "b"), None, "json")
    assert [name for name in (*goes, *stays) if is_sent(name)] == goes
    assert not any(
        goes_from(source, description(tmp_path, "b"), None, "fix")(name) for name in goes
    )


def test_only_topics_are_compared_that_both_keep_in_the_same_way(tmp_path: Path) -> None:
    other = description(tmp_path, "b")
    assert is_kept_by(records(), other)
    assert not is_kept_by(records(pattern="^orders"), other)


def test_records_are_told_apart_by_their_topics_where_there_is_a_pattern() -> None:
    sow = records(pattern="^orders/")
    for number in range(200):
        for topic in ("orders/1", "orders/2"):
            body = b'{"id":%d}' % number
            sow.apply(sow.prepare_record(body, 1, number + 1, topic=topic, bookmark=f"7|{number}|"))
    seen = TopicRecords(sow, lambda name: name == "orders/2")
    found = [one for portion in portions(seen) for one in portion.keys]
    assert len(found) == len(set(found)) == 200
    assert all(identity.startswith("orders/2\0") for identity in found)
    all_of_them = TopicRecords(sow, everything)
    both = [one for portion in portions(all_of_them) for one in portion.keys]
    assert len(both) == 400
    for hidden in set(both).difference(found):
        assert seen.record_state(hidden) == RecordState()
        assert all_of_them.record_state(hidden) != RecordState()


def test_a_state_has_the_name_of_its_message() -> None:
    sow = records()
    change = sow.apply(sow.prepare_record(b'{"id":1}', 1, 1, bookmark="7|3|", expiration=10))
    seen = TopicRecords(sow, everything)
    assert seen.record_state(change.key) == RecordState(
        digest_of(change.key, b'{"id":1}'), 7, 3, True
    )
    change = sow.apply(sow.prepare_record(b'{"id":1}', 1, 2, bookmark="", expiration=0))
    assert seen.record_state(change.key) == RecordState(
        digest_of(change.key, b'{"id":1}'), 0, 0, False
    )
    record = sow.table.get(change.key)
    assert record is not None
    sow.remove(record, 3, 1)
    assert seen.record_state(change.key) == RecordState()


def test_records_that_come_and_go_meanwhile_do_no_harm() -> None:
    sow = records()
    for number in range(500):
        sow.apply(sow.prepare_record(b'{"id":%d}' % number, 1, number + 1))
    kept = {b'{"id":%d}' % number for number in range(0, 500, 2)}
    found: list[bytes] = []
    for count, portion in enumerate(portions(TopicRecords(sow, everything))):
        found += portion.bodies
        if count == 1:
            for number in range(1, 500, 2):
                sow.remove(sow.find_by_body(b'{"id":%d}' % number)[0], 501, 1)
            for number in range(1000, 1100):
                sow.apply(sow.prepare_record(b'{"id":%d}' % number, 1, number))
    assert kept <= set(found)
    assert len(found) == len(set(found))
