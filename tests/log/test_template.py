"""Templates and their values: nothing that a client sends can disturb the log or its reader."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.log.template import MessageTemplate, printable


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("", ""),
        ("plain", "plain"),
        (12, "12"),
        (0.5, "0.5"),
        (True, "True"),
        (b"bytes", "bytes"),
        ("Grüße €", "Grüße €"),
        ("Grüße €".encode(), "Grüße €"),
        (b"\xff\x00", "\\xff^@"),
        ("8=FIX\x0135=D\x01", "8=FIX^A35=D^A"),
        ("\x1b[31mred\x7f", "^[[31mred^?"),
        ("tab\tstays", "tab\tstays"),
        ("one\r\ntwo", "one^M\n two"),
        ("\x85\u2028", "\\x85\\u2028"),
        ("\udcff", "\\xff"),
        ("gro\u202eup\u200b\U000e0041", "gro\\u202eup\\u200b\\U000e0041"),
        (Unprintable(), "<Unprintable>"),
    ],
)
def test_values_become_text_that_is_safe_to_read(value: object, text: str) -> None:
    assert printable(value) == text


def test_what_is_not_seen_is_written_as_what_it_is() -> None:
    """No character that changes how others are shown, in whatever version of Unicode."""
    kept = [
        f"{code:x}"
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(char := chr(code)) == "Cf" and char in printable(char)
    ]
    assert not kept


@given(st.one_of(st.text(), st.binary()))
def test_no_value_writes_control_characters_or_begins_a_line(value: str | bytes) -> None:
    text = printable(value)
    assert all(line.startswith(" ") for line in text.split("\n")[1:])
    assert not [char for char in text if ord(char) < 32 and char not in "\t\n"]
    assert len(text.splitlines()) <= text.count("\n") + 1


@pytest.mark.parametrize(
    ("template", "fields", "text"),
    [
        ("no fields", {}, "no fields"),
        ("a {b} c", {"b": 1}, "a 1 c"),
        ("{a}{b}", {"a": 1, "b": 2}, "12"),
        ("{{literal}} {a}", {"a": 1}, "{literal} 1"),
        ("{a} {b}", {"b": 2}, "? 2"),
        ("{a}", {"a": None}, ""),
        ("x{a:, a = }", {}, "x"),
        ("x{a:, a = }", {"a": None}, "x"),
        ("x{a:, a = }", {"a": 5}, "x, a = 5"),
        ("x{a:: }", {"a": "y"}, "x: y"),
        ("a {b}", {"b": 1, "unused": 2}, "a 1"),
        ("{a}", {"a": "{b}", "b": "not expanded"}, "{b}"),
    ],
)
def test_templates_render(template: str, fields: dict[str, object], text: str) -> None:
    assert MessageTemplate(template).render(fields) == text


def test_a_template_knows_its_fields() -> None:
    template = MessageTemplate("{a} {b:, } {a}")
    assert template.required == {"a"}
    assert template.optional == {"b"}


@pytest.mark.parametrize("text", ["{", "}", "{}", "{0}", "{a.b}", "{a[0]}", "{a!r}"])
def test_a_template_that_is_more_than_names_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        MessageTemplate(text)


def test_long_values_lose_their_middle() -> None:
    """What clients send may be of any length; how much is left out is said."""
    template = MessageTemplate("{a}{b: and }")
    text = template.render({"a": "x" * 500 + "y" * 500, "b": b"short"}, 200)
    assert text == "x" * 100 + "... 800 characters more ..." + "y" * 100 + " and short"
    assert template.render({"a": "x" * 200}, 200) == "x" * 200
