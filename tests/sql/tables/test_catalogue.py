"""The tables that a user sees: topics of all kinds, within the user's permits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from config_schema.problems import Location
from config_schema.spec import ConflatedTopicSpec, TopicRef
from server.expressions import BUILTINS
from server.message_types.registry import create
from server.security.permission_document import make_document
from server.security.permissions import Permissions
from server.sql.query.tables import TableKind
from server.sql.tables.errors import TableGoneError
from server.sql.tables.instance_tables import InstanceTables
from tests.engine.limits import cut, matches
from tests.engine.support import Core
from tests.engine.test_limited_reads import BODIES, FILTERS, PERMITS, SELECTS
from tests.sql.tables.support import Tables, publish, request, types_of
from tests.storage.sow.support import topic_spec
from tests.storage.views.support import view
from tests.support.chances import examples


def permissions(*rules: dict[str, Any]) -> Permissions:
    """What a permission document allows."""
    return make_document({"logon": True, "topic": list(rules)}, BUILTINS)


def rule(topic: str, filter_: str | None = None, select: str | None = None) -> dict[str, Any]:
    """A rule that allows to read a topic."""
    terms = {} if select is None else {"select": select}
    return {"topic": f"^{topic}$", "read": filter_ or True} | terms


def test_topics_views_and_conflated_topics_are_tables() -> None:
    core = Core()
    core.keep(topic_spec("/id"))
    core.derive(
        view("totals", "orders", projection="/sym AS /sym; SUM(/n) AS /n", grouping="/sym"),
        ConflatedTopicSpec(
            name="slow",
            message_type="json",
            underlying=TopicRef("orders", "json"),
            interval=100_000_000,
            filter=None,
            hash_indexes=(),
            enrichment=(),
            topic_format=None,
            name_has_regex_characters=False,
            location=Location("config.xml", 1),
        ),
    )
    publisher = core.log_on("publisher")
    publish(publisher, "orders", *({"id": id_, "sym": f"s{id_ % 2}", "n": id_} for id_ in range(6)))
    core.clock.advance(2)
    tables = Tables(core)
    found = tables.all()
    assert {name: (table.schema, table.kind, table.key) for name, table in found.items()} == {
        "orders": ("amps", TableKind.TOPIC, ("id",)),
        "totals": ("amps", TableKind.VIEW, ("sym",)),
        "slow": ("amps", TableKind.CONFLATED, ("id",)),
    }
    assert tables.rows("totals", "sym", "n") == [("s0", 6), ("s1", 9)]
    assert tables.rows("slow", "n", filter_="/id > 4") == [(5,)]


def test_topics_of_a_pattern_are_one_table() -> None:
    core = Core()
    core.keep(topic_spec("/id", name="all", pattern="^orders/"))
    publisher = core.log_on("publisher")
    publish(publisher, "orders/a", {"id": 1})
    publish(publisher, "orders/b", {"id": 1})
    tables = Tables(core)
    assert tables.all()["all"].key == ("_topic", "id")
    assert tables.rows("all", "_topic", "id") == [("orders/a", 1), ("orders/b", 1)]


def test_names_that_clash_are_in_the_schema_of_their_message_type() -> None:
    core = Core()
    core.keep(
        topic_spec("/id"), topic_spec("/id", message_type="nvfix"), topic_spec("/id", name="x")
    )
    tables = Tables(core)
    found = {(table.schema, table.name) for table in tables.call(tables.source.tables)}
    assert found == {("json", "orders"), ("nvfix", "orders"), ("amps", "x")}


def test_a_topic_that_clashes_with_a_hidden_one_does_not_show_that() -> None:
    core = Core()
    core.keep(
        topic_spec("/id"),
        topic_spec("/id", name="x", message_type="nvfix"),
        topic_spec("/id", name="x"),
    )
    tables = Tables(core, permissions(rule("orders")))
    assert [(t.schema, t.name) for t in tables.call(tables.source.tables)] == [("amps", "orders")]


def test_a_transport_of_one_message_type_has_its_topics_only() -> None:
    core = Core(message_type="nvfix")
    core.keep(topic_spec("/id"), topic_spec("/id", message_type="nvfix"))
    tables = Tables(core)
    found = [(table.schema, table.name) for table in tables.call(tables.source.tables)]
    assert found == [("amps", "orders")]
    assert tables.all()["orders"].columns[-1].type.sql_name == "text"


def test_columns_are_learned_from_records_that_the_user_may_see() -> None:
    core = Core()
    core.keep(topic_spec("/id"))
    publisher = core.log_on("publisher")
    publish(
        publisher,
        "orders",
        {"id": 1, "owner": "a", "x": 1},
        {"id": 2, "owner": "b", "y": "s", "x": "t"},
    )
    shared = InstanceTables(core.engine)
    own = Tables(core, permissions(rule("orders", "/owner = 'a'")), instance_tables=shared)
    everything = Tables(core, instance_tables=shared)
    assert types_of(everything.all()["orders"]) == {
        "id": "bigint",
        "owner": "text",
        "x": "text",
        "y": "text",
    }
    assert types_of(own.all()["orders"]) == {"id": "bigint", "owner": "text", "x": "bigint"}
    assert own.rows("orders", "id", "x") == [(1, 1)]


def test_the_number_of_records_scanned_counts_visible_ones() -> None:
    core = Core()
    core.keep(topic_spec("/id"))
    publish(core.log_on("publisher"), "orders", *({"id": id_} for id_ in range(10)))
    for allowed, count in ((rule("orders"), 10), (rule("orders", "/id < 4"), 4)):
        tables = Tables(core, permissions(allowed))
        asked = request(tables.all()["orders"], ("id",))
        (result,) = tables.call(lambda: tables.source.scan([asked]))  # noqa: B023 - called at once
        assert result.records_scanned == count


def test_a_user_name_in_a_filter_is_that_of_the_reader() -> None:
    core = Core()
    core.keep(topic_spec("/id"))
    publish(core.log_on("publisher"), "orders", {"id": 1, "o": "tester"}, {"id": 2, "o": "x"})
    tables = Tables(core, permissions(rule("orders", "/o = USER()")))
    assert tables.rows("orders", "id") == [(1,)]


def test_types_without_select_lists_are_hidden_from_users_with_one() -> None:
    core = Core()
    core.types["packed"] = create("packed", "struct", {"Field": ["/id = i"]})
    core.keep(topic_spec("/id"), topic_spec("/id", name="other", message_type="packed"))
    assert set(Tables(core).all()) == {"orders", "other"}
    assert set(Tables(core, permissions(rule(".*", select="-/a"))).all()) == {"orders"}


def test_hidden_fields_cannot_be_scanned_by_a_table_made_up() -> None:
    core = Core()
    core.keep(topic_spec("/id"))
    publish(core.log_on("publisher"), "orders", {"id": 1, "secret": 2})
    visible = Tables(core).all()["orders"]
    tables = Tables(core, permissions(rule("orders", select="-/secret")))
    assert "secret" not in types_of(tables.all()["orders"])
    with pytest.raises(TableGoneError, match='column "secret"'):
        tables.scan(request(visible, ("secret",)))
    assert tables.rows("orders", "_body") == [('{"id":1}',)]
    assert tables.rows("orders", "id", filter_="/secret = 2") == []


@settings(max_examples=examples(40), deadline=None)
@given(BODIES, PERMITS, SELECTS, FILTERS)
def test_rows_are_what_the_permit_leaves(
    bodies: list[bytes], permit: str | None, select: str | None, filter_: str
) -> None:
    core = Core()
    core.keep(topic_spec("/id"))
    publisher = core.log_on("publisher")
    records: dict[int, bytes] = {}
    for body in bodies:
        publisher.send({"c": "publish", "t": "orders"}, body)
        records[json.loads(body)["id"]] = body
    tables = Tables(core, permissions(rule("orders", permit, select)))
    columns = list(types_of(tables.all()["orders"]))
    visible = [
        cut(select, body) for body in records.values() if permit is None or matches(permit, body)
    ]
    flat = [_flattened(json.loads(body)) for body in visible]
    assert set(columns) == {name for row in flat for name in row}
    for asked, expected in (
        (None, flat),
        (filter_, [row for row, body in zip(flat, visible, strict=True) if matches(filter_, body)]),
    ):
        rows = tables.rows("orders", *columns, "_body", filter_=asked)
        assert sorted(
            json.dumps(dict(zip(columns, row[:-1], strict=True))) for row in rows
        ) == sorted(json.dumps({name: row.get(name) for name in columns}) for row in expected)
        for row in rows:
            values = {
                name: value
                for name, value in zip(columns, row[:-1], strict=True)
                if value is not None
            }
            shown = _flattened(json.loads(row[-1]))
            assert {name: value for name, value in shown.items() if value is not None} == values


def _flattened(body: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in body.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": below for inner, below in value.items()}
        else:
            flat[name] = value
    return flat
