"""Frames come out of a stream of bytes as they went in, however the stream is cut."""

from __future__ import annotations

import json
import struct
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amperage.wire.frame_batches import FrameBatchReader
from amperage.wire.framing import (
    MAX_BUFFERED_HEADER_SIZE,
    AmpsFrameParts,
    Frame,
    FrameReader,
    LongHeaderError,
    frame,
    frame_batch,
)
from amperage.wire.header import Header, decode_frame
from server.util.limits import MAX_HEADER_SIZE

TEXTS = st.text(max_size=12) | st.sampled_from(['"', "}", "{", '\\"}', "\\", "\n", "}}{{"])
HEADERS = st.fixed_dictionaries({"c": st.just("publish"), "t": TEXTS, "f": TEXTS})
BODIES = st.binary(max_size=40)


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    """The stream in pieces."""
    edges = sorted({0, len(stream), *(at % (len(stream) + 1) for at in cuts)})
    return [stream[a:b] for a, b in pairwise(edges)]


def feed_all(reader: FrameReader, piece: bytes) -> list[Frame]:
    """All frames that a piece of a stream completes, those of runs in their places."""
    frames: list[Frame] = []
    is_new = True
    while is_new or reader.has_more:
        some = reader.feed(piece if is_new else b"")
        run = reader.take_batch()
        frames += [*(run.frames() if run else ()), *some]
        is_new = False
    return frames


@given(st.lists(st.tuples(HEADERS, BODIES), max_size=6), st.lists(st.integers(0, 10_000)))
def test_frames_survive_any_cutting(
    messages: list[tuple[dict[str, str], bytes]], cuts: list[int]
) -> None:
    """Headers with braces and quotes in their strings, repeated; any bodies, cuts anywhere.

    A text that is empty says nothing.
    """
    messages = [(header, body[:end]) for header, body in messages for end in (None, None, 1, 0)]
    stream = b"".join(frame(json.dumps(header).encode(), body) for header, body in messages)
    reader = FrameReader()
    frames = [one for piece in cut(stream, cuts) for one in reader.feed(piece)]
    assert reader.error is None
    assert not reader.has_partial_frame
    decoded = [decode_frame(*one) for one in frames]
    assert [body for _, body in decoded] == [body for _, body in messages]
    expected = [(header["t"] or None, header["f"] or None) for header, _ in messages]
    assert [(header.topic, header.filter) for header, _ in decoded] == expected


@given(st.binary(max_size=200), st.lists(st.integers(0, 10_000)))
def test_garbage_gives_frames_or_one_error(garbage: bytes, cuts: list[int]) -> None:
    """No input makes the reader raise, and how it is cut does not change what comes out."""
    whole, pieces = FrameReader(limit=64), FrameReader(limit=64)
    at_once = whole.feed(garbage)
    assert [one for piece in cut(garbage, cuts) for one in pieces.feed(piece)] == at_once
    assert (whole.error is None) == (pieces.error is None)


@given(
    st.lists(st.tuples(BODIES, st.integers(0, 2**64), st.sampled_from([b"%", b"ab", b"}"]))),
    st.sampled_from(["c", "100%%d"]),
    st.booleans(),
)
def test_a_run_has_the_frames_of_its_messages(
    messages: list[tuple[bytes, int, bytes]], topic: str, all_alike: bool
) -> None:
    """Whether their headers are of one length, and their bodies, or not."""
    messages = messages[:1] * 3 if all_alike else messages
    template = b'{"t":"%s","l":%%d,"bm":"7|%%d|","x":"%%s"}' % topic.encode()
    columns: list[list[int | bytes]] = [[n for _, n, _ in messages], [x for _, _, x in messages]]
    bodies = [body for body, _, _ in messages]
    expected = [frame(template % (len(body), n, x), body) for body, n, x in messages]
    assert not messages or frame_batch(template, bodies, columns) == b"".join(expected)


NUMBERED = st.builds(
    lambda shape, digits: shape.replace("%s", digits).encode(),
    st.sampled_from(
        [
            '{"c":"p","t":"a","s":%s}',
            '{"c":"p","t":"a","s":%s,"a":"persisted"}',
            '{"c":"p","s":1,"t":"b","s":%s}',
            '{"c":"p","t":"}","s":%s}',
            '{"c":"p","s":%s,"t":"}"}',
            '{"s":%s,"c":"p"}',
            '{"c":"p","t":"a"}',
            "no header",
        ]
    ),
    st.integers(0, 10**20).map(str) | st.sampled_from(["", "007", '"5"', "-1", "1.5", "}"]),
)


@given(
    st.lists(st.tuples(NUMBERED, st.integers(1, 5) | st.just(260), BODIES)),
    st.lists(st.integers(0, 10_000)),
)
def test_frames_in_runs_are_those_of_the_stream(
    messages: list[tuple[bytes, int, bytes]], cuts: list[int]
) -> None:
    """Whatever is gathered, frames, their order and the mistake that ends them are the same."""
    one_by_one, gathering = FrameReader(limit=60), FrameBatchReader(limit=60)
    for header, times, _ in messages:
        if times > 1:
            gathering.learn(header, b"{")
    stream = b"".join(frame(header, body) for header, times, body in messages for _ in range(times))
    for piece in cut(stream, cuts):
        expected = one_by_one.feed(piece)
        assert feed_all(gathering, piece) == expected
        assert gathering.has_partial_frame == one_by_one.has_partial_frame
        assert str(gathering.error) == str(one_by_one.error)


