"""Timestamps as AMPS counts them, and the texts that stand for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.statistics.timestamps import from_text, from_unix, to_text, to_unix

MAY_2018 = 212_391_936_000_000
"""20180501T000000, as in the reference."""


def test_a_timestamp_is_what_amps_counts() -> None:
    assert from_text("20180501T000000") == MAY_2018 == from_unix(1_525_132_800)
    assert to_text(MAY_2018) == "20180501T000000.000000Z"
    assert to_unix(MAY_2018 + 1_500) == 1_525_132_801.5


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20180501T0", 0),
        ("20180501", 0),
        ("20180501T", 0),
        ("20180501T1", 3600),
        ("20180501T12", 12 * 3600),
        ("20180501T0130", 5400),
        ("20180501T013015", 5415),
        ("20180501T013015.5", 5415.5),
        ("20180501T013015.123456Z", 5415.123),
        ("2018-05-01T01:30:15.5Z", 5415.5),
        ("2018-05-01 01:30", 5400),
    ],
)
def test_what_is_left_out_is_zero(text: str, seconds: float) -> None:
    assert from_text(text) == MAY_2018 + seconds * 1000


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "2018", "20181301T000000", "20180501T250000", "20180501T000000+0100"),
        *("20180501T0000001", "20180501T000000.", "00000101T000000", "٢0180501T000000", "1e9"),
    ],
)
def test_what_is_no_time_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        from_text(text)


@given(st.integers(from_text("00010101"), from_text("99991231T235959.999")))
def test_a_text_stands_for_its_timestamp(timestamp: int) -> None:
    assert from_text(to_text(timestamp)) == timestamp
