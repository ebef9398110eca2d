"""The columns of a topic: the fields that its records have, with types that only widen."""

from __future__ import annotations

import json
from typing import Any

import pytest

from server.message_types.base import MessageType
from server.message_types.registry import create
from server.sql.query.tables import Column, SqlType, Table
from server.sql.tables import columns as columns_module
from server.sql.tables.columns import MAX_COLUMNS
from server.sql.tables.field_paths import field_lister
from tests.engine.support import Core
from tests.message_types.test_composite import compose
from tests.sql.tables.support import Tables, publish, types_of
from tests.storage.sow.support import topic_spec


def table_of(*messages: dict[str, Any]) -> Table:
    """The table of a topic with some messages."""
    core = Core()
    core.keep(topic_spec("/id"))
    publish(core.log_on("publisher"), "orders", *messages)
    return Tables(core).all()["orders"]


@pytest.mark.parametrize(
    ("values", "type_name"),
    [
        ([True, False], "boolean"),
        ([1, -(2**63), 2**63 - 1], "bigint"),
        ([1, 2**63], "double precision"),
        ([1, 1.5], "double precision"),
        ([1.5, None], "double precision"),
        (["a", ""], "text"),
        ([None, ""], "text"),
        ([1, "a"], "text"),
        ([True, 1], "text"),
        ([[1], [2, "x"]], "jsonb"),
        ([[1], 2], "text"),
    ],
)
def test_a_column_has_the_narrowest_type_that_holds_all_values(
    values: list[Any], type_name: str
) -> None:
    messages = [{"id": number, "v": value} for number, value in enumerate(values)]
    assert types_of(table_of(*messages))["v"] == type_name


def test_objects_are_flattened_to_three_names() -> None:
    message = {"id": 1, "a": {"b": {"c": 1, "d": {"e": 2}}, "l": [{"x": 1, "y": [2]}, {"x": 3}]}}
    assert list(types_of(table_of(message))) == ["id", "a.b.c", "a.l.x", "a.l.y"]


def test_names_differ_by_more_than_case_and_from_those_of_metadata() -> None:
    message = {"id": 1, "Px": 1, "px": 2, "PX": 3, "_key": "k", "a.b": 1, "a": {"b": 2}}
    table = table_of(message)
    names = [column.name for column in table.columns]
    assert names[:7] == ["id", "Px", "px_2", "PX_3", "__key", "a.b", "a.b_2"]
    assert names[7:] == ["_key", "_timestamp", "_bookmark", "_correlation_id", "_expires", "_body"]
    assert len({name.lower() for name in names}) == len(names)


def test_a_field_that_no_filter_can_name_is_a_column_without_a_path() -> None:
    table = table_of({"id": 1, "a]b": 2})
    assert Column("a]b", SqlType.BIGINT) in table.columns


def test_a_widened_column_is_logged_once_and_never_narrowed() -> None:
    core = Core()
    core.keep(topic_spec("/id"))
    publisher = core.log_on("publisher")
    tables = Tables(core)
    publish(publisher, "orders", {"id": 1, "v": 1})
    assert types_of(tables.all()["orders"])["v"] == "bigint"
    for value in ("x", 1, "y", 2.5):
        publish(publisher, "orders", {"id": 2, "v": value})
        assert types_of(tables.learn_again()["orders"])["v"] == "text"
    assert [fields for name, fields in core.log.entries if name == "16-0030"] == [
        {
            "topic": "orders",
            "message_type": "json",
            "column": "v",
            "previous": "bigint",
            "type": "text",
        }
    ]


def test_new_fields_are_found_behind_those_that_are_known() -> None:
    core = Core()
    core.keep(topic_spec("/id"))
    publisher = core.log_on("publisher")
    tables = Tables(core)
    assert types_of(tables.all()["orders"]) == {}
    publish(publisher, "orders", {"id": 1, "b": 1})
    assert list(types_of(tables.learn_again()["orders"])) == ["id", "b"]
    publish(publisher, "orders", {"a": 1, "id": 1})
    assert list(types_of(tables.learn_again()["orders"])) == ["id", "b", "a"]


def test_columns_are_limited() -> None:
    core = Core()
    core.keep(topic_spec("/id"))
    publisher = core.log_on("publisher")
    for number in range(3):
        fields = {f"f{number}_{index}": 1 for index in range(1000)}
        publish(publisher, "orders", {"id": number} | fields)
    assert len(Tables(core).all()["orders"].columns) == MAX_COLUMNS
    assert [name for name, _ in core.log.entries if name == "16-0031"] == ["16-0031"]


def test_a_sample_of_a_large_topic_has_its_newest_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "_FIRST_SAMPLE_SIZE", 40)
    core = Core()
    core.keep(topic_spec("/id"))
    publisher = core.log_on("publisher")
    publish(publisher, "orders", *({"id": number, f"f{number}": 1} for number in range(200)))
    found = set(types_of(Tables(core).all()["orders"]))
    assert {"id", "f0", *(f"f{number}" for number in range(190, 200))} <= found
    assert len(found) == 41


