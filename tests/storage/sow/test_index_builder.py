"""Where records are after a log has been read is what its entries say one after the other."""

from __future__ import annotations

import random
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.storage.sow.slab.index_builder import IndexBuilder
from server.storage.sow.slab.slab_format import ENTRY, SlabEntryKind, crc32c
from tests.storage.sow.spoiled_slabs import spoiled
from tests.support.chances import examples

EPOCH = 9
ODD = ("", "0", "00", "007", "+1", "-1", " 1", "1 ", "1.0", "x", "\u0663", "caf\u00e9", "\udcff")
BORDERS = ("9", "18446744073709551615", "18446744073709551616", "99999999999999999999", "1" * 21)


def entry(kind: int, key: str, topic: str, body: bytes, sequence: int, epoch: int) -> bytes:
    texts = [text.encode("utf-8", "surrogateescape") for text in (topic, key)]
    sizes = (len(texts[0]), len(texts[1]), 0, 0)
    length = ENTRY.size + sum(sizes) + len(body)
    fields = (length, epoch, kind, *sizes, sequence, 6, 7, 0)
    data = ENTRY.pack(0, *fields)[4:] + b"".join(texts) + body
    checksum: int = crc32c(data)
    return (checksum.to_bytes(4, "little") + data).ljust((length + 7) & -8, b"\0")


class Model:
    """What finds records, entry by entry."""

    def __init__(self, topic: str | None) -> None:
        self.topic = topic
        self.places: dict[str, tuple[int, int]] = {}
        self.others: list[tuple[int, bytes]] = []
        self.sequence = 0

    def apply(
        self, kind: int, key: str, topic: str, sequence: int, place: int, data: bytes
    ) -> None:
        self.sequence = max(self.sequence, sequence)
        identity = key if self.topic is None else f"{topic or self.topic}\0{key}"
        if kind == SlabEntryKind.RECORD:
            self.places[identity] = place, len(data)
        elif kind == SlabEntryKind.DELETED:
            self.places.pop(identity, None)
        else:
            self.others.append((place, data))


@settings(deadline=None, max_examples=examples(60))
@given(
    seed=st.integers(0, 10**6),
    keys=st.sampled_from([5, 60, 3000]),
    topic=st.sampled_from([None, None, "t"]),
    kinds=st.sampled_from([(1,), (1, 1, 2), (1, 2, 3, 5)]),
)
def test_records_are_where_their_last_entries_are(
    seed: int, keys: int, topic: str | None, kinds: tuple[int, ...]
) -> None:
    """Keys that are numbers, and those that only look like it; rows are used again."""
    source = random.Random(seed)
    dense = source.random() < 0.5
    pool = [str(number if dense else source.randrange(2**64)) for number in range(keys)]
    pool += [*ODD, *BORDERS]
    model = Model(topic)
    others: list[tuple[int, bytes]] = []
    rows: dict[str, int] = {}
    locations, sizes, free = array("q"), array("I"), list[int]()

    def other(location: int, data: bytes) -> None:
        others.append((location, data.ljust((len(data) + 7) & -8, b"\0")))

    builder = IndexBuilder(topic, rows, locations, sizes, free, other)
    total = found = 0
    for slab in range(3):
        start, content = slab << 20, bytearray(64)
        for _ in range(source.choice((0, 1, 63, 64, 65, 4 * keys))):
            kind, key = source.choice(kinds), source.choice(pool)
            name = source.choice(("", "other")) if topic is not None else ""
            sequence = source.randrange(1000)
            data = entry(kind, key, name, bytes(source.choice((0, 1, 8))), sequence, EPOCH)
            model.apply(kind, key, name, sequence, start + len(content), data)
            content += data
        end = len(content)
        spoilt = bytearray(entry(1, "5", "", b"never", 5000, EPOCH))
        spoilt[-8] ^= 1
        ending = (b"", bytes(80), spoilt, entry(1, "5", "", b"old", 5000, EPOCH - 1), spoilt[:60])
        content += source.choice(ending)
        position, live, sequence = builder.apply_slab(bytes(content), start, 64, 1 << 20, EPOCH)
        assert position == end
        total += live
        found = max(found, sequence)
    builder.finish()
    assert {key: (locations[row], sizes[row]) for key, row in rows.items()} == model.places
    assert sorted([*rows.values(), *free]) == list(range(len(locations)))
    assert all(locations[row] == -1 for row in free)
    assert total == sum(padded_size for _, padded_size in model.places.values())
    assert (others, found) == (model.others, model.sequence)


@settings(max_examples=examples(200))
@given(data=st.data())
def test_reading_believes_nothing_that_it_reads(data: st.DataObject) -> None:
    """Whatever is in a slab, it reads within it, and takes for an entry only what is one."""
    whole = [entry(1, "7", "", b"x", 1, EPOCH), entry(2, "7", "", b"", 2, EPOCH)]
    parts = data.draw(st.lists(st.sampled_from(whole) | st.binary(max_size=80), max_size=5))
    slab = spoiled(data, parts)
    rows: dict[str, int] = {}
    builder = IndexBuilder(None, rows, array("q"), array("I"), [], lambda _, __: None)
    position, _, _ = builder.apply_slab(bytes(slab), 0, 0, data.draw(st.integers(0, 300)), EPOCH)
    builder.finish()
    assert position % 8 == 0
    assert position <= len(slab) + 7
    assert set(rows) <= {"7"}


def test_a_slab_begins_at_its_beginning() -> None:
    builder = IndexBuilder(None, {}, array("q"), array("I"), [], lambda _, __: None)
    with pytest.raises(ValueError, match="within their slab"):
        builder.apply_slab(bytes(100), 0, -8, 100, EPOCH)
    with pytest.raises(TypeError, match="8 bytes"):
        IndexBuilder(None, {}, array("I"), array("I"), [], lambda _, __: None)
