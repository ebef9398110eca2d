"""What the bookmark of a subscription stands for."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.storage.journal import BookmarkError, MissingBookmarkPolicy, parse_bookmark
from server.storage.journal.read.bookmarks import BookmarkPoint, EntryName, Epoch, LogTimestamp, Now
from tests.storage.journal.support import START, Bench, opened, read_all

SECOND = 1_000_000

POINTS: list[tuple[str, BookmarkPoint]] = [
    ("0", Epoch()),
    ("0|1|", Now()),
    ("0|1", Now()),
    ("934814|44321|", EntryName(934814, 44321)),
    ("18446744073709551615|18446744073709551615|", EntryName(2**64 - 1, 2**64 - 1)),
    ("19700101T000001", LogTimestamp(SECOND)),
    ("19700101T000001Z", LogTimestamp(SECOND)),
    ("20240321T220952.535075Z", LogTimestamp(1711058992535075)),
    ("20240321T220952.5", LogTimestamp(1711058992500000)),
]


@pytest.mark.parametrize(("text", "point"), POINTS)
def test_points(text: str, point: BookmarkPoint) -> None:
    request = parse_bookmark(text)
    assert request.starts == (point,)
    assert request.ends == ()


@pytest.mark.parametrize(("opening", "closing"), ["[]", "[)", "(]", "()"])
def test_ranges(opening: str, closing: str) -> None:
    request = parse_bookmark(f" {opening}1|2|,3|4|:20200604T000000,0|1|{closing} ")
    assert request.starts == (EntryName(1, 2), EntryName(3, 4))
    assert request.ends == (LogTimestamp(1591228800000000), Now())
    assert request.includes_start == (opening == "[")
    assert request.includes_end == (closing == "]")


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "x",
        "1",
        "1|x|",
        "-1|2|",
        "[0",
        "[0)",
        "[:0)",
        "[0:)",
        "[0:0",
        "20201301T000000",
        "20200101",
        "123456789012345678901|1|",
    ],
)
def test_what_is_no_bookmark_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(BookmarkError, match="bookmark"):
        parse_bookmark(text)


@given(st.text(alphabet="0123456789|,:[]()TZ. x", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(BookmarkError):
        assert parse_bookmark(text).starts


@pytest.fixture
def log(tmp_path: Path) -> Bench:
    """Ten messages, one a second, of clients 1 and 2 by turns: bodies are their numbers."""
    bench = Bench(tmp_path)
    topic = bench.journal.topic_handle("json", "orders")
    for number in range(10):
        bench.clock.now = START + number * SECOND
        bench.journal.append(topic, 1 + number % 2, 1 + number // 2, str(number).encode())
    bench.journal.commit()
    return bench


def at(number: int) -> str:
    """A bookmark that is the time of a message."""
    return f"20250615T1506{40 + number:02}"


# Message n is at START + n seconds; 1|k| is message 2(k-1), 2|k| is message 2(k-1)+1.
REPLAYS: list[tuple[str, str]] = [
    ("0", "0123456789"),
    ("0|1|", ""),
    ("1|1|", "123456789"),
    ("2|5|", ""),
    ("2|2|", "456789"),
    ("2|4|,1|3|", "56789"),
    ("9|9|,1|3|", "56789"),
    ("20000101T000000", "0123456789"),
    ("20990101T000000", ""),
    (at(4), "456789"),
    ("[1|3|:2|4|]", "4567"),
    ("[1|3|:2|4|)", "456"),
    ("(1|3|:2|4|]", "567"),
    ("(1|3|:2|4|)", "56"),
    (f"[{at(2)}:{at(5)}]", "2345"),
    (f"[{at(2)}:{at(5)})", "234"),
    (f"({at(2)}:{at(5)}]", "345"),
    (f"({at(2)}:{at(5)})", "34"),
    (f"[{at(2)}:1|4|]", "23456"),
    (f"[1|2|:{at(5)})", "234"),
    ("[0:0|1|]", "0123456789"),
    ("[0:0|1|)", "012345678"),
    ("[0|1|:20990101T000000)", "9"),
    ("(0|1|:20990101T000000)", ""),
    ("[1|1|:1|2|,2|3|)", "01234"),
    ("[2|4|,1|2|:1|4|)", "2345"),
    (f"[0:1|2|,{at(5)})", "01234"),
    (f"[0:2|4|,{at(5)})", "0123456"),
    ("[1|3|:1|1|]", ""),
    ("[19990101T000000:20000101T000000)", ""),
    ("[0:0)", ""),
]


@pytest.mark.parametrize(("bookmark", "expected"), REPLAYS)
def test_what_a_bookmark_replays(log: Bench, bookmark: str, expected: str) -> None:
    span = log.journal.resolve_bookmark(parse_bookmark(bookmark))
    bodies = [entry.body.decode() for entry in read_all(log.journal, span, 3)]
    assert "".join(bodies) == expected
    log.journal.close()


@pytest.mark.parametrize(("not_found", "expected"), [("now", 0), ("epoch", 10)])
def test_where_to_begin_when_a_bookmark_is_unknown(
    log: Bench, not_found: MissingBookmarkPolicy, expected: int
) -> None:
    request = parse_bookmark("5|5|,6|6|")
    assert len(read_all(log.journal, log.journal.resolve_bookmark(request, not_found))) == expected
    with pytest.raises(BookmarkError, match="not found"):
        log.journal.resolve_bookmark(request, "fail")
    log.journal.close()


def test_a_range_that_ends_in_the_future_ends_with_the_first_later_message(log: Bench) -> None:
    span = log.journal.resolve_bookmark(parse_bookmark("[20250615T150652:20250615T150654)"))
    cursor = log.journal.replay(span)
    topic = log.journal.topic_handle("json", "orders")
    assert cursor.read() == []
    for number in range(10, 16):
        log.clock.now = START + number * SECOND
        log.journal.append(topic, 1, number, str(number).encode())
        log.journal.commit()
    assert [entry.body for entry in cursor.read()] == [b"12", b"13"]
    assert cursor.is_finished
    log.journal.close()


def test_a_range_may_end_with_a_message_that_is_still_to_come(log: Bench) -> None:
    span = log.journal.resolve_bookmark(parse_bookmark("[2|5|:1|7|]"))
    cursor = log.journal.replay(span)
    topic = log.journal.topic_handle("json", "orders")
    assert [entry.body for entry in cursor.read()] == [b"9"]
    assert not cursor.is_finished
    for sequence in (6, 7, 8):
        log.journal.append(topic, 1, sequence, str(sequence).encode())
    log.journal.commit()
    assert [entry.body for entry in cursor.read()] == [b"6", b"7"]
    assert cursor.is_finished
    assert cursor.is_caught_up
    log.journal.close()


def test_bookmarks_without_sequence_are_unique_and_found(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        topic = bench.journal.topic_handle("json", "orders")
        txids = [bench.journal.append(topic, client, 0, b"x") for client in (1, 2, 1, 2)]
        bench.journal.commit()
        entries = read_all(bench.journal)
        assert len({entry.bookmark for entry in entries}) == 4
        assert {entry.client for entry in entries}.isdisjoint({1, 2})
        assert [entry.source_txid for entry in entries] == [1, 2, 1, 2]
        assert [bench.journal.find(one.client, one.sequence) for one in entries] == txids
        assert bench.journal.last_sequence(1) == 0
