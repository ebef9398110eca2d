"""What the parser makes: trees, fields, orders, joins, positions and error texts."""

from __future__ import annotations

import pytest

from server.expressions import (
    BUILTINS,
    ContextKind,
    ExpressionError,
    aggregates,
    check,
    conjuncts,
    field_to_text,
    parse,
    parse_field,
    parse_fields,
    parse_identifier,
    parse_identifiers,
    parse_join,
    parse_order_by,
    path_to_text,
    paths,
    references,
    to_text,
)
from server.expressions.description import describe
from server.expressions.functions.times import legacy
from server.expressions.tree import Reference, slots, walk


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("(/a = 1)", "/a = 1"),
        ("/a==1&&/b<>2||/c", "/a = 1 AND /b != 2 OR /c"),
        ("/a = 1 AND (/b OR /c)", "/a = 1 AND (/b OR /c)"),
        ("(/a AND /b) AND (/c AND /d)", "/a AND /b AND /c AND /d"),
        ("not /a in (1,2)", "/a NOT IN (1, 2)"),
        ("/a NOT NULL", "/a IS NOT NULL"),
        ("/a IS NOT NAN", "/a IS NOT NAN"),
        ("NOT (/a = 1)", "NOT /a = 1"),
        ("(NOT /a) = 1", "(NOT /a) = 1"),
        ("NOT NOT /a", "NOT NOT /a"),
        ("/a - (/b - /c)", "/a - (/b - /c)"),
        ("(/a - /b) - /c", "/a - /b - /c"),
        ("/a MOD 2", "/a % 2"),
        ("-(/a + 1)", "-(/a + 1)"),
        ("-/a * 2", "-/a * 2"),
        ("-(-/a)", "-(-/a)"),
        ("- 5", "-5"),
        ("/a BETWEEN 1 + 1 AND 3 AND /b", "/a BETWEEN 1 + 1 AND 3 AND /b"),
        ("/a NOT BETWEEN 1 AND 2", "/a NOT BETWEEN 1 AND 2"),
        ("/a = 1 = 2", "/a = 1 = 2"),
        ("/a = (1 = 2)", "/a = (1 = 2)"),
        ("/a < /b = /c", "/a < /b = /c"),
        ("(/a < /b) = /c", "(/a < /b) = /c"),
        ("/a != /b < /c", "/a != /b < /c"),
        ("/a LIKE '(.)\\1'", "/a LIKE '(.)\\1'"),
        ('/a LIKE "it\'s"', "/a LIKE 'it\\'s'"),
        ("/a LIKE r'C++'", "/a LIKE r'C++'"),
        ('/a LIKE r"it\'s"', '/a LIKE r"it\'s"'),
        ("/a NOT LIKE 'x'", "/a NOT LIKE 'x'"),
        ("/a begins with('x','y')", "/a BEGINS WITH ('x', 'y')"),
        ("/a NOT ENDS WITH ('x')", "/a NOT ENDS WITH ('x')"),
        ("upper(/a)", "UPPER(/a)"),
        ("STREQ_I(/a, 'x')", "STREQUAL_I(/a, 'x')"),
        ("'a\\'b\\\\c\\x01'", "'a\\'b\\\\c\\x01'"),
        ("r'a\\b'", "'a\\\\b'"),
        ("'\\xff'", "'\\xff'"),
        ("1.50", "1.5"),
        ("1e22", "1e+22"),
        ("null", "NULL"),
        ("[/Not Xpath Name] = 1", "[/Not Xpath Name] = 1"),
        ("[/plain][0]/b", "/plain[0]/b"),
        ("/a[1]/@b", "/a[1]/@b"),
    ],
)
def test_the_printer_writes_the_canonical_form(text: str, canonical: str) -> None:
    tree = parse(text)
    assert to_text(tree) == canonical
    assert parse(canonical) == tree


def test_literals_of_different_types_are_different_trees() -> None:
    assert parse("5 / 1") != parse("5 / 1.0")
    assert parse("/a = 1") != parse("/a = '1'")
    assert hash(parse("/a = 1")) == hash(parse("  /a  ==  1"))


def test_nodes_know_where_they_stand() -> None:
    text = "/qty > 3 AND UPPER(/sym) IN ('IBM')"
    positions = {to_text(node): node.position for node in walk(parse(text))}
    for part, at in (("/qty", 0), ("3", 7), ("UPPER(/sym)", 13), ("/sym", 19), ("'IBM'", 29)):
        assert positions[part] == at
        assert text[at:].startswith(part)


def test_references_come_once_and_in_order() -> None:
    tree = parse("/b = 1 AND /a[0] = /b AND /c/@d = 2")
    assert paths(tree) == (("b",), ("a", 0), ("c", "@d"))
    assert references(tree)[0] == Reference(("b",))
    assert slots(tree) == references(tree)


