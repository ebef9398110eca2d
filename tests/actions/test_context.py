"""Variables: what they are worth, and what becomes of texts that hold them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions.context import ActionContext, VariableTemplate
from server.util.encoding import text_to_bytes

VALUES = {"A": b"1", "EMPTY": b"", "BODY": b"\xff{{A}}\x00"}

CASES = [
    ("", b""),
    ("no variable", b"no variable"),
    ("{{A}}", b"1"),
    ("{{ A }}+{{A}}", b"1+1"),
    ("[{{EMPTY}}{{UNSET}}]", b"[]"),
    ("x{{BODY}}y", b"x\xff{{A}}\x00y"),  # a value is not looked at again
    ("{{AMPS_BYTE_00}}{{AMPS_BYTE_0A}}{{AMPS_BYTE_FF}}", b"\x00\n\xff"),
    ("{{AMPS_BYTE_ff}}{{AMPS_BYTE_100}}{{AMPS_BYTE_}}", b""),
    ("{{AMPS_INSTANCE_NAME}}", b"plant"),
    ("{{AMPS_DATETIME}}", b"20010909T014640.250000Z"),
    ("{{AMPS_UNIX_TIMESTAMP}}", b"1000000000"),
    ("{A} {{A} {A}} {{{A}}}", b"{A} {{A} {A}} {1}"),
    ("é{{A}}", "é1".encode()),
]


def context(values: dict[str, bytes]) -> ActionContext:
    return ActionContext("plant", 1_000_000_000.25, values, "test")


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_a_template_expands_to(text: str, expected: bytes) -> None:
    assert VariableTemplate(text).expand(context(VALUES)) == expected


def test_what_an_event_sets_comes_before_the_defaults() -> None:
    assert context({"AMPS_INSTANCE_NAME": b"other"})["AMPS_INSTANCE_NAME"] == b"other"


@given(st.lists(st.sampled_from(["{{", "}}", "{", "}", "A", "B", " ", "é", "\udcff"])))
def test_expansion_is_a_substitution(pieces: list[str]) -> None:
    """Whatever stands there, only whole variables are replaced, once, and nothing is lost."""
    text = "".join(pieces)
    values = {"A": b"{{B}}", "B": b""}
    expected = re.sub(
        r"\{\{\s*([^{}]*?)\s*\}\}",
        lambda match: values.get(match[1], b"").decode(),
        text,
    )
    assert VariableTemplate(text).expand(context(values)) == text_to_bytes(expected)
