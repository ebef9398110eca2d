"""Functions that need more than a record: modules, lookups, user code, contexts and aggregates."""

from __future__ import annotations

from types import ModuleType

import pytest

from server.expressions import BUILTINS, ContextKind, ExpressionError, check, parse, parse_field
from server.expressions.backends.compile_message import compile_filter, compile_value
from server.expressions.functions.lookups import ValueLookup, parse_lookup, value_lookup
from server.expressions.functions.user_defined import UserFunctionError, load_function
from server.expressions.message_context import MessageContext
from server.expressions.tree import Reference, slots
from server.message_types.base import Value


def _module() -> ModuleType:
    module = ModuleType("pricing")

    def forward(price: float, rate: float, years: float) -> float:
        return price * (1 + rate * years)

    def join(*arguments: Value) -> str:
        return "+".join(map(str, arguments))

    def noisy() -> float:
        return 4.0

    vars(noisy)["deterministic"] = False
    vars(module).update(
        forward=forward, join=join, noisy=noisy, gives_bytes=lambda: b"x", constant=5
    )
    return module


def test_user_defined_functions_are_called_by_any_spelling_of_their_names() -> None:
    failures: list[tuple[str, str]] = []

    def on_failure(name: str, reason: str) -> None:
        failures.append((name, reason))

    module = _module()
    functions = BUILTINS.with_functions(
        [
            load_function("FWD_PRICE", module, "forward", 3, on_failure),
            load_function("join", module, "join", None, on_failure),
            load_function("NOISY", module, "noisy", 0, on_failure),
            load_function("BAD", module, "gives_bytes", 0, on_failure),
        ]
    )

    def value(text: str, *values: Value) -> Value:
        return compile_value(parse(text, functions=functions), functions)(values)

    assert value("fwd_price(/a, 0.5, 2)", 10.0) == 20.0
    assert value("JOIN(/a, 2, 'x', NULL)", [7, 8]) == "7+2+x+None"
    assert value("JOIN()") is None
    assert value("NOISY()") == 4.0
    assert failures == []
    assert value("FWD_PRICE(/a, 'x', 2) IS NULL", 10.0) is True
    assert value("BAD()") is None
    assert [name for name, _ in failures] == ["FWD_PRICE", "BAD"]
    assert "TypeError" in failures[0][1]
    assert check("NOISY() > 1", ContextKind.STABLE_FILTER, functions) is not None
    assert check("FWD_PRICE(1)", ContextKind.FILTER, functions) is not None
    with pytest.raises(ExpressionError):
        parse("FWD_PRICE(1, 2, 3)")


@pytest.mark.parametrize(
    ("name", "symbol"),
    [("F", "missing"), ("F", "constant"), ("AND", "join"), ("SUM", "join"), ("a b", "join")],
)
def test_functions_that_cannot_be_had(name: str, symbol: str) -> None:
    with pytest.raises(UserFunctionError):
        load_function(name, _module(), symbol, None, lambda *_: None)


def test_lookups_find_a_field_of_another_record() -> None:
    asked: list[tuple[str, tuple[str, ...]]] = []

    def find(lookup: ValueLookup, keys: tuple[str, ...]) -> Value:
        asked.append((lookup.topic, keys))
        return 42.5 if keys == ("7",) else None

    lookup = parse_lookup("by-id;1;json;data;/value;/id")
    functions = BUILTINS.with_functions([value_lookup([lookup], find)])
    text = "VALUE_LOOKUP('by-id', /thisId) AS /v"
    source = parse_field(text, ContextKind.ENRICHMENT, functions).source
    evaluate = compile_value(source, functions)
    assert evaluate((7,)) == "42.5"
    assert evaluate((8,)) is None
    assert asked == [("data", ("7",)), ("data", ("8",))]
    assert evaluate((None,)) is None
    assert len(asked) == 2
    assert check(text, ContextKind.PREPROCESSING, functions) is None
    for kind in (ContextKind.PROJECTION, ContextKind.FILTER):
        assert check("VALUE_LOOKUP('by-id', /a) AS /v", kind, functions) is not None


def test_the_lookup_option_is_read() -> None:
    assert parse_lookup(
        " n ; 2 ; nvfix ; orders ; /notes ; /customer/id ; /orderId "
    ) == ValueLookup("n", "nvfix", "orders", ("notes",), (("customer", "id"), ("orderId",)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a;1;json;t;/v",
        "a;2;json;t;/v;/k",
        "a;1;json;t;v;/k",
        "a;1;json;t;/v;'k'",
        "a;1;;t;/v;/k",
    ],
)
def test_bad_lookups_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_lookup(text)


def test_contexts_are_read_when_functions_ask() -> None:
    class Lazy(MessageContext):
        asked = 0

        @property
        def topic_name(self) -> str:  # type: ignore[override]  # found when asked for
            type(self).asked += 1
            return "orders"

    predicate = compile_filter(parse("/a = 1 AND TOPIC_NAME() = 'orders'"))
    assert not predicate((2,), Lazy())
    assert Lazy.asked == 0
    assert predicate((1,), Lazy())
    assert not predicate((1,))


def test_filters_share_a_layout() -> None:
    layout = (Reference(("a",)), Reference(("b",)), Reference(("c",)))
    first = compile_filter(parse("/c = 3"), layout=layout)
    second = compile_filter(parse("/b = 2 AND /a = 1"), layout=layout)
    assert first((1, 2, 3))
    assert second((1, 2, 3))
    with pytest.raises(KeyError):
        compile_filter(parse("/d = 1"), layout=layout)


def test_aggregates_are_passed_as_values() -> None:
    source = parse_field("SUM(/a * /b) / SUM(/a) AS /avg", ContextKind.PROJECTION).source
    assert len(slots(source)) == 2
    evaluate = compile_value(source)
    assert evaluate((100.0, 8)) == 12.5
    assert evaluate((100.0, None)) is None
    ratio = evaluate((0, 0))
    assert ratio != ratio


@pytest.mark.parametrize(
    "text",
    [
        "REPLACE(REPLACE(/a, 'a', /a), 'a', /a)",
        "REGEXP_REPLACE(REGEXP_REPLACE(/a, 'a', /a), 'a', /a)",
        "REGEXP_REPLACE(REPLACE(/a, 'a', /a), '', /a)",
        f"CONCAT({', '.join(['/a'] * 17_000)})",
        "ARRAY_TO_STRING(/b, /a, 'x')",
    ],
    ids=lambda text: text[:30],
)
def test_no_function_makes_a_text_without_end(text: str) -> None:
    tree = parse(text)
    values: tuple[Value, ...] = ("a" * 1000, ["x"] * 17_000)
    assert compile_value(tree, layout=(Reference(("a",)), Reference(("b",))))(values) is None


def test_only_the_branch_that_is_needed_is_evaluated() -> None:
    calls: list[str] = []

    def note(name: Value) -> Value:
        calls.append(str(name))
        return 1

    module = ModuleType("m")
    vars(module)["note"] = note
    functions = BUILTINS.with_functions([load_function("NOTE", module, "note", 1, lambda *_: None)])
    text = "IF(/a > 1, NOTE('then'), NOTE('else')) = 1 OR NOTE('or') = 1"
    predicate = compile_filter(parse(text, functions=functions), functions)
    assert predicate((2,))
    assert predicate((0,))
    assert calls == ["then", "else"]
