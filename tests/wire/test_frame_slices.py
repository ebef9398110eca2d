"""Places of bodies in the stream are a sequence of bodies, and become frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amperage.wire.frame_slices import (
    HeaderParts,
    SharedFrames,
    framed,
    framed_by_key,
    framed_for,
    framed_for_each,
    framed_shared,
)
from amperage.wire.framing import frame
from tests.support.frame_slices import bodies_in_stream

NUMBERS = st.integers(0, 2**64 - 1) | st.integers(0, 20)
BODIES = st.lists(st.binary(max_size=30) | st.just(b"x" * 20))


@given(BODIES, st.slices(8), st.slices(8), st.integers(-9, 9), st.booleans())
def test_places_are_like_a_list(
    bodies: list[bytes], part: slice, of_that: slice, number: int, made: bool
) -> None:
    """Whether objects have been made of them, or not."""
    places = bodies_in_stream(bodies)
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
    for given_as in (some, tuple(some), bodies_in_stream(bodies)[part]):
        assert framed(given_as, left, right) == b"".join(expected)
        assert framed_shared(given_as, left, right) == b"".join(expected)


@given(st.lists(st.integers(0, 3_000), min_size=1, max_size=40), st.binary(max_size=20))
def test_frames_that_refer_to_their_bodies_are_the_same_bytes(
    sizes: list[int], left: bytes
) -> None:
    """Bodies are not copied if they are long: 512 bytes in the mean, and 16 KB in all."""
    bodies = bodies_in_stream([bytes([number]) * size for number, size in enumerate(sizes)])
    expected = framed(bodies, left, b"}")
    made = framed_shared(bodies, left, b"}")
    is_long = sum(sizes) >= max(16_384, 512 * len(sizes))
    assert isinstance(made, SharedFrames) == is_long
    assert (len(made), bytes(made)) == (len(expected), expected)


@given(BODIES, st.data(), st.booleans())
def test_frames_for_one_subscription_each(
    bodies: list[bytes], data: st.DataObject, as_places: bool
) -> None:
    ids = [data.draw(st.none() | st.sampled_from(["1", "s-22", "\N{SNOWMAN}"])) for _ in bodies]
    given_ = bodies_in_stream(bodies) if as_places else bodies
    lefts = [data.draw(st.sampled_from([b'{"c":"p","t":"a"', b'{"c":"p"'])) for _ in bodies]
    keys = b',"bm":"1|2|"'
    frames = framed_for_each(ids, given_, lefts, keys)
    for one, body, left, made in zip(ids, bodies, lefts, frames, strict=True):
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


@given(BODIES, st.data(), st.booleans())
def test_frames_with_headers_of_several_kinds(
    bodies: list[bytes], data: st.DataObject, as_places: bool
) -> None:
    """Each has the header of its key; those whose key has none are left out."""
    kinds = data.draw(st.dictionaries(st.integers(0, 40), st.binary(min_size=1, max_size=20)))
    parts = HeaderParts()
    for key in data.draw(st.lists(st.integers(0, 40))):
        parts.set(key, b"another", b"", b"}")
    for key in range(41):
        parts.discard(key)
    some = st.sets(st.sampled_from([*kinds])) if kinds else st.just(set())
    with_sow_keys, with_timestamps, with_bookmarks = data.draw(st.tuples(some, some, some))
    for key, left in kinds.items():
        parts.set(
            key,
            left,
            b',"n":%d' % key,
            b',"sids":""}',
            has_sow_key=key in with_sow_keys,
            has_timestamp=key in with_timestamps,
            has_bookmark=key in with_bookmarks,
        )
    keys = [data.draw(st.integers(-1, 99) | st.sampled_from([*kinds, 0])) for _ in bodies]
    sow_keys = [data.draw(st.integers(0, 2**64 - 1)) for _ in bodies]
    publisher, numbers = data.draw(st.tuples(NUMBERS, st.lists(NUMBERS, min_size=len(bodies))))
    numbers = data.draw(st.sampled_from([numbers[: len(bodies)], ()]))
    expected = [
        frame(
            b'%b%b,"l":%d,"n":%d%b%b,"sids":""}'
            % (
                kinds[key],
                b',"k":"%d"' % sow_key * (key in with_sow_keys),
                len(body),
                key,
                b',"ts":"now"' * (key in with_timestamps),
                b',"bm":"%d|%d|"' % (publisher, number) * (key in with_bookmarks and number > 0),
            ),
            body,
        )
        for key, body, sow_key, number in zip(
            keys, bodies, sow_keys, numbers or [0] * len(bodies), strict=True
        )
        if key in kinds
    ]
    frames, count = framed_by_key(
        bodies_in_stream(bodies) if as_places else bodies,
        keys,
        parts,
        sow_keys if with_sow_keys else [],
        b',"ts":"now"',
        publisher,
        numbers,
    )
    assert (frames, count, len(parts)) == (b"".join(expected), len(expected), len(kinds))


def test_a_key_for_each_body_is_wanted() -> None:
    with pytest.raises(ValueError, match="1 keys and 0 numbers for 2 bodies"):
        framed_by_key([b"1", b"2"], [0], HeaderParts())
    parts = HeaderParts()
    parts.set(0, b"{", b"", b"}", has_sow_key=True, has_bookmark=True)
    with pytest.raises(ValueError, match="2 keys and 1 numbers for 2 bodies"):
        framed_by_key([b"1", b"2"], [0, 0], parts, [5, 6], numbers=[1])
    with pytest.raises(ValueError, match="1 SOW keys for 2 bodies"):
        framed_by_key([b"1", b"2"], [0, 0], parts, [5])
