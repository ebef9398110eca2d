"""Frames between instances: what is sent is what comes, and nothing else is taken for a frame."""

from __future__ import annotations

import struct
from contextlib import suppress

import hypothesis.strategies as st
import pytest
from hypothesis import given

from server.replication.core import (
    VERSION,
    Ack,
    BatchColumns,
    ConstantColumn,
    DedupState,
    HeartbeatFrame,
    Hello,
    HelloRefusal,
    PositionRequest,
    PositionResponse,
    PublisherWindow,
    ReplicationBatch,
    ReplicationFrameError,
    ReplicationFrameReader,
    SharedProperties,
    encode,
)
from server.replication.core.frames import ControlFrame
from server.storage.journal import JournalOrigin, JournalTopic
from server.storage.journal.format.layout import crc32c
from tests.replication.batches import packed, together

BODIES = [b"one", b"", b"three" * 1000]
RUN = BatchColumns(
    [SharedProperties(JournalTopic("json", "Bestellungen/ä"), JournalOrigin("user", "A@North,B"))],
    ConstantColumn(0, 3),
    range(10, 13),
    ConstantColumn(1 << 63, 3),
    [5, 7, 6],
    range(100, 103),
    ConstantColumn(1, 3),
    [0, 5, 0],
    ConstantColumn(0, 3),
    list(map(crc32c, BODIES)),
    BODIES,
)
ALONE = BatchColumns(
    [SharedProperties(JournalTopic("json", "other"), JournalOrigin(), 2)],
    ConstantColumn(0, 1),
    ConstantColumn(13, 1),
    ConstantColumn(1 << 40, 1),
    ConstantColumn(9, 1),
    ConstantColumn(300, 1),
    ConstantColumn(2, 1),
    ConstantColumn(0, 1),
    ConstantColumn(60, 1),
    [crc32c(b"body++")],
    [b"body++"],
)
FRAMES: list[ControlFrame | ReplicationBatch] = [
    Hello(VERSION, "A", "North", "A/1", 1, description=b"topics", nonce=7),
    HelloRefusal("both instances are called A"),
    HeartbeatFrame(),
    PositionRequest("A/1>B", 1, 20),
    PositionRequest("A/1>B", 1, 20, "A!B@B!sync!amps-replication", 1_000_000),
    PositionResponse(None),
    PositionResponse(12, Ack(11, [(0, 9), (1 << 16, 10)])),
    DedupState([PublisherWindow(7, 10, [(3, 4)]), PublisherWindow(8, 1, [])], is_last=True),
    Ack(1 << 63),
    ReplicationBatch(9, 20, RUN),
    ReplicationBatch(
        9,
        20,
        together(
            RUN,
            RUN._replace(
                properties=[SharedProperties(JournalTopic("fix", "other"), JournalOrigin())]
            ),
        ),
    ),
    ReplicationBatch(9, 20, together(RUN, ALONE, RUN._replace(txids=[14, 16, 19]))),
    ReplicationBatch(9, 20, None),
]


def sent(frame: ControlFrame | ReplicationBatch, *, compress: bool = False) -> bytes:
    return encode(
        packed(frame) if isinstance(frame, ReplicationBatch) else frame, compress=compress
    )


def plain(frame: ControlFrame | ReplicationBatch) -> object:
    if not isinstance(frame, ReplicationBatch):
        return frame
    columns = [list(column) for column in frame.columns or ()]
    return frame.after, frame.upto, columns


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_frames_come_as_they_were_sent(step: int, compress: bool) -> None:
    reader = ReplicationFrameReader()
    data = b"".join(sent(frame, compress=compress) for frame in FRAMES)
    came = []
    for start in range(0, len(data), step):
        reader.feed(data[start : start + step])
        while (frame := reader.next_frame()) is not None:
            came.append(frame)
    assert list(map(type, came)) == list(map(type, FRAMES))
    for frame, expected in zip(came, FRAMES, strict=True):
        assert plain(frame) == plain(expected)


def batch(entries: int, names: int, rest: bytes = b"") -> bytes:
    """A frame of a batch, whatever is in it."""
    content = bytes(16) + struct.pack("<II", entries, names) + rest
    return struct.pack("<IBB", len(content) + 2, 8, 0) + content


BROKEN: dict[str, tuple[bytes, str]] = {
    "too long": (b"\xff\xff\xff\x7f\x03\x00", "2147483647 bytes"),
    "too short": (b"\x01\x00\x00\x00\x03\x00", "1 bytes"),
    "unknown type": (b"\x02\x00\x00\x00\x63\x00", "type 99"),
    "unknown flag": (b"\x02\x00\x00\x00\x03\x04", "flags 4"),
    "not compressed": (b"\x06\x00\x00\x00\x03\x01zlib", "decompressed"),
    "no such fields": (b"\x03\x00\x00\x00\x07\x00\x90", "type 7"),
    "batch cut off": (batch(1, 1), "truncated"),
    "batch with more": (batch(0, 0, b"\x00"), "after its end"),
    "batch of very many": (batch(1 << 31, 0, bytes(99)), "2147483648 entries"),
    "batch without names": (batch(2, 0, bytes(99)), "name 0 of 0"),
    "batch with another form": (batch(2, 0, b"\x05" + bytes(98)), "form 5"),
}


@pytest.mark.parametrize(("data", "why"), BROKEN.values(), ids=BROKEN)
def test_what_is_no_frame_is_refused(data: bytes, why: str) -> None:
    reader = ReplicationFrameReader()
    reader.feed(data)
    with pytest.raises(ReplicationFrameError, match=why):
        reader.next_frame()


def test_a_frame_that_grows_beyond_the_limit_is_refused() -> None:
    data = encode(HelloRefusal("x" * (16 << 20)), compress=True)
    reader = ReplicationFrameReader()
    reader.feed(data)
    with pytest.raises(ReplicationFrameError, match="longer than 16777216 bytes"):
        reader.next_frame()


@given(st.sampled_from(FRAMES), st.data())
def test_damage_raises_nothing_else(
    frame: ControlFrame | ReplicationBatch, data: st.DataObject
) -> None:
    damaged = bytearray(sent(frame))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    reader = ReplicationFrameReader()
    reader.feed(bytes(damaged))
    with suppress(ReplicationFrameError):
        reader.next_frame()