def test_conjuncts_are_the_terms_of_an_and() -> None:
    assert [to_text(term) for term in conjuncts(parse("/a = 1 AND (/b OR /c) AND NOT /d"))] == [
        "/a = 1",
        "/b OR /c",
        "NOT /d",
    ]
    assert len(conjuncts(parse("/a OR /b"))) == 1


def test_qualified_fields_belong_to_topics() -> None:
    field = parse_field(
        "[nvfix].[sow/orders]./quantity * [items].[/price] AS /total", ContextKind.PROJECTION
    )
    assert references(field.source) == (
        Reference(("quantity",), "nvfix", "sow/orders"),
        Reference(("price",), None, "items"),
    )
    assert field.destination == ("total",)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("/a", "/a AS /a"),
        ("[t]./a", "[t]./a AS /a"),
        ("SUM(/detail/qty) as /detail/qty", "SUM(/detail/qty) AS /detail/qty"),
        ("/a AS /b HINT OPTIONAL", "/a AS /b HINT OPTIONAL"),
        ("/a AS /b hint set_current , optional", "/a AS /b HINT OPTIONAL,SET_CURRENT"),
        ("COUNT(/orderId)AS /orderCount", "COUNT(/orderId) AS /orderCount"),
        (
            "SUM(/Shares * /Price) / SUM(/Shares) AS /Average",
            "SUM(/Shares * /Price) / SUM(/Shares) AS /Average",
        ),
        (
            "SUM(IF((/qty % 10) == 0,1,0)) AS /evenTens",
            "SUM(IF(/qty % 10 = 0, 1, 0)) AS /evenTens",
        ),
        ("GROUP_CONCAT(/a, ';') AS /all", "GROUP_CONCAT(/a, ';') AS /all"),
        ("UNIX_TIMESTAMP() AS /now", "UNIX_TIMESTAMP() AS /now"),
    ],
)
def test_fields_of_projections(text: str, canonical: str) -> None:
    field = parse_field(text, ContextKind.PROJECTION)
    assert field_to_text(field) == canonical
    assert parse_field(canonical, ContextKind.PROJECTION) == field


def test_fields_of_an_option_are_separated_by_commas() -> None:
    fields = parse_fields(
        "MAX(/price) AS /max HINT OPTIONAL,/tickerId as /ticker,/x AS /optional HINT SET_CURRENT",
        ContextKind.PROJECTION,
    )
    assert [path_to_text(field.destination) for field in fields] == ["/max", "/ticker", "/optional"]
    assert [(field.is_optional, field.set_current) for field in fields] == [
        (True, False),
        (False, False),
        (False, True),
    ]


def test_aggregates_are_slots_of_their_own() -> None:
    source = parse_field("SUM(/a * /b) / SUM(/a) + /c AS /d", ContextKind.PROJECTION).source
    assert [to_text(node) for node in aggregates(source)] == ["SUM(/a * /b)", "SUM(/a)"]
    assert [to_text(slot) for slot in slots(source)[:2] if not isinstance(slot, tuple)] == [
        "SUM(/a * /b)",
        "SUM(/a)",
    ]
    assert slots(source)[2] == Reference(("c",))


def test_states_of_a_record() -> None:
    field = parse_field(
        "COALESCE(/x OF CURRENT, /x of previous, 'd') as /x HINT OPTIONAL", ContextKind.ENRICHMENT
    )
    assert references(field.source) == (
        Reference(("x",), state="current"),
        Reference(("x",), state="previous"),
    )


def test_orders_keys_and_joins() -> None:
    terms = parse_order_by("/a DESC, /b[0] asc, [/c d]")
    assert [(term.identifier.path, term.is_descending) for term in terms] == [
        (("a",), True),
        (("b", 0), False),
        (("c d",), False),
    ]
    assert parse_identifier("/a/@b").path == ("a", "@b")
    assert [key.path for key in parse_identifiers("/a, /b")] == [("a",), ("b",)]
    join = parse_join("[nvfix].[Orders].[/CustomerID]=[json].[Addresses]./id")
    assert join.left.reference == Reference(("CustomerID",), "nvfix", "Orders")
    assert join.right.reference == Reference(("id",), "json", "Addresses")
    bare = parse_join("Orders/a/b = [Other Topic]./c")
    assert bare.left.reference == Reference(("a", "b"), None, "Orders")
    assert bare.right.reference == Reference(("c",), None, "Other Topic")


