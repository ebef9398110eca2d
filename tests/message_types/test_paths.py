"""Paths as text, both ways."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.message_types.paths import MAX_STEPS, Path, PathError, format_path, parse_path

names = st.text(st.characters(exclude_characters="/]"), min_size=1, max_size=8)
paths = st.builds(
    lambda first, rest: (first, *rest),
    names,
    st.lists(names | st.integers(0, 999_999_999), max_size=4),
)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/a", ("a",)),
        ("/a/b[2]/@c", ("a", "b", 2, "@c")),
        ("/55", ("55",)),
        ("/0/f", ("0", "f")),
        ("/a[0][1]", ("a", 0, 1)),
        ("[/Not Xpath Name]", ("Not Xpath Name",)),
        ("[/a b/c d][1]/e", ("a b", "c d", 1, "e")),
        ("/a[/x y]/b", ("a", "x y", "b")),
        ("/größe", ("größe",)),
        ("/ns:name.with-all_of'em", ("ns:name.with-all_of'em",)),
    ],
)
def test_parse(text: str, path: Path) -> None:
    assert parse_path(text) == path


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("", 0, "expected a path such as /name"),
        ("/", 0, "expected a name after '/'"),
        ("a", 0, "expected '/' and a name"),
        ("/a/", 2, "expected a name after '/'"),
        ("/a//b", 2, "expected a name after '/'"),
        ("/a b", 2, "expected no space"),
        ("/a[x]", 2, "expected a subscript such as [0]"),
        ("/a[-1]", 2, "expected a subscript"),
        ("/a[1", 2, "expected a subscript"),
        ("[0]", 0, "expected '/' and a name"),
        ("[/a", 0, "expected names and a closing ']'"),
        ("[/]", 0, "expected names and a closing ']'"),
        ("/a" * (MAX_STEPS + 1), 0, f"expected at most {MAX_STEPS} steps"),
    ],
)
def test_parse_error_says_where_and_what(text: str, position: int, message: str) -> None:
    with pytest.raises(PathError) as caught:
        parse_path(text)
    assert caught.value.position == position
    assert message in caught.value.message


@pytest.mark.parametrize("name", ["", "a/b", "a]"])
def test_names_that_no_text_can_express(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        format_path((name,))


@given(paths)
def test_format_then_parse_gives_the_path(path: Path) -> None:
    assert parse_path(format_path(path)) == path


@given(st.text(max_size=40))
def test_any_text_is_a_path_or_a_path_error(text: str) -> None:
    with suppress(PathError):
        assert parse_path(format_path(parse_path(text))) == parse_path(text)
