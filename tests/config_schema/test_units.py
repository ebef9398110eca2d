"""Values with a unit or a notation of their own."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config_schema.units import (
    BOOLEANS,
    INTERVAL_UNITS,
    MAX_INT64,
    SIZE_UNITS,
    SocketAddress,
    UnitError,
    parse_bool,
    parse_count,
    parse_external_address,
    parse_inet_address,
    parse_interval,
    parse_octal_mask,
    parse_rotation_threshold,
    parse_size,
    quoted,
)

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1ns", 1),
        ("7us", 7_000),
        ("250ms", 250_000_000),
        ("10s", 10 * SECOND),
        ("5m", 300 * SECOND),
        ("1h", 3_600 * SECOND),
        ("1d", 86_400 * SECOND),
        ("2w", 1_209_600 * SECOND),
        ("86400s", 86_400 * SECOND),
        ("10S", 10 * SECOND),
        ("250MS", 250_000_000),
        ("1.5h", 5_400 * SECOND),
        ("0.001s", 1_000_000),
        (" 10 s ", 10 * SECOND),
        ("0", 0),
        ("30", 30 * SECOND),
    ],
)
def test_interval(text: str, nanoseconds: int) -> None:
    assert parse_interval(text) == nanoseconds


def test_the_caller_says_what_a_bare_number_means() -> None:
    assert parse_interval("30", bare="ms") == 30_000_000


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("12b", 12),
        ("1kb", 1024),
        ("1k", 1024),
        ("10MB", 10_485_760),
        ("2G", 2 << 30),
        ("35gB", 35 << 30),
        ("1tb", 1 << 40),
        ("2.5MB", 2_621_440),
        ("1.3kb", 1331),
    ],
)
def test_size(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("5000", 5000), ("10k", 10_000), ("2M", 2_000_000), ("1.5K", 1500)],
)
def test_count(text: str, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("Enabled", True), ("yes", True), ("FALSE", False), (" disabled ", False)],
)
def test_bool(text: str, value: bool) -> None:
    assert parse_bool(text) is value


@pytest.mark.parametrize(("text", "mask"), [("0640", 0o640), ("777", 0o777), (" 0 ", 0)])
def test_octal_mask(text: str, mask: int) -> None:
    assert parse_octal_mask(text) == mask


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9007", SocketAddress(None, 9007, "any")),
        ("0", SocketAddress(None, 0, "any")),
        ("localhost:9007", SocketAddress("localhost", 9007, "any")),
        ("amps-1.example.com.:1", SocketAddress("amps-1.example.com.", 1, "any")),
        ("0.0.0.0:9007", SocketAddress("0.0.0.0", 9007, "ipv4")),
        ("[::]:9007", SocketAddress("::", 9007, "ipv6")),
        ("[FE80::1]:65535", SocketAddress("fe80::1", 65535, "ipv6")),
        (" 127.0.0.1:8085 ", SocketAddress("127.0.0.1", 8085, "ipv4")),
    ],
)
def test_inet_address(text: str, address: SocketAddress) -> None:
    assert parse_inet_address(text) == address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("proxy.example.com:8185", ("", "proxy.example.com:8185")),
        ("proxy", ("", "proxy")),
        ("HTTPS://proxy.net/one/amps", ("https", "proxy.net/one/amps")),
        ("http://[::1]:8085/", ("http", "[::1]:8085/")),
    ],
)
def test_external_address(text: str, address: tuple[str, str]) -> None:
    assert parse_external_address(text) == address


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (
            parse_interval,
            "10x",
            "'10x' is not an interval: expected a number and a unit such as 10s, 500ms or 1h",
        ),
        (parse_interval, "LastThursday", "'LastThursday' is not an interval: "),
        (parse_interval, "-1s", "'-1s' is not an interval: "),
        (parse_interval, "", "'' is not an interval: "),
        (parse_interval, "1.5.2s", "'1.5.2s' is not an interval: "),
        (parse_interval, "0.1ns", "'0.1ns' is too small to be an interval"),
        (parse_interval, "300000w", "'300000w' is too large to be an interval"),
        (parse_interval, "\u0663s", "'\u0663s' is not an interval: "),
        (parse_size, "10mx", "'10mx' is not a size: expected a number and a unit"),
        (parse_size, "1.5", "'1.5' is not a size: there is no fraction of the smallest unit"),
        (parse_size, "9" * 30, "is too large to be a size"),
        (parse_size, "9" * 400, "is not a size"),
        (parse_count, "2g", "'2g' is not a count: expected a whole number such as 5000, 10k or 2M"),
        (parse_count, "1.5", "'1.5' is not a count"),
        (
            parse_bool,
            "maybe",
            "'maybe' is not a switch: expected true or false, enabled or disabled",
        ),
        (parse_octal_mask, "0689", "'0689' is not a file mask: expected permissions in octal"),
        (parse_octal_mask, "70000", "'70000' is not a file mask"),
        (parse_external_address, "", "'' is not an address: expected host:port"),
        (parse_external_address, "ftp://proxy:21", "'ftp://proxy:21' is not an address"),
        (parse_external_address, "proxy:81 8", "'proxy:81 8' is not an address"),
        (parse_external_address, "proxy/<b>", "'proxy/<b>' is not an address"),
        (parse_external_address, "x" * 256, "is not an address"),
        (parse_inet_address, "host", "'host' is not an address: expected a port from 0 to 65535"),
        (parse_inet_address, "65536", "'65536' is not an address: expected a port"),
        (parse_inet_address, ":9007", "':9007' is not an address: expected a port such as 9007"),
        (parse_inet_address, "::1:9007", "write an IPv6 address in brackets, such as [::1]:9007"),
        (parse_inet_address, "300.1.1.1:9", "'300.1.1.1' is not an IPv4 address"),
        (parse_inet_address, "[::g]:9", "'::g' is not an IPv6 address"),
        (parse_inet_address, "a b:9", "'a b:9' is not an address"),
    ],
)
def test_refused_values_say_what_was_expected(
    parse: Callable[[str], object], text: str, message: str
) -> None:
    with pytest.raises(UnitError) as refused:
        parse(text)
    assert message in str(refused.value)


@settings(deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(sorted(INTERVAL_UNITS)))
def test_any_whole_interval_is_exact(number: int, unit: str) -> None:
    assert parse_interval(f"{number}{unit.upper()}") == number * INTERVAL_UNITS[unit]


@settings(deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(sorted(SIZE_UNITS)))
def test_any_whole_size_is_exact(number: int, unit: str) -> None:
    assert parse_size(f"{number} {unit}") == number * SIZE_UNITS[unit]


@settings(deadline=None)
@given(
    st.sampled_from(
        [parse_interval, parse_size, parse_count, parse_bool, parse_octal_mask, parse_inet_address]
    ),
    st.text() | st.from_regex(r"[0-9.:\[\]a-z ]{0,80}"),
)
def test_any_text_is_read_or_refused(parse: Callable[[str], object], text: str) -> None:
    value: object
    try:
        value = parse(text)
    except UnitError as refused:
        value = str(refused)
    if isinstance(value, int):
        assert 0 <= value <= MAX_INT64
    elif isinstance(value, str):
        assert "\n" not in value
        assert len(value) < 250


def test_switches_are_lower_case() -> None:
    assert all(word == word.lower() for word in BOOLEANS)


def test_long_and_unprintable_values_are_shown_on_one_short_line() -> None:
    assert quoted("a\n  b\x07") == "'a b?'"
    assert quoted("x" * 100) == "'" + "x" * 57 + "...'"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1000000", 1_000_000),
        ("50k", 50_000),
        ("10M", 10_000_000),
        ("2G", 2_000_000_000),
        ("0.5T", 500_000_000_000),
        ("50KB", 51_200),
    ],
)
def test_one_letter_is_decimal_in_a_rotation_threshold(text: str, size: int) -> None:
    assert parse_rotation_threshold(text) == size
