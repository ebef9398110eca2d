"""Numbers are read from their digits, whether these are objects or places in the stream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amperage.wire.frame_splitter import HeaderShapes, split_known
from amperage.wire.framing import frame
from amperage.wire.sequences import numbers_of

COUNTED = st.builds(
    lambda first, count: list(range(first, first + count)),
    st.integers(1, 10**17),
    st.integers(0, 5),
)
NUMBERS = COUNTED | st.lists(st.integers(1, 10**18 - 1), max_size=5)


@given(NUMBERS)
def test_numbers_are_those_of_the_digits(numbers: list[int]) -> None:
    written = [b"%d" % number for number in numbers]
    stream = b"".join(frame(b'{"c":"p","s":%b}' % digits, b"body") for digits in written)
    shapes = HeaderShapes()
    shapes.add(b'{"c":"p","s":1}')
    _, _, values, _, _ = split_known(stream, 0, shapes, 1000)
    for found in (numbers_of(written), numbers_of(values[0])):
        assert list(found) == numbers
        is_counted = bool(numbers) and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert isinstance(found, range) == is_counted


@given(st.lists(st.integers(0, 10**25), max_size=5))
def test_numbers_of_any_length(numbers: list[int]) -> None:
    assert list(numbers_of([b"%d" % number for number in numbers])) == numbers


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        numbers_of([b"1", b"2x"])