def test_a_sample_does_not_count_rows_of_deleted_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "_FIRST_SAMPLE_SIZE", 40)
    core = Core()
    core.keep(topic_spec("/id"))
    publisher = core.log_on("publisher")
    publish(publisher, "orders", *({"id": number, f"f{number}": 1} for number in range(500)))
    publisher.send({"c": "sow_delete", "t": "orders", "filter": "/id % 20 != 0"})
    core.clock.advance(1)
    found = set(types_of(Tables(core).all()["orders"]))
    assert found == {"id", *(f"f{number}" for number in range(0, 500, 20))}


def test_malformed_bodies_have_no_fields() -> None:
    core = Core()
    core.keep(topic_spec("/id"))
    publisher = core.log_on("publisher")
    for number, end in enumerate(("", "[" * 5000, '"x"}', ',"b":2')):
        publisher.send({"c": "publish", "t": "orders"}, f'{{"id":{number},"a":1{end}'.encode())
    publish(publisher, "orders", {"id": 9, "c": 1})
    assert list(types_of(Tables(core).all()["orders"])) == ["id", "c"]


def _fields(message_type: MessageType, body: bytes) -> list[str]:
    lister = field_lister(message_type)
    assert lister is not None
    return list(dict.fromkeys(".".join(map(str, path)) for path in lister(body)))


XML = b'<o id="1"><sym>IBM</sym><leg q="3"><px>1</px></leg><leg><px>2</px><z/></leg></o>'
JSON = b'{"a":1,"b":{"c":2}}'


@pytest.mark.parametrize(
    ("module", "options", "body", "fields"),
    [
        ("json", {}, JSON, ["a", "b.c"]),
        ("fix", {}, b"8=x\x0135=D\x01nothing\x01=1\x0135=E\x01", ["8", "35"]),
        ("nvfix", {}, b"sym=IBM\x01px=1\x01", ["sym", "px"]),
        ("xml", {}, XML, ["o.@id", "o.sym", "o.leg.@q", "o.leg.px", "o.leg.z"]),
        ("xml", {}, b"<unfinished", ["unfinished"]),
        ("struct", {"Field": ["/id = i", "/a/b = d"]}, b"", ["id", "a.b"]),
        ("composite-local", {"MessageType": ["json", "nvfix"]}, None, ["0.a", "0.b.c", "1.x"]),
        ("composite-global", {"MessageType": ["json", "nvfix"]}, None, ["a", "b.c", "x"]),
    ],
)
def test_types_list_their_fields(
    module: str, options: dict[str, list[str]], body: bytes | None, fields: list[str]
) -> None:
    message_type = create("t", module, options)
    assert _fields(message_type, compose(JSON, b"x=1\x01") if body is None else body) == fields


@pytest.mark.parametrize("module", ["bson", "msgpack", "bflat"])
def test_binary_types_list_their_fields(module: str) -> None:
    message_type = create("t", module, {})
    paths = [("a",), ("b", "c"), ("d",)]
    body = message_type.build([(paths[0], 1), (paths[1], "x"), (paths[2], [1, 2])])
    assert _fields(message_type, body) == ["a", "b.c", "d"]
    assert _fields(message_type, body[:-3]) in (["a", "b.c", "d"], ["a", "b.c"], [])


def test_binary_messages_have_metadata_only() -> None:
    assert field_lister(create("t", "binary", {})) is None


@pytest.mark.parametrize("module", ["fix", "nvfix", "xml", "bson", "msgpack", "bflat"])
def test_values_of_all_types(module: str) -> None:
    core = Core()
    name = "/o/id" if module == "xml" else "/id"
    core.keep(topic_spec(name, message_type=module))
    message_type = core.types[module]
    prefix = ("o",) if module == "xml" else ()
    publisher = core.connect()
    publisher.send({"c": "logon", "cid": "1", "client_name": "p", "mt": module})
    for number in (1, 2):
        body = message_type.build([((*prefix, "id"), number), ((*prefix, "v"), "x" * number)])
        publisher.send({"c": "publish", "t": "orders"}, body)
    tables = Tables(core)
    column = ".".join((*prefix, "v"))
    identity = ".".join((*prefix, "id"))
    ids: list[Any] = ["1", "2"] if module in ("fix", "nvfix", "xml") else [1, 2]
    assert tables.rows("orders", identity, column) == [(ids[0], "x"), (ids[1], "xx")]
    (body_column,) = (c for c in tables.all()["orders"].columns if c.name == "_body")
    is_text = module in ("fix", "nvfix", "xml")
    assert body_column.type is (SqlType.TEXT if is_text else SqlType.BYTEA)


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    core = Core()
    core.keep(topic_spec("/id"))
    publisher = core.log_on("publisher")
    publisher.send({"c": "publish", "t": "orders"}, b'{"id":1,"v":"a\xff","l":["\xfe"]}')
    publisher.send({"c": "publish", "t": "orders"}, json.dumps({"id": 2, "v": "é"}).encode())
    rows = Tables(core).rows("orders", "id", "v", "l")
    assert rows[0][0] == 1
    assert rows[0][1].startswith("a\ufffd")
    assert "\ufffd" in rows[0][2]
    assert rows[1] == (2, "é", None)
