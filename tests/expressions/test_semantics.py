"""Orders and identities of values, which expressions do not show."""

from __future__ import annotations

import pytest

from server.expressions import semantics
from server.message_types.base import Value


def test_values_sort_null_first_then_numbers_then_texts() -> None:
    values: list[Value] = ["b", 2, None, "a", 1.5, "", -1, float("nan"), "10", True, ["0", 9], "é"]
    ordered = sorted(values, key=semantics.order_key)
    assert repr(ordered) == "[None, '', nan, -1, True, 1.5, 2, ['0', 9], '10', 'a', 'b', 'é']"


def test_the_reference_set_has_its_least_and_greatest_values() -> None:
    values: list[Value] = [24, "020", "cat", 75, 1.3, 200, "75", "42"]
    assert semantics.smallest(values) == 1.3
    assert semantics.largest(values) == "cat"
    assert semantics.smallest([None, ""]) is None


@pytest.mark.parametrize(
    ("left", "right", "alike"),
    [
        (1, 1.0, True),
        (1, "1", True),
        ("1", "1.0", True),
        (1, "one", False),
        ("a", "A", False),
        (True, 1, True),
        (None, "", True),
    ],
)
def test_identities_follow_type_conversion(left: Value, right: Value, alike: bool) -> None:
    assert (semantics.identity_key(left) == semantics.identity_key(right)) is alike
