"""Server URIs: what they say, and what is wrong with those that say nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amperage.client import InvalidUriError, ServerUri, parse_uri
from amperage.client.uri import with_message_type, without_passwords

READABLE = [
    ("tcp://localhost:9007/amps/json", ServerUri("tcp", "localhost", 9007, message_type="json")),
    ("tcp://localhost:9007/amps", ServerUri("tcp", "localhost", 9007)),
    ("tcp://localhost:9007", ServerUri("tcp", "localhost", 9007)),
    ("tcps://h:1/amps/fix", ServerUri("tcps", "h", 1, message_type="fix")),
    ("tcp://ann@h:1/amps", ServerUri("tcp", "h", 1, "ann")),
    ("tcp://ann:a%40b@h:1", ServerUri("tcp", "h", 1, "ann", "a@b")),
    ("tcp://ann:@h:1", ServerUri("tcp", "h", 1, "ann", "")),
    ("tcp://[::1]:9007/amps/json", ServerUri("tcp", "::1", 9007, message_type="json")),
    (
        "tcp://h:1/amps/json?tcp_nodelay=false&tcp_sndbuf=8192",
        ServerUri("tcp", "h", 1, None, None, "json", {"tcp_nodelay": 0, "tcp_sndbuf": 8192}),
    ),
    (
        "tcp://h:1/amps?compression=zlib",
        ServerUri("tcp", "h", 1, options={"compression": 1}),
    ),
    ("tcp://h:1/fix", ServerUri("tcp", "h", 1, protocol="fix")),
    ("tcps://h:1/soap/xml", ServerUri("tcps", "h", 1, message_type="xml", protocol="soap")),
    ("ws://h:1/amps/json", ServerUri("ws", "h", 1, message_type="json", path="/amps/json")),
    (
        "wss://h:1/behind/proxy/amps/fix",
        ServerUri("wss", "h", 1, message_type="fix", path="/behind/proxy/amps/fix"),
    ),
    ("ws://h:1/proxied/amps", ServerUri("ws", "h", 1, path="/proxied/amps")),
    ("unix:///run/a%20b.sock", ServerUri("unix", "", 0, path="/run/a b.sock")),
    (
        "unix://ann@/run/amps/json?message_type=json",
        ServerUri("unix", "", 0, "ann", None, "json", path="/run/amps/json"),
    ),
]


@pytest.mark.parametrize(("text", "expected"), READABLE)
def test_a_uri_says_where_how_and_as_whom(text: str, expected: ServerUri) -> None:
    assert parse_uri(text) == expected


UNREADABLE = [
    ("localhost:9007", "begins with tcp://, tcps://, ws://, wss:// or unix://"),
    ("http://localhost:9007/amps", "begins with tcp://, tcps://"),
    ("ws://localhost:1/json", "expected the path /amps or /amps/TYPE"),
    ("unix://host/path", "expected the absolute path of a socket"),
    ("unix:///", "expected the absolute path of a socket"),
    ("tcp://localhost:1/amps?message_type=json", "expected the path /amps/TYPE"),
    ("tcp://localhost:1/amps?compression=best", "expected zlib or none"),
    ("tcp://localhost/amps", "expected host:port"),
    ("tcp://:9007/amps", "expected host:port"),
    ("tcp://localhost:nine/amps", "Port could not be cast"),
    ("tcp://localhost:99999/amps", "0-65535"),
    ("tcp://localhost:1/json", "expected the path /amps or /amps/TYPE"),
    ("ws://localhost:1/fix", "expected the path /amps or /amps/TYPE"),
    ("tcp://localhost:1/amps/json/more", "expected the path"),
    ("tcp://localhost:1/amps?tcp_sndbuf=big", "tcp_sndbuf is 'big', expected a number of bytes"),
    ("tcp://localhost:1/amps?tcp_nodelay=2", "expected true or false"),
    ("tcp://localhost:1/amps?colour=red", "unknown connection parameter colour; known are"),
]


@pytest.mark.parametrize(("text", "message"), UNREADABLE)
def test_a_text_that_is_no_uri_is_explained(text: str, message: str) -> None:
    with pytest.raises(InvalidUriError) as caught:
        parse_uri(text)
    assert message in str(caught.value)


def test_no_printed_form_has_the_password() -> None:
    uri = parse_uri("tcp://ann:secret@h:1/amps/json")
    assert str(uri) == "tcp://ann@h:1/amps/json"
    assert "secret" not in repr(uri)
    with pytest.raises(InvalidUriError) as caught:
        parse_uri("tcp://ann:secret@h/amps")
    assert "secret" not in str(caught.value)


@given(st.text(max_size=40), st.sampled_from(["", "tcp://", "tcp://h:1/amps?", "tcps://a:b@"]))
def test_any_text_is_read_or_refused(text: str, start: str) -> None:
    try:
        uri = parse_uri(start + text)
    except InvalidUriError:
        return
    assert parse_uri(str(uri)).address == uri.address


@pytest.mark.parametrize(("text", "expected"), READABLE)
def test_a_uri_is_printed_as_it_is_read_but_for_secrets_and_parameters(
    text: str, expected: ServerUri
) -> None:
    again = parse_uri(str(expected))
    assert again == replace(expected, password=None, options={})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tcp://host:1/amps", "tcp://host:1/amps/fix"),
        ("tcp://host:1", "tcp://host:1/amps/fix"),
        ("tcp://host:1/", "tcp://host:1/amps/fix"),
        ("tcp://host:1/amps/json", "tcp://host:1/amps/fix"),
        ("tcp://host:1/nvfix", "tcp://host:1/nvfix/fix"),
        (
            "tcps://ann:p%40ss@host:1/amps/json?compression=zlib",
            "tcps://ann:p%40ss@host:1/amps/fix?compression=zlib",
        ),
        ("ws://host:1/proxy/amps/json", "ws://host:1/proxy/amps/fix"),
        ("ws://host:1/proxy/amps", "ws://host:1/proxy/amps/fix"),
        ("unix:///run/amps.sock", "unix:///run/amps.sock?message_type=fix"),
        (
            "unix:///run/amps.sock?message_type=json&tcp_sndbuf=9",
            "unix:///run/amps.sock?tcp_sndbuf=9&message_type=fix",
        ),
    ],
)
def test_a_uri_for_another_message_type_says_all_else_as_before(text: str, expected: str) -> None:
    assert parse_uri(with_message_type(text, "fix")) == parse_uri(expected)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("tcp://ann:s3cret@h:1/amps/json", "tcp://ann:***@h:1/amps/json"),
        ("--server=tcp://ann:s3cret@h:1", "--server=tcp://ann:***@h:1"),
        ("tcp://ann:s3:c/ret@h:1,tcp://bob:s3@[::1]:2", "tcp://ann:***@h:1,tcp://bob:***@[::1]:2"),
        ("ann:s3cret@h:1", "ann:***@h:1"),
        ("ann:s3cret@h:1,bob:s3@h:2", "ann:***@h:1,bob:***@h:2"),
        ("tcp://ann@h:1,bob@[::1]:2", "tcp://ann@h:1,bob@[::1]:2"),
        ("/path LIKE '^a:b'", "/path LIKE '^a:b'"),
    ],
)
def test_passwords_are_hidden_and_nothing_else(text: str, shown: str) -> None:
    assert without_passwords(text) == shown