def test_frames_before_a_broken_one_are_handed_out() -> None:
    """What stood before the mistake was good; nothing behind it is."""
    reader = FrameReader()
    good = frame(b'{"c":"p"}', b"1")
    assert reader.feed(good + b"\xff\xff\xff\xff" + good) == [(b'{"c":"p"}', b"1")]
    assert "over the limit" in str(reader.error)
    assert reader.feed(good) == []


def test_a_frame_at_the_limit_passes() -> None:
    """The limit is the largest size accepted."""
    reader = FrameReader(limit=20)
    assert len(reader.feed(struct.pack(">I", 20) + b"{}" + b"x" * 18)) == 1
    reader.feed(struct.pack(">I", 21))
    assert reader.error is not None


def test_a_large_frame_in_small_pieces_takes_linear_time() -> None:
    """Pieces are joined once, when the frame is complete."""
    body = b"x" * 4_000_000
    stream = frame(b'{"c":"p"}', body)
    reader = FrameReader()
    frames = [
        one for at in range(0, len(stream), 1000) for one in reader.feed(stream[at : at + 1000])
    ]
    assert frames == [(b'{"c":"p"}', body)]


@pytest.mark.parametrize("first", [2, 4, 9, 30, 20_000, 2_000_000])
@pytest.mark.parametrize("reader", [FrameReader, FrameBatchReader])
def test_the_body_of_a_large_frame_is_not_copied_when_it_is_complete(
    reader: type[FrameReader], first: int
) -> None:
    """To copy much in one go would hold up everybody; what stands behind it comes behind it."""
    header = b'{"c":"p","t":"' + b"t" * 15_000 + b'"}'
    small = (b'{"c":"p"}', b"1")
    body = b"x" * 4_000_000
    stream = frame(header, body) + frame(*small)
    cutting = reader(parts=AmpsFrameParts())
    assert feed_all(cutting, frame(*small)) + feed_all(cutting, frame(*small)) == [small, small]
    last = len(stream) - 100_000
    for begin, end in pairwise((0, first, *range(2_100_000, last, 100_000), last)):
        assert cutting.feed(stream[begin:end]) == []
    assert cutting.has_partial_frame
    assert 3_900_000 < cutting.partial_size <= last
    tracemalloc.start()
    try:
        found = feed_all(cutting, stream[last:])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == [(header, body), small]
    assert peak < 1.5 * len(body)  # a block that is made larger counts as a new one
    assert not cutting.has_partial_frame


@pytest.mark.parametrize("piece", [1_000, 65_536, 300_000])
@pytest.mark.parametrize("reader", [FrameReader, FrameBatchReader])
def test_the_middle_of_a_header_that_nobody_takes_is_let_go_of(
    reader: type[FrameReader], piece: int
) -> None:
    """Its ends say whom to answer; the frame behind it is as good as any."""
    header = b'{"c":"subscribe","bm":"%b","cid":"7"}' % (b"12345|1|," * 700_000)
    body = b"b" * 3_000_000
    stream = frame(header, body) + frame(b'{"c":"p"}', b"1")
    cutting = reader(parts=AmpsFrameParts())
    frames, kept = [], 0
    for at in range(0, len(stream), piece):
        frames += cutting.feed(stream[at : at + piece])
        kept = max(kept, cutting.partial_size)
    assert kept < len(body) + MAX_BUFFERED_HEADER_SIZE + 2 * piece + 10_000
    (long, its_body), last = frames
    assert its_body == body
    assert last == (b'{"c":"p"}', b"1")
    assert MAX_HEADER_SIZE < len(long) < len(header) / 2
    assert (long[:4096], long[-4000:]) == (header[:4096], header[-4000:])
    assert cutting.partial_size == 0


@pytest.mark.parametrize("piece", [1_000, 65_536, 300_000])
def test_frames_without_braces_are_kept_whole_where_the_protocol_is_another(piece: int) -> None:
    """Those of legacy protocols are kept by the same reader."""
    content = b"x" * 5_000_000
    reader = FrameReader()
    stream = struct.pack(">I", len(content)) + content
    for at in range(0, len(stream) - piece, piece):
        reader.feed(stream[at : at + piece])
    assert reader.partial_size > len(content) - 2 * piece


def test_the_end_of_a_header_is_looked_for_so_far() -> None:
    """A brace in a string is no end, and the string may be as long as the frame."""
    header, rest = b'{"c":"sow","f":"}', b"x" * 10_000 + b'"}'
    assert decode_frame(header, rest + b"body", 20_000)[1] == b"body"
    with pytest.raises(LongHeaderError):
        decode_frame(header, rest + b"body", 5_000)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (b'{"c":"sow","bs":"10","top_n":5}', Header(command="sow", batch_size=10, top_n=5)),
        (b'{"c":"p","cid":7,"t":12.5}', Header(command="p", command_id="7", topic="12.5")),
        (b'{"c":"p","t":true}', Header(command="p", topic="true")),
        (b'{"c":"subscribe","filter":"/a"}', Header(command="subscribe", long_filter="/a")),
        (b'{"c":"p","t":null,"zzz":1}', Header(command="p")),
        (b'{"c":"p","send_oof":true}', Header(command="p", send_oof=True)),
        (b'{"c":"p","send_oof":"false"}', Header(command="p", send_oof=False)),
        (b'{"c":"p","t":7,"send_oof":"TRUE"}', Header(command="p", topic="7", send_oof=True)),
    ],
)
def test_numbers_may_be_quoted_and_texts_bare(written: bytes, expected: Header) -> None:
    """Headers are read for what they mean."""
    assert decode_frame(written, b"") == (expected, b"")
