"""Frames that are made of the log in one go are those of its messages, one after the other."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.storage.journal import JournalCursor, JournalEntry, LogSpan
from server.topics.subscriptions.delivery.delivery import DirectDelivery
from server.topics.subscriptions.delivery.logged_batch import (
    LoggedBatch,
    LoggedEnvelope,
    LoggedHeader,
    logged_frames,
    logged_header,
)
from server.topics.subscriptions.delivery.logged_frames import frames
from server.topics.subscriptions.delivery.presentation import Presentation
from tests.storage.journal.support import START, Bench, opened
from tests.support.chances import examples

NUMBERS = st.one_of(
    st.sampled_from([0, 9, 10, 9_999, 10_000, 2**63, 2**64 - 1]), st.integers(0, 50)
)


class Message(NamedTuple):
    """What is recorded of a message."""

    topic: str
    client: int
    key: int
    user: str | None
    body: bytes
    passed: int


MESSAGES = st.builds(
    Message,
    topic=st.sampled_from(["orders", "100%d", "orders"]),
    client=st.sampled_from([0, 7, 2**64 - 1]),
    key=NUMBERS,
    user=st.sampled_from([None, None, "ann", '"b%s"']),
    body=st.one_of(st.binary(max_size=20), st.integers(0, 3_000).map(bytes)),
    passed=st.sampled_from([0, 0, 1, 999_999, 1_000_000, 86_400_000_000]),
)
PRESENTATIONS = st.builds(
    Presentation,
    has_timestamp=st.booleans(),
    has_sow_key=st.booleans(),
    has_bookmark=st.just(True),  # as replays always do
    has_sub_ids=st.booleans(),
    pretty=st.sampled_from([None, lambda body: b"%d%%" % len(body)]),
)
SPANS = st.builds(
    LogSpan,
    after_txid=st.integers(0, 3),
    begin_timestamp=st.sampled_from([0, 0, START + 1_000_000]),
    end_timestamp=st.sampled_from([None, None, START + 2_000_000]),
    end_entries=st.sampled_from([frozenset(), frozenset({(7, 3)})]),
    includes_end=st.booleans(),
)


class Written:
    """Takes frames."""

    def __init__(self) -> None:
        self.data = b""
        self.messages = 0

    def write(self, data: bytes) -> None:
        """See `Writer`."""
        self.write_batch(data, 1)

    def write_batch(self, data: bytes, messages: int) -> None:
        """See `Writer`."""
        self.data += data
        self.messages += messages


def record(bench: Bench, messages: list[Message]) -> None:
    """Append messages, each client's with numbers of its own, and make them safe."""
    journal = bench.journal
    sequences = dict.fromkeys((one.client for one in messages), 0)
    for one in messages:
        bench.clock.now += one.passed
        sequences[one.client] += 1
        journal.append(
            journal.topic_handle("json", one.topic),
            one.client,
            sequences[one.client] if one.client else 0,
            one.body,
            sow_key=one.key,
            origin=None if one.user is None else journal.origin_handle(one.user),
        )
    journal.commit()


def in_runs(
    cursor: JournalCursor, presentation: Presentation, most: int, chosen: list[bool]
) -> tuple[Written, list[JournalEntry]]:
    """Frames of some of what a cursor gives, made in one go for each run, and all its entries."""
    written, entries = Written(), list[JournalEntry]()
    while not cursor.is_caught_up:
        for run in cursor.read_raw_range(most).batches():
            delivery = DirectDelivery(written, run.topic.name, ["s%", "t"], presentation)
            positions = [at for at in range(len(run)) if chosen[(len(entries) + at) % len(chosen)]]
            delivery.deliver_batch(LoggedBatch(run.pick(positions)))
            entries += map(run.entry_at, range(len(run)))
    return written, entries


def one_by_one(
    entries: list[JournalEntry], presentation: Presentation, chosen: list[bool]
) -> Written:
    """Frames of some entries, each made for itself."""
    written = Written()
    for number, entry in enumerate(entries):
        if chosen[number % len(chosen)]:
            delivery = DirectDelivery(written, entry.topic.name, ["s%", "t"], presentation)
            delivery.deliver((entry.body,), LoggedEnvelope(entry))
    return written


@settings(max_examples=examples(100))
@given(
    st.lists(MESSAGES, max_size=40),
    PRESENTATIONS,
    SPANS,
    st.integers(1, 20),
    st.lists(st.booleans(), min_size=1, max_size=5),
)
def test_a_run_has_the_frames_of_its_entries(
    messages: list[Message],
    presentation: Presentation,
    span: LogSpan,
    most: int,
    chosen: list[bool],
) -> None:
    """Whatever is asked for, whichever of them are wanted, and however many are read at a time."""
    with tempfile.TemporaryDirectory() as directory, opened(Path(directory)) as bench:
        record(bench, messages)
        whole = bench.journal.replay(span)
        expected = list(chain.from_iterable(iter(lambda: whole.read(3), [])))
        came, entries = in_runs(bench.journal.replay(span), presentation, most, chosen)
        assert entries == expected
        alone = one_by_one(expected, presentation, chosen)
        assert (came.data, came.messages) == (alone.data, alone.messages)


def test_there_is_a_body_for_each_record() -> None:
    with pytest.raises(ValueError, match="1 bodies for 0 messages"):
        frames(b"", b"", [b"x"], {})


@settings(max_examples=examples(100))
@given(
    st.lists(MESSAGES, max_size=40),
    st.dictionaries(st.sampled_from(["orders", "100%d"]), PRESENTATIONS),
    st.integers(1, 20),
)
def test_messages_of_several_topics_have_the_frames_of_their_entries(
    messages: list[Message], presentations: dict[str, Presentation], most: int
) -> None:
    """Those of topics without a header are left out."""
    presentations = {
        name: replace(presentation, pretty=None) for name, presentation in presentations.items()
    }
    with tempfile.TemporaryDirectory() as directory, opened(Path(directory)) as bench:
        record(bench, messages)
        cursor, came, expected = bench.journal.replay(LogSpan(0)), Written(), Written()
        deliveries = {
            name: DirectDelivery(expected, name, ["s%", "t"], presentation)
            for name, presentation in presentations.items()
        }
        while not cursor.is_caught_up:
            raw_range = cursor.read_raw_range(most)
            headers: dict[int, LoggedHeader] = {}
            for kind in raw_range.kinds() or ():
                topic, origin = raw_range.topic_and_origin(kind)
                if topic.name in deliveries:
                    delivery = deliveries[topic.name]
                    headers[kind] = logged_header(delivery, origin)
            came.write_batch(*logged_frames(raw_range, headers))
            for entry in map(raw_range.entry_at, range(len(raw_range))):
                if entry.topic.name in deliveries:
                    deliveries[entry.topic.name].deliver((entry.body,), LoggedEnvelope(entry))
        assert (came.data, came.messages) == (expected.data, expected.messages)
