"""References to topics and fields: what they name, and what is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config_schema.compile.references import FieldUse, fields_used, parse_join, parse_topic
from config_schema.regex import has_regex_characters, matches, regex_error
from config_schema.spec import TopicRef

TOPICS = [
    ("orders", TopicRef("orders", "json")),
    ("/sow/orders", TopicRef("/sow/orders", "json")),
    ("[orders]", TopicRef("orders", "json")),
    ("[fix].[sow/fix42/orders]", TopicRef("sow/fix42/orders", "fix")),
    (" [fix] . [orders] ", TopicRef("orders", "fix")),
    ("[fix].orders", None),
    ("[fix].[a].[b]", None),
    ("[fix", None),
    ("[]", None),
]


@pytest.mark.parametrize(("text", "expected"), TOPICS)
def test_a_topic_reference(text: str, expected: TopicRef | None) -> None:
    assert parse_topic(text, "json") == expected


JOINS = [
    ("[Orders].[/CustomerID]=[Addresses].[/CustomerID]", "[json].[Orders]/CustomerID"),
    ("[nvfix].[Orders].[/Id]=[json].[Items].[/Id]", "[nvfix].[Orders]/Id"),
    ("[a b/c]./x = [d]./y", "[json].[a b/c]/x"),
    ("orders/id = customers/id", "[json].[orders]/id"),
    ("orders./id=customers./id", "[json].[orders]/id"),
    ("[a].[/x=y]=[b].[/z]", "[json].[a]/x=y"),
    ("[/ett/order]./109 = [b]./1", "[json].[/ett/order]/109"),
]


@pytest.mark.parametrize(("text", "left"), JOINS)
def test_a_join(text: str, left: str) -> None:
    sides = parse_join(text, "json")
    assert sides is not None
    assert f"{sides[0].topic}{sides[0].field}" == left


@pytest.mark.parametrize(
    "text", ["", "=", "a=b", "/a = /b", "[a]./x", "[a]./x = [b]./y = [c]./z", "[a]./x = UPPER(/y)"]
)
def test_no_join(text: str) -> None:
    assert parse_join(text, "json") is None


FIELDS = [
    ("/qty * /px AS /total", [((), "/qty"), ((), "/px")]),
    ("SUM([fix].[a/b]./14) AS /qty", [(("fix", "a/b"), "/14")]),
    ("[orders].[/Customer ID]", [(("orders",), "[/Customer ID]")]),
    ("'not /a field' = /b", [((), "/b")]),
    ("/data[3] + [a]./list[0]", [((), "/data"), (("a",), "/list")]),
    ("SUM([Orders].[Total]) AS /sum", [(("Orders",), "[/Total]")]),
    ("[nvfix].[/a/b].[Id] + [c]./d", [(("nvfix", "/a/b"), "[/Id]"), (("c",), "/d")]),
    ('CONCAT("/x", /@id) as [/new name]', [((), "/@id")]),
]


@pytest.mark.parametrize(("expression", "expected"), FIELDS)
def test_fields_of_an_expression(
    expression: str, expected: list[tuple[tuple[str, ...], str]]
) -> None:
    assert list(fields_used(expression)) == [FieldUse(*use) for use in expected]


@given(st.text(alphabet="[]./=ab '\"\\AS(", max_size=40))
def test_any_text_can_be_looked_at(text: str) -> None:
    parse_topic(text, "json")
    parse_join(text, "json")
    list(fields_used(text))


@pytest.mark.parametrize("pattern", ["^(a+)+$", "(?R)", "(a?){60}a{60}"])
def test_an_expression_that_never_ends_matches_nothing(pattern: str) -> None:
    assert regex_error(pattern) is None
    assert not matches(pattern, "a" * 60 + "b")


def test_bytes_that_are_no_text_are_no_expression() -> None:
    assert regex_error("a\udc80") == "not text at character 2"


@given(st.text(max_size=20))
def test_a_name_without_regex_characters_is_its_own_expression(name: str) -> None:
    if name and not has_regex_characters(name):
        assert regex_error(name) is None
        assert matches(f"^{name}$", name)
