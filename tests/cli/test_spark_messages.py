"""What spark reads and prints: sources of messages, their pace, and formats."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amperage.client import Message
from amperage.client.limits import MAX_BODY_SIZE
from amperage.wire.header import Header
from server.cli.spark.formats import as_json, compile_format
from server.cli.spark.options import UsageError
from server.cli.spark.sources import MessageSourceError, paced, read_messages, split_messages


class Pieces(io.BufferedIOBase):
    """A stream that hands out its bytes in given pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = iter(pieces)

    def read1(self, size: int = -1, /) -> bytes:
        return next(self._pieces, b"")


def flat(batches: Iterator[list[bytes]]) -> list[bytes]:
    return [message for batch in batches for message in batch]


@given(st.lists(st.binary(min_size=1, max_size=8).map(lambda it: it.replace(b"a", b"\n"))))
def test_a_stream_is_cut_at_each_delimiter_however_it_is_read(pieces: list[bytes]) -> None:
    expected = [message for message in b"".join(pieces).split(b"\n") if message]
    assert flat(split_messages(Pieces(pieces), b"\n")) == expected


def test_messages_of_a_pipe_come_as_soon_as_they_are_complete() -> None:
    batches = split_messages(Pieces([b"1\n2\n3", b"3\n", b"4"]), b"\n")
    assert list(batches) == [[b"1", b"2"], [b"33"], [b"4"]]


def test_a_file_is_cut_at_its_own_delimiter(tmp_path: Path) -> None:
    path = tmp_path / "messages"
    path.write_bytes(b"a\nb\x01\x01c\x01")
    assert flat(read_messages(str(path), 1)) == [b"a\nb", b"c"]


def zipped(path: Path, members: dict[str, bytes]) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return str(path)


def test_a_zip_file_has_a_message_per_member_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    members = {str(number): b"message\n%d" % number for number in range(600, 0, -1)}
    found = flat(read_messages(zipped(tmp_path / "dump.zip", members), 10))
    assert found == [b"message\n%d" % number for number in range(1, 601)]


@pytest.mark.parametrize("members", [{"1": b"", "3": b""}, {"a": b""}, {"1": b"", "d/2": b""}])
def test_a_zip_file_of_another_layout_is_refused(tmp_path: Path, members: dict[str, bytes]) -> None:
    with pytest.raises(MessageSourceError, match="expected one message per member"):
        flat(read_messages(zipped(tmp_path / "x.zip", members), 10))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(MessageSourceError, match="none: No such file"):
        flat(read_messages(str(tmp_path / "none"), 10))
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"PK\x03\x04 and nothing more")
    with pytest.raises(MessageSourceError, match=r"broken\.zip"):
        flat(read_messages(str(broken), 10))


def test_a_message_that_is_too_large_is_named_behind_those_before_it(tmp_path: Path) -> None:
    path = tmp_path / "messages"
    with path.open("wb") as file:
        file.write(b"1\n2\n")
        file.truncate(file.tell() + MAX_BODY_SIZE + 1)
    batches = read_messages(str(path), 10)
    assert next(batches) + next(batches) == [b"1", b"2"]
    with pytest.raises(MessageSourceError, match=f"message 3 of .* has {MAX_BODY_SIZE + 1} bytes"):
        next(batches)


def sent_at(rate: float, arrivals: list[float]) -> list[float]:
    """When messages that arrive at some moments are handed out, on a clock of our own."""
    now = 0.0

    def source() -> Iterator[list[bytes]]:
        nonlocal now
        for arrival in arrivals:
            now = max(now, arrival)
            yield [b"m"]

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    return [now for _ in paced(source(), rate, lambda: now, sleep)]


PACES = [
    (2.0, [0.0] * 4, [0.0, 0.5, 1.0, 1.5]),
    (0.25, [0.0] * 3, [0.0, 4.0, 8.0]),
    (2.0, [0.0, 0.7, 0.7, 0.7], [0.0, 0.7, 1.0, 1.5]),
    (2.0, [0.0, 9.0, 9.0, 9.0], [0.0, 9.0, 9.5, 10.0]),
]


@pytest.mark.parametrize(("rate", "arrivals", "moments"), PACES)
def test_messages_go_out_at_a_fixed_rate_and_not_in_bursts(
    rate: float, arrivals: list[float], moments: list[float]
) -> None:
    assert sent_at(rate, arrivals) == pytest.approx(moments)


MESSAGE = Message(
    Header(
        command="publish",
        topic="t",
        sow_key="9",
        bookmark="1|2|",
        correlation_id="abc",
        expiration=5,
        lease_period="soon",
        user_id="ann",
        timestamp="now",
    ),
    b'{"a":1}',
)

FORMATS = [
    (None, b'{"a":1}'),
    ("{command}:{data}", b'publish:{"a":1}'),
    ("{topic}\t{sowkey} {bookmark}", b"t\t9 1|2|"),
    ("{correlation_id},{expiration},{lease_period},{user_id},{timestamp}", b"abc,5,soon,ann,now"),
    ("{length}", b"7"),
    ("{{data}}", b'{{"a":1}}'),
    ("{ data }", b"{ data }"),
    ("", b""),
]


@pytest.mark.parametrize(("text", "printed"), FORMATS)
def test_a_format_is_text_with_tags(text: str | None, printed: bytes) -> None:
    assert compile_format(text)(MESSAGE) == printed


def test_a_field_that_a_message_lacks_prints_as_nothing() -> None:
    bare = Message(Header(command="publish"), b"")
    assert compile_format("[{bookmark}{sowkey}{data}]")(bare) == b"[]"


def test_json_has_all_that_there_are_tags_for() -> None:
    """What a message lacks is null, and data that are no text are in base64."""
    known = json.loads(as_json(MESSAGE))
    for name, value in known.items():
        assert compile_format(f"{{{name}}}")(MESSAGE) == str(value).encode()
    with pytest.raises(UsageError, match="known are") as refused:
        compile_format("{body}")
    assert set(re.findall(r"\{(\w+)\}", str(refused.value))) - {"body"} == set(known)
    bare = json.loads(as_json(Message(Header(command="publish"), b"\xff")))
    assert (bare["topic"], bare["data_base64"], "data" in bare) == (None, "/w==", False)


def test_an_unknown_tag_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"unknown tag \{body\}; known are \{bookmark\}"):
        compile_format("{body}")


def test_standard_streams_need_no_more_than_one_read_at_a_time() -> None:
    assert flat(split_messages(io.BufferedReader(io.BytesIO(b"a\nb")), b"\n")) == [b"a", b"b"]
