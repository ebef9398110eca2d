"""Messages of LDAP: those that are sent, byte by byte, and whatever may come back."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.security.ldap import messages
from server.security.ldap.ber import SEQUENCE, BerError, BerReader, element, number, size_of
from server.security.ldap.messages import LdapEntry, LdapMessage, LdapResult

EXAMPLES = {
    "bind": (
        messages.bind(1, 3, "cn=a", "pw"),
        "30 12 02 01 01 60 0d 02 01 03 04 04 63 6e 3d 61 80 02 70 77",
    ),
    "start_tls": (
        messages.start_tls(1),
        (
            "30 1d 02 01 01 77 18 80 16"
            " 31 2e 33 2e 36 2e 31 2e 34 2e 31 2e 31 34 36 36 2e 32 30 30 33 37"
        ),
    ),
    "unbind": (messages.unbind(200), "30 06 02 02 00 c8 42 00"),
    "search": (
        messages.search(2, "dc=x", ("uid",), "*)(", 2, 10),
        (
            "30 2f 02 01 02 63 2a 04 04 64 63 3d 78 0a 01 02 0a 01 00 02 01 02 02 01 0a 01 01 00"
            " a1 0c a3 0a 04 03 75 69 64 04 03 2a 29 28 30 05 04 03 75 69 64"
        ),
    ),
}


@pytest.mark.parametrize(("made", "expected"), EXAMPLES.values(), ids=EXAMPLES)
def test_what_is_sent(made: bytes, expected: str) -> None:
    assert made.hex(" ") == expected


@given(st.integers(0, 2**31 - 1))
def test_numbers_come_back(value: int) -> None:
    assert BerReader(number(value)).read_number() == value


@given(st.integers(0, 0x1E), st.binary(max_size=300))
def test_elements_come_back(tag: int, content: bytes) -> None:
    made = element(tag, content)
    assert size_of(made[:6]) == len(made)
    reader = BerReader(made + b"rest")
    assert reader.read_bytes(tag) == content
    assert reader.has_more


@given(st.text(max_size=50), st.lists(st.text(max_size=50)), st.booleans())
def test_entries_come_back(name: str, values: list[str], is_long: bool) -> None:
    given_values = [*values, "x" * 70_000] if is_long else values
    texts = [element(0x04, value.encode()) for value in given_values]
    attribute = element(SEQUENCE, element(0x04, b"uid"), element(0x31, *texts))
    content = element(0x04, name.encode()) + element(SEQUENCE, attribute)
    message = element(SEQUENCE, number(7), element(messages.SEARCH_ENTRY, content))
    assert messages.size_of_message(message[:6]) == len(message)
    found = messages.read_message(message)
    assert (found.number, found.tag) == (7, messages.SEARCH_ENTRY)
    assert messages.read_entry(found) == LdapEntry(name, tuple(given_values))


def read_anything(octets: bytes) -> None:
    """Read bytes as whatever they can be; what cannot be read is refused, and nothing else."""
    for read in (messages.read_result, messages.read_entry):
        with suppress(BerError):
            read(messages.read_message(octets))
    with suppress(BerError):
        messages.size_of_message(octets)


@given(st.binary(max_size=64))
def test_bytes_of_any_kind(octets: bytes) -> None:
    read_anything(octets)
    read_anything(b"\x30" + octets)
    for tag in (messages.BIND_RESPONSE, messages.SEARCH_ENTRY):
        read_anything(element(SEQUENCE, number(1), element(tag, octets)))


@given(st.data())
def test_messages_that_are_damaged(data: st.DataObject) -> None:
    attribute = element(SEQUENCE, element(4, b"uid"), element(0x31, element(4, b"ann")))
    entry = element(messages.SEARCH_ENTRY, element(4, b"cn=a"), element(SEQUENCE, attribute))
    whole = bytearray(element(SEQUENCE, number(1), entry))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    read_anything(bytes(whole[: data.draw(st.integers(0, len(whole)))]))


def test_results_are_shown_without_control_characters() -> None:
    content = number(49, 0x0A) + element(4) + element(4, b"data 52e\n\x1b[31m" + b"x" * 500)
    shown = str(messages.read_result(LdapMessage(1, messages.BIND_RESPONSE, content)))
    assert shown.startswith("invalidCredentials (49), 'data 52e  [31mx")
    assert shown.isprintable()
    assert len(shown) < 300
    assert str(LdapResult(4711, "")) == "an error (4711)"