@pytest.mark.parametrize(
    ("text", "reference", "canonical"),
    [
        ("[/topic/with/slash]./field", Reference(("field",), None, "/topic/with/slash"), None),
        ("[json].[/a/b].[/two words]", Reference(("two words",), "json", "/a/b"), None),
        ("[/not/a/topic]", Reference(("not", "a", "topic")), "/not/a/topic"),
        ("[Orders].[Id]", Reference(("Id",), None, "Orders"), "[Orders]./Id"),
        ("[Orders].[two words]/a", Reference(("two words", "a"), None, "Orders"), None),
        ("[nvfix].[/Orders].[55][1]", Reference(("55", 1), "nvfix", "/Orders"), None),
    ],
)
def test_qualified_identifiers(text: str, reference: Reference, canonical: str | None) -> None:
    identifier = parse_identifier(text, ContextKind.GROUPING)
    assert identifier.reference == reference
    assert canonical is None or to_text(identifier) == canonical
    assert parse_identifier(to_text(identifier), ContextKind.GROUPING) == identifier


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("(//FIXML/Order/Instrmt/@Sym = 'IBM')", ContextKind.FILTER),
        ('/symbol = "{{SYMBOL}}"', ContextKind.FILTER),
        ("LAST_UPDATED() < ({{AMPS_UNIX_TIMESTAMP}} - 86400)", ContextKind.FILTER),
        ("'{{AMPS_CLIENT_NAME}}' LIKE 'important'", ContextKind.CONDITION),
        ('"{{A}}" == "unassign"', ContextKind.CONDITION),
        ("{{COUNT}} > 5", ContextKind.CONDITION),
        ("/price * /quantity", ContextKind.VALUE),
        ("/isSyncPoint IS NOT NULL", ContextKind.STABLE_FILTER),
        ("/9000 IS NULL", ContextKind.VIEW_FILTER),
        ("[fix].[sow/fix42/orders]./9000 IS NULL", ContextKind.VIEW_FILTER),
        ("/buyer/id", ContextKind.PATH),
        ("[fix].[sow/fix42/orders]./1", ContextKind.GROUPING),
        ("[fix].[sow/fix42/orders]./1 AS /Account", ContextKind.PROJECTION),
        ("COUNT([fix].[sow/fix42/orders]./11) AS /Orders", ContextKind.PROJECTION),
        ("[a/b]./CumQty - [a/c]./CumQty AS /CumQtyDelta", ContextKind.PROJECTION),
        ("CRC32(CONCAT(/name, /orderId)) % 10 as /bucket", ContextKind.PREPROCESSING),
        ("AMPS_INSTANCE_NAME() as /publishSource", ContextKind.ENRICHMENT),
        ("/x OF CURRENT AS /y", ContextKind.CONFLATED_ENRICHMENT),
        ("/date DESC", ContextKind.ORDER_BY),
        ("[/sow/orders]./id", ContextKind.GROUPING),
        ("[Orders].[CustomerID]", ContextKind.GROUPING),
        ("[Addresses].[ShippingAddress] AS /DestinationAddress", ContextKind.PROJECTION),
        ("SUM([Orders].[TotalPrice]) AS /AccountTotal", ContextKind.PROJECTION),
        ("[Orders].[/a]=[Addresses].[/a]", ContextKind.JOIN),
        ("[nvfix].[/Orders].[Id]=[json].[Addresses].[Id]", ContextKind.JOIN),
    ],
)
def test_what_configurations_contain_is_good(text: str, kind: ContextKind) -> None:
    assert check(text, kind) is None


def test_an_error_marks_the_place_in_one_line() -> None:
    with pytest.raises(ExpressionError) as caught:
        parse("/qty > 3 AND\n /sym ==")
    assert str(caught.value) == (
        "expected a value, found the end; character 22: /qty > 3 AND /sym == HERE -->"
    )
    assert caught.value.position == 21


def test_an_error_shows_a_part_of_a_long_text() -> None:
    text = "/a = 1 AND " * 100 + "/b = " + " AND /a = 1" * 100
    problem = check(text, ContextKind.FILTER)
    assert problem is not None
    assert len(problem) < 300
    assert "/b = HERE --> AND /a" in problem


def test_errors_of_a_check_show_variables_as_they_were_written() -> None:
    assert check("{{A}} = = 1", ContextKind.CONDITION) == (
        "expected a value, found =; character 9: {{A}} = HERE --> = 1"
    )


def test_functions_of_a_module_can_be_called_once_it_is_loaded() -> None:
    assert check("YEAR(/t) = 2010", ContextKind.FILTER) is not None
    assert (
        check("YEAR(/t) = 2010", ContextKind.FILTER, BUILTINS.with_functions(legacy(lambda: 0.0)))
        is None
    )


def test_a_description_is_plain_data() -> None:
    source = parse_field("SUM([t]./a * 2) AS /b", ContextKind.PROJECTION).source
    assert describe(source) == {
        "node": "aggregate",
        "name": "SUM",
        "result": "double",
        "arguments": [
            {
                "node": "arithmetic",
                "operator": "*",
                "left": {
                    "node": "field",
                    "path": ["a"],
                    "message_type": None,
                    "topic": "t",
                    "state": None,
                },
                "right": {"node": "literal", "type": "integer", "value": 2},
            }
        ],
    }
