"""Dates, times and intervals in PostgreSQL's text and binary formats."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from server.sql.postgres.pieces import (
    Piece,
    big_endian,
    constant,
    fixed_width,
    replace_texts,
    to_numpy,
)

POSTGRES_EPOCH_DAYS: Final = 10_957  # 2000-01-01 in days since 1970-01-01
POSTGRES_EPOCH_US: Final = POSTGRES_EPOCH_DAYS * 86_400_000_000
DAY_US: Final = 86_400_000_000
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_YEAR_1_DAYS: Final = -719_162  # 0001-01-01
_YEAR_10000_DAYS: Final = 2_932_897


def date_text(array: pa.Array) -> list[Piece]:
    """Convert to the text of dates."""
    text = array.cast(pa.string())
    days = to_numpy(array.view(pa.int32()))
    differs = (days < _YEAR_1_DAYS) | (days >= _YEAR_10000_DAYS)
    if differs.any():
        text = replace_texts(text, differs, [_date_text_of(int(day)) for day in days[differs]])
    return [text]


def date_binary(array: pa.Array) -> list[Piece]:
    """Convert to the binary format of dates."""
    days = to_numpy(array.view(pa.int32())).astype(np.int64)
    shifted = days - POSTGRES_EPOCH_DAYS
    shifted[days >= _INT32_MAX] = _INT32_MAX
    shifted[days <= -_INT32_MAX] = -_INT32_MAX - 1
    return [fixed_width(np.maximum(shifted, -_INT32_MAX - 1).astype(">i4"))]


def time_text(array: pa.Array) -> list[Piece]:
    """Convert to the text of times of day."""
    text = _without_trailing_zeros(array.cast(pa.string()))
    differs = to_numpy(array.view(pa.int64())) >= DAY_US
    if differs.any():
        text = replace_texts(text, differs, ["24:00:00"] * int(differs.sum()))
    return [text]


def time_binary(array: pa.Array) -> list[Piece]:
    """Convert to the binary format of times of day."""
    return big_endian(array.view(pa.int64()))


def timestamp_text(array: pa.Array) -> list[Piece]:
    """Convert to the text of timestamps."""
    return _timestamp_pieces(array, "")


def timestamptz_text(array: pa.Array) -> list[Piece]:
    """Convert to the text of timestamps with a zone."""
    return _timestamp_pieces(array, "+00")


def _timestamp_pieces(array: pa.Array, zone: str) -> list[Piece]:
    text = _without_trailing_zeros(array.cast(pa.string()))
    moments = to_numpy(array.view(pa.int64()))
    differs = (moments < _YEAR_1_DAYS * DAY_US) | (moments >= _YEAR_10000_DAYS * DAY_US)
    if not differs.any():
        return [text, constant(zone.encode())] if zone else [text]
    if zone:
        text = pc.binary_join_element_wise(text, zone, "")
    texts = [_timestamp_text_of(int(moment), zone) for moment in moments[differs]]
    return [replace_texts(text, differs, texts)]


def _without_trailing_zeros(text: pa.Array) -> pa.Array:
    """Return the text of times with six digits after the point, without zeros at the end."""
    return pc.ascii_rtrim(pc.ascii_rtrim(text, "0"), ".")


def timestamp_binary(array: pa.Array) -> list[Piece]:
    """Convert to the binary format of timestamps, with a zone or without."""
    moments = to_numpy(array.view(pa.int64()))
    shifted = np.where(moments > -_INT64_MAX + POSTGRES_EPOCH_US, moments - POSTGRES_EPOCH_US, 0)
    shifted[moments == _INT64_MAX] = _INT64_MAX
    shifted[moments <= -_INT64_MAX + POSTGRES_EPOCH_US] = -_INT64_MAX - 1
    return [fixed_width(shifted.astype(">i8"))]


def _date_text_of(day: int) -> str:
    """Return the text of a date, given in days since 1970: any year, or infinity."""
    if abs(day) >= _INT32_MAX:
        return "infinity" if day > 0 else "-infinity"
    date, era = _civil(day)
    return date + era


def _timestamp_text_of(moment: int, zone: str) -> str:
    """Return the text of a timestamp, given in microseconds since 1970."""
    if abs(moment) >= _INT64_MAX:
        return "infinity" if moment > 0 else "-infinity"
    day, rest = divmod(moment, DAY_US)
    date, era = _civil(day)
    return f"{date} {clock_text(rest)}{zone}{era}"


def clock_text(microseconds: int) -> str:
    """Return a time of day, or a duration, as hours, minutes and seconds."""
    seconds, fraction = divmod(microseconds, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


def _civil(day: int) -> tuple[str, str]:
    """Return the date of a day since 1970 in the proleptic Gregorian calendar, and the era.

    Python's own dates end at the years 1 and 9999. Algorithm: Howard Hinnant, "chrono-Compatible
    Low-Level Date Algorithms", civil_from_days.
    """
    era, in_era = divmod(day + 719_468, 146_097)
    year_of_era = (in_era - in_era // 1460 + in_era // 36_524 - in_era // 146_096) // 365
    day_of_year = in_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    month_day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    year = year_of_era + 400 * era + (month <= 2)
    if year > 0:
        return f"{year:04}-{month:02}-{month_day:02}", ""
    return f"{1 - year:04}-{month:02}-{month_day:02}", " BC"


def _interval_fields(array: pa.Array) -> np.ndarray:
    """Return months, days and nanoseconds of intervals."""
    data = array.buffers()[1]
    dtype = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
    return np.frombuffer(data, dtype)[array.offset : array.offset + len(array)]


def interval_text(array: pa.Array) -> list[Piece]:
    """Convert to the text of intervals."""
    texts = [
        interval_text_of(months, days, nanoseconds // 1000)
        for months, days, nanoseconds in _interval_fields(array).tolist()
    ]
    return [pa.array(texts, pa.string())]


def interval_binary(array: pa.Array) -> list[Piece]:
    """Convert to the binary format of intervals."""
    fields = _interval_fields(array)
    out = np.empty(len(array), np.dtype([("us", ">i8"), ("days", ">i4"), ("months", ">i4")]))
    out["us"] = fields["nanoseconds"] // 1000
    out["days"] = fields["days"]
    out["months"] = fields["months"]
    return [fixed_width(out)]


def interval_text_of(months: int, days: int, microseconds: int) -> str:
    """Return the text of an interval in the style "postgres" (EncodeInterval)."""
    years = int(months / 12)
    parts: list[str] = []
    before = False  # the part before is negative, so that a positive one needs its sign
    for value, unit in ((years, "year"), (months - 12 * years, "mon"), (days, "day")):
        if value:
            plus = "+" if before and value > 0 else ""
            parts.append(f"{plus}{value} {unit}{'' if value == 1 else 's'}")
            before = value < 0
    if microseconds or not parts:
        sign = "-" if microseconds < 0 else "+" if before else ""
        parts.append(sign + clock_text(abs(microseconds)))
    return " ".join(parts)
