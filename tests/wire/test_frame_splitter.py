"""Frames with known headers are split off up to the first that is unknown, in any mixture."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amperage.wire.frame_batches import FrameBatch, HeaderColumns
from amperage.wire.frame_splitter import HeaderShapes, split_known
from amperage.wire.framing import FrameReader, frame

HEADERS = [
    b'{"c":"publish","t":"a"}',
    b'{"c":"publish","t":"b"}',
    b'{"c":"publish","t":"a","s":%d}',
    b'{"c":"publish","t":"ab","s":%d,"a":"persisted"}',
    b'{"c":"publish","t":"ab","s":%d,"a":"processed"}',
    b'{"c":"publish","t":",\\"s\\":","s":%d}',
    b'{"s":%d}',
    b'{"s":%d,"x":"%d","c":"p","e":%d}',
    b'{"cid":"%d","c":"p","t":"a","s":%d}',
    b'{"c":"p","cid":"}","cid":"2"}',
    b'{"c":"p","cid":7,"cide":"%d","acid":"%d"}',
    b'{"x":"a}b,{","k":"%d","c":"p","t":"a"}',
    b'{"k":"\\"","c":"p","t":"a"}',
    b'{"e":0,"t":",","x":"%d"}',
    b'{"e":00,"x":"","k":"{"}',
    b'{"c":"publish","t":"a}b","s":%d}',
    b'{"c":"publish","t":"a}b"}',
    b'{"c":"publish","t":"a","s":%d,"s":7}',
    b'{"c":"publish","t":"a","s":0%d}',
    b'{"c":"publish","t":"a","s":%d ,"e":7}',
    b"{}",
]
NUMBERS = st.integers(0, 10**19) | st.integers(1, 50)
MESSAGES = st.lists(
    st.tuples(st.sampled_from(HEADERS), NUMBERS, st.binary(max_size=9), st.integers(1, 3))
)
VALUE = re.compile(rb'(?:(?<=[{,]"[sxke]":)|(?<=[{,]"cid":))("[^"\\]+"|[0-9]+)')


def filled(header: bytes, number: int) -> bytes:
    return header.replace(b"%d", b"%d" % number)


def encoded(messages: Sequence[tuple[bytes, int, bytes, int]]) -> list[tuple[bytes, bytes]]:
    return [
        (filled(header, number), body)
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
    table = HeaderShapes()
    for header in known:
        table.add(filled(header, 1))
    stream = b"".join(frame(*one) for one in frames)
    cut = data.draw(st.integers(0, len(stream)))
    headers, bodies, values, keys, end = split_known(stream[:cut], 0, table, limit)
    columns = HeaderColumns(*values)
    batch = FrameBatch(table.generation, keys, headers, columns, bodies)
    count = len(bodies)
    assert list(batch.frames()) == frames[:count]
    assert stream[:end] == b"".join(frame(*one) for one in frames[:count])
    one_by_one = FrameReader(limit=limit).feed(stream[:cut])
    if count < len(one_by_one):
        header, _ = one_by_one[count]
        assert table.find(header)[0] < 0
    for row, (header, _) in enumerate(frames[:count]):
        key, *found = table.find(header)
        assert key == (keys if isinstance(keys, int) else keys[row])
        assert [column[row] if len(column) else b"" for column in columns] == found
    start, most = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))
    part = batch.part(start, most)
    assert list(part.frames()) == frames[:count][start : start + most]
    assert [len(column) in (0, len(part.bodies)) for column in part.values] == [True] * 5


@given(st.sampled_from(HEADERS), NUMBERS, st.sampled_from(HEADERS), NUMBERS)
def test_headers_of_one_shape_differ_by_plain_values_only(
    header: bytes, number: int, other: bytes, other_number: int
) -> None:
    header, other = filled(header, number), filled(other, other_number)
    table = HeaderShapes()
    key = table.add(header)
    found, *values = table.find(header)
    assert found == key
    if key >= 0:
        for name, value in zip((b"s", b"x", b"k", b"e", b"cid"), values, strict=True):
            assert not value or re.search(rb'"%b":"?%b["},]' % (name, re.escape(value)), header)
        if table.find(other)[0] == key:
            assert VALUE.sub(b"", header) == VALUE.sub(b"", other)


@pytest.mark.parametrize(
    ("header", "values"),
    [
        (
            b'{"c":"p","s":12,"x":"id","k":"key","e":30,"cid":"7"}',
            (b"12", b"id", b"key", b"30", b"7"),
        ),
        (b'{"e":0,"k":"}","x":"{,","s":1,"c":"p"}', (b"1", b"{,", b"}", b"0")),
        (b'{"cid":"a,}","s":0}', (b"", b"", b"", b"", b"a,}")),
        (b'{"cid":7,"cide":"a","acid":"b"}', ()),
        (b'{"s":1234567890123456789}', ()),
        (b'{"x":"\\u0041","e":1234567890,"cid":""}', ()),
        (b'{"x":"\xc3\xa9","k":7,"e":"1","s":1.5}', ()),
        (b'{"x":"%b","s":5}' % (b"i" * 512), (b"5", b"i" * 512)),
        (b'{"x":"%b","s":5}' % (b"i" * 513), (b"5",)),
        (b'{"o":"x","t":",","s":5}', (b"5",)),
    ],
)
def test_values_are_plain(header: bytes, values: tuple[bytes, ...]) -> None:
    table = HeaderShapes()
    assert table.add(header) == 0
    assert table.find(header) == (0, *values, *[b""] * (5 - len(values)))


@pytest.mark.parametrize(
    "header", [b'{"s":1,"s":1}', b'{"cid":"a","cid":"b"}', b'{"t":"}"}', b"{", b"", b"{}}"]
)
def test_some_headers_cannot_be_known(header: bytes) -> None:
    table = HeaderShapes()
    assert (table.add(header), len(table)) == (-1, 0)
    assert table.find(header) == (-1, b"", b"", b"", b"", b"")


@given(MESSAGES)
def test_frames_of_one_shape_share_its_key(
    messages: list[tuple[bytes, int, bytes, int]],
) -> None:
    table = HeaderShapes()
    for header, _ in encoded(messages):
        table.add(header)
    frames = [(b'{"c":"publish","t":"a","s":%d}' % (number + 1), b"1") for number in range(5)]
    key = table.add(frames[0][0])
    stream = b"".join(frame(*one) for one in frames)
    assert split_known(stream, 0, table, 1000)[3] == key


def test_shapes_have_indexes_until_they_are_forgotten() -> None:
    table = HeaderShapes()
    many = [b'{"t":"%d","s":5}' % number for number in range(3000)]
    assert [table.add(header) for header in many] == list(range(3000))
    assert [table.find(header)[0] for header in many] == list(range(3000))
    assert table.add(many[7]) == 7
    stream = b"".join(map(frame, many))
    headers, bodies, values, keys, end = split_known(stream, 0, table, 1000)
    assert not isinstance(keys, int)
    assert (len(bodies), list(keys), end) == (3000, list(range(3000)), len(stream))
    assert (list(headers), list(values[0])) == (many, [b"5"] * 3000)
    before = table.generation
    table.clear()
    assert (len(table), table.find(many[0])[0], table.generation > before) == (0, -1, True)
    assert split_known(stream, 0, table, 1000)[4] == 0
    assert table.add(many[8]) == 0
