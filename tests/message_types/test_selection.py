"""Select lists, as Retrieving Part of a Message describes."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.message_types.paths import parse_path
from server.message_types.select_list import SelectionError, parse_selection


@pytest.mark.parametrize(
    ("text", "included", "excluded"),
    [
        ("-/,+/id,+/name", ["/id", "/name", "/name/first"], ["/other", "/other/id"]),
        ("+/,-/details", ["/id"], ["/details", "/details/more"]),
        ("-/event,+/event/description", ["/id", "/event/description"], ["/event", "/event/x"]),
        ("-/pocket_contents", ["/id"], ["/pocket_contents/left"]),
        ("+/event/description,-/event", ["/event/description"], ["/event/x"]),
        ("-/a,+/a", [], ["/a"]),
        ("+/a,-/a", ["/a"], []),
        ("-/a/b,+/,-/", ["/a", "/c"], ["/a/b", "/a/b/c"]),
        (" -/ , +/a ", ["/a"], ["/b"]),
        ("-/,+[/two words, and more]", ["[/two words, and more]"], ["/two"]),
        ("-/a/b", ["/a/c", "/a[1]/c"], ["/a/b", "/a[1]/b", "/a/b[0]"]),
        ("-/Order/@update", ["/Order/update"], ["/Order/@update"]),
    ],
)
def test_most_specific_directive_decides(
    text: str, included: list[str], excluded: list[str]
) -> None:
    selection = parse_selection(text)
    assert [path for path in included if not selection.includes(parse_path(path))] == []
    assert [path for path in excluded if selection.includes(parse_path(path))] == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "expected '+' or '-'"),
        ("/a", "'/a'"),
        ("+", "'+'"),
        ("+a", "expected '/' and a name"),
        ("+/a,", "directive ''"),
        ("+/a,*/b", "'*/b'"),
        ("+/a[0]", "subscripts"),
        ("+[/a", "'[' without ']'"),
        ("+[/a,-/b", "'[' without ']'"),
        ("-/" + "a/" * 1000 + "a", "at most"),
    ],
)
def test_refused_with_the_directive_at_fault(text: str, fault: str) -> None:
    with pytest.raises(SelectionError) as caught:
        parse_selection(text)
    assert fault in str(caught.value)


directives = st.lists(
    st.tuples(st.sampled_from("+-"), st.lists(st.sampled_from("abc"), max_size=3)),
    min_size=1,
    max_size=8,
)


@given(directives, st.lists(st.sampled_from("abc"), min_size=1, max_size=4))
def test_agrees_with_the_longest_prefix(said: list[tuple[str, list[str]]], path: list[str]) -> None:
    text = ",".join(sign + "/" + "/".join(names) for sign, names in said)
    covering = [(len(names), sign) for sign, names in said if path[: len(names)] == names]
    longest = max((length for length, _ in covering), default=0)
    signs = [sign for length, sign in covering if length == longest]
    assert parse_selection(text).includes(tuple(path)) == (signs[:1] != ["-"])


@given(st.text("+-/,[]ab 0", max_size=30))
def test_any_text_is_a_selection_or_a_selection_error(text: str) -> None:
    with suppress(SelectionError):
        parse_selection(text)
