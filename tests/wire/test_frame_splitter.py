"""Frames with known headers are split off up to the first that is unknown, in any mixture."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from amperage.wire.frame_splitter import HeaderShapes, split_known
from amperage.wire.framing import FrameReader, frame
from amperage.wire.header_template import FrameBatch, HeaderShape, split_at_sequence

HEADERS = [
    b'{"c":"publish","t":"a"}',
    b'{"c":"publish","t":"b"}',
    b'{"c":"publish","t":"a","s":%d}',
    b'{"c":"publish","t":"ab","s":%d,"a":"persisted"}',
    b'{"c":"publish","t":"ab","s":%d,"a":"processed"}',
    b'{"c":"publish","t":",\\"s\\":","s":%d}',
    b'{"s":%d}',
    b'{"c":"publish","t":"a}b","s":%d}',
    b'{"c":"publish","t":"a}b"}',
    b'{"c":"publish","t":"a","s":%d,"s":7}',
    b'{"c":"publish","t":"a","s":0%d}',
    b"{}",
]
NUMBERS = st.integers(0, 10**19) | st.integers(1, 50)
MESSAGES = st.lists(
    st.tuples(st.sampled_from(HEADERS), NUMBERS, st.binary(max_size=9), st.integers(1, 3))
)


def shape_of(header: bytes) -> HeaderShape:
    left, digits, right = split_at_sequence(header)
    return (left, right) if digits else header


def encoded(messages: Sequence[tuple[bytes, int, bytes, int]]) -> list[tuple[bytes, bytes]]:
    return [
        (header % number if b"%d" in header else header, body)
        for header, number, body, times in messages
        for _ in range(times)
    ]


@given(MESSAGES, st.sets(st.sampled_from(HEADERS)), st.integers(20, 70), st.data())
def test_frames_up_to_the_first_with_another_header(
    messages: list[tuple[bytes, int, bytes, int]],
    known: set[bytes],
    limit: int,
    data: st.DataObject,
) -> None:
    """The same as those that are split off one by one, wherever the stream is cut."""
    frames = encoded(messages)
    shapes = [shape_of(header % 1 if b"%d" in header else header) for header in known]
    table = HeaderShapes(shapes)
    stream = b"".join(frame(*one) for one in frames)
    cut = data.draw(st.integers(0, len(stream)))
    bodies, digits, keys, end = split_known(stream[:cut], 0, table, limit)
    batch = FrameBatch(table.shapes, keys, digits, bodies)
    count = len(bodies)
    assert list(batch.frames()) == frames[:count]
    assert stream[:end] == b"".join(frame(*one) for one in frames[:count])
    one_by_one = FrameReader(limit=limit).feed(stream[:cut])
    if count < len(one_by_one):
        header, _ = one_by_one[count]
        assert b"}" in header[:-1] or shape_of(header) not in shapes
    start, most = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))
    assert list(batch.part(start, most).frames()) == frames[:count][start : start + most]


@given(MESSAGES)
def test_frames_of_one_shape_share_its_key(
    messages: list[tuple[bytes, int, bytes, int]],
) -> None:
    table = HeaderShapes(map(shape_of, (header for header, _ in encoded(messages))))
    frames = [(b'{"c":"publish","t":"a","s":%d}' % (number + 1), b"1") for number in range(5)]
    key = table.add(shape_of(frames[0][0]))
    stream = b"".join(frame(*one) for one in frames)
    assert split_known(stream, 0, table, 1000)[2] == key


def test_shapes_have_indexes_until_they_are_forgotten() -> None:
    table = HeaderShapes()
    many = [(b'{"t":"%d"' % number, b"}") for number in range(3000)]
    assert [table.add(shape) for shape in many] == list(range(3000))
    assert [table.index(shape) for shape in many] == list(range(3000))
    assert table.add(many[7]) == 7
    stream = b"".join(frame(left + b',"s":5' + right) for left, right in many)
    bodies, digits, keys, end = split_known(stream, 0, table, 1000)
    assert not isinstance(keys, int)
    assert (len(bodies), list(keys), end) == (3000, list(range(3000)), len(stream))
    assert list(digits) == [b"5"] * 3000
    before = table.shapes
    table.clear()
    assert (len(table), table.index(many[0]), list(before)) == (0, -1, many)
    assert split_known(stream, 0, table, 1000)[3] == 0
    assert table.add(many[8]) == 0
