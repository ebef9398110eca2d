"""Binary bodies for people: what a `pretty` connection gets."""

from __future__ import annotations

import json

import pytest

from server.message_types.base import FieldValue
from server.message_types.pretty import pretty_printer
from server.message_types.registry import MessageTypes, create

TYPES = MessageTypes()
FIELDS: list[FieldValue] = [(("id",), 7), (("name",), "ü"), (("px",), 1.5), (("tags",), ["a", "b"])]


@pytest.mark.parametrize("name", ["bson", "msgpack", "bflat"])
def test_a_body_becomes_indented_json(name: str) -> None:
    """All fields with their names, decoded."""
    message_type = TYPES.get(name)
    pretty = pretty_printer(message_type)
    assert pretty is not None
    shown = pretty(message_type.build(FIELDS))
    assert json.loads(shown) == {"id": 7, "name": "ü", "px": 1.5, "tags": ["a", "b"]}
    assert b"\n  " in shown


@pytest.mark.parametrize("name", ["bson", "msgpack", "bflat"])
@pytest.mark.parametrize("body", [b"", b"\xff", b"\x05\x00", b"\xc1\xc1\xc1"])
def test_a_body_that_cannot_be_read_stays_as_it_is_or_shows_what_there_is(
    name: str, body: bytes
) -> None:
    """Never an exception."""
    pretty = pretty_printer(TYPES.get(name))
    assert pretty is not None
    assert isinstance(pretty(body), bytes)


def test_a_struct_shows_its_fields_by_path() -> None:
    """Names come from the configuration."""
    message_type = create("s", "struct", {"Field": ["/n = <i", "/word = 4S"]})
    pretty = pretty_printer(message_type)
    assert pretty is not None
    assert json.loads(pretty(b"\x05\x00\x00\x00ab\x00\x00")) == {"/n": 5, "/word": "ab"}


@pytest.mark.parametrize("name", ["json", "fix", "nvfix", "xml", "binary"])
def test_types_that_people_can_read_have_no_printer(name: str) -> None:
    """Their bodies go out verbatim."""
    assert pretty_printer(TYPES.get(name)) is None
