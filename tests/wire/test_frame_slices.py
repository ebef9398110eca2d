"""Places of bodies in the stream are a sequence of bodies, and become frames."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amperage.wire.frame_slices import Places, cut_run, framed, framed_for, framed_for_each
from amperage.wire.framing import frame

HEADER = b'{"c":"p","t":"a"}'
BODIES = st.lists(st.binary(max_size=30) | st.just(b"x" * 20))


def places_of(bodies: Sequence[bytes]) -> Places:
    stream = b"".join(frame(HEADER, body) for body in bodies)
    places, digits, end = cut_run(stream, 0, HEADER, None, 1000)
    assert (len(digits), end) == (0, len(stream))
    return places


@given(BODIES, st.slices(8), st.slices(8), st.integers(-9, 9), st.booleans())
def test_places_are_like_a_list(
    bodies: list[bytes], part: slice, of_that: slice, number: int, made: bool
) -> None:
    """Whether objects have been made of them, or not."""
    places = places_of(bodies)
    if made:
        assert list(places) == bodies
    some, expected = places[part], bodies[part]
    assert list(some[of_that]) == expected[of_that]
    assert [some[one] for one in range(len(some))] == list(some) == expected
    assert (len(places), bool(places)) == (len(bodies), bool(bodies))
    if -len(bodies) <= number < len(bodies):
        assert places[number] == bodies[number]
        assert places.index(bodies[number]) == bodies.index(bodies[number])
        assert places.count(bodies[number]) == bodies.count(bodies[number])
    else:
        with pytest.raises(IndexError, match=f"there are {len(bodies)} pieces"):
            places[number]


@given(BODIES, st.binary(max_size=20), st.binary(max_size=20), st.slices(8))
def test_frames_have_heads_that_say_their_lengths(
    bodies: list[bytes], left: bytes, right: bytes, part: slice
) -> None:
    some = bodies[part]
    expected = [frame(b'%b,"l":%d%b' % (left, len(body), right), body) for body in some]
    for given_as in (some, tuple(some), places_of(bodies)[part]):
        assert framed(given_as, left, right) == b"".join(expected)


@given(BODIES, st.data(), st.booleans())
def test_frames_for_one_subscription_each(
    bodies: list[bytes], data: st.DataObject, as_places: bool
) -> None:
    ids = [data.draw(st.none() | st.sampled_from(["1", "s-22", "\N{SNOWMAN}"])) for _ in bodies]
    given_ = places_of(bodies) if as_places else bodies
    left, keys = b'{"c":"p","t":"a"', b',"bm":"1|2|"'
    frames = framed_for_each(ids, given_, left, keys)
    for one, body, made in zip(ids, bodies, frames, strict=True):
        if one is None:
            assert made is None
        else:
            assert made == framed_for(one, body, left, keys)
            size = str(len(body)).encode()
            header = left + b',"l":' + size + keys + b',"sids":"' + one.encode() + b'"}'
            assert made == frame(header, body)


@pytest.mark.parametrize("size", [9, 10, 99, 100, 9_999, 10_000, 70_000])
def test_lengths_of_any_number_of_digits(size: int) -> None:
    bodies = [b"a" * size, b"b" * size, b"c" * (size + 1)]
    expected = [frame(b'{"x":1,"l":%d}' % len(body), body) for body in bodies]
    assert framed(bodies, b'{"x":1', b"}") == b"".join(expected)


@given(
    st.lists(st.integers(0, 10**19), min_size=1),
    st.sampled_from([b"}", b',"a":"processed"}']),
    st.binary(max_size=9),
    st.integers(20, 60),
)
def test_numbers_are_cut_up_to_the_first_that_is_none(
    numbers: list[int], right: bytes, body: bytes, limit: int
) -> None:
    left = b'{"s":'
    headers = [left + b"%d" % number + right for number in numbers]
    stream = b"".join(frame(header, body) for header in headers)
    good = 0
    while good < len(numbers) and 0 < numbers[good] < 10**18:
        if len(headers[good]) + len(body) > limit:
            break
        good += 1
    for cut in range(len(stream) + 1):
        bodies, digits, end = cut_run(stream[:cut], 0, left, right, limit)
        whole, at = 0, 0
        while whole < good and at + 4 + len(headers[whole]) + len(body) <= cut:
            at += 4 + len(headers[whole]) + len(body)
            whole += 1
        assert (list(bodies), end) == ([body] * whole, at)
        assert list(digits) == [b"%d" % number for number in numbers[:whole]]
