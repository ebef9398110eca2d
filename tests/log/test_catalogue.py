"""The catalogue: complete, consistent, and said the way that readers of logs rely on."""

import re
from pathlib import Path

import pytest

from server.log.catalogue import CATALOGUE, CATEGORIES, matching
from server.log.levels import LEVELS, Level, parse_level
from server.log.reference_page import page

from .support import ONE_PER_LEVEL

ROOT = Path(__file__).parents[2]

NAMED_IN_THE_REFERENCE = [
    "00-0000",
    "00-0001",
    "00-0002",
    "00-0004",
    "00-0007",
    "00-0015",
    "00-0030",
    "00-0032",
    "00-0033",
    "00-0054",
    "01-0019",
    "01-0022",
    "02-0025",
    "07-0013",
    "07-0042",
    "07-0047",
    "12-0001",
    "12-0010",
    "12-1002",
    "15-0008",
    "16-0004",
    "17-0002",
    "1F-0004",
    "29-0103",
    "2D-0005",
    "2D-0006",
    "2D-0008",
    "2D-0011",
    "30-0000",
    "30-0001",
    "31-0010",
    "70-0004",
    "70-0011",
]


@pytest.mark.parametrize("message_id", NAMED_IN_THE_REFERENCE)
def test_every_id_that_documentation_names_can_be_configured_and_looked_up(message_id: str) -> None:
    assert message_id in CATALOGUE


@pytest.mark.parametrize(
    ("message_id", "level", "fields", "text"),
    [
        (
            "00-0007",
            Level.WARNING,
            {"topic": "fix.orders"},
            (
                "Topic 'fix.orders' has regular expression characters which could cause "
                "unintentional misrouting of messages."
            ),
        ),
        ("00-0015", Level.INFO, {"seconds": 1}, "AMPS initialization completed (1 seconds)."),
        ("07-0013", Level.INFO, {"client": "c"}, "client[c] disconnected."),
        (
            "07-0013",
            Level.INFO,
            {"client": "c", "reason": "name in use"},
            "client[c] disconnected. Reason: name in use",
        ),
        (
            "12-0001",
            Level.TRACE,
            {"client": "pubber", "header": b'{"c":"p","t":"test"}', "body": b"Data=5\x01"},
            'client[pubber] publish command received: {"c":"p","t":"test"}Data=5^A',
        ),
        (
            "17-0002",
            Level.TRACE,
            {"client": "pubber", "header": '{"c":"ack"}'},
            'client[pubber] ack sent: {"c":"ack"}',
        ),
        (
            "70-0011",
            Level.WARNING,
            {"client": "c"},
            "client[c] slow consumption detected, offline messages.",
        ),
        (
            "70-0004",
            Level.ERROR,
            {"client": "c"},
            "client[c] is not consuming messages, disconnecting slow client",
        ),
        ("29-0103", Level.INFO, {"text": "hello"}, "hello"),
    ],
)
def test_texts_that_scripts_search_for_are_kept(
    message_id: str, level: Level, fields: dict[str, object], text: str
) -> None:
    message = CATALOGUE[message_id]
    assert message.level is level
    assert message.template.render(fields) == text


def test_searching_for_the_name_of_a_grave_level_finds_only_entries_of_that_level() -> None:
    grave = re.compile("warning|error|critical|emergency", re.IGNORECASE)
    for message in CATALOGUE.values():
        fields = message.template.required | message.template.optional
        text = message.template.render(dict.fromkeys(fields, "value"))
        assert not grave.search(text), message.id


def test_every_message_says_what_happened_and_what_to_do() -> None:
    for message in CATALOGUE.values():
        assert message.meaning.endswith("."), message.id
        assert message.action.endswith("."), message.id
        assert message.category in CATEGORIES
        assert not message.template.required & message.template.optional


def test_levels_are_ordered_by_severity() -> None:
    assert [level.label for level in Level] == [
        "developer",
        "trace",
        "stats",
        "info",
        "warning",
        "error",
        "critical",
        "emergency",
        "none",
    ]


def test_the_obsolete_level_debug_means_info_and_case_does_not_matter() -> None:
    assert parse_level("debug") is Level.INFO
    assert parse_level(" Warning ") is Level.WARNING
    assert set(LEVELS) == {level.label for level in Level} | {"debug"}


def test_an_unknown_level_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(ValueError, match="'loud' is not a log level; expected one of developer, "):
        parse_level("loud")


def test_no_message_can_have_the_level_none() -> None:
    assert Level.NONE not in ONE_PER_LEVEL


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("00-0015", ["00-0015"]),
        ("2d-0005", ["2D-0005"]),
        ("12-1.*", ["12-1002"]),
        ("^70-", ["70-0004", "70-0011", "70-0012", "70-0013", "70-0020"]),
        ("99-", []),
    ],
)
def test_messages_are_found_by_id_or_expression(pattern: str, expected: list[str]) -> None:
    assert [message.id for message in matching(pattern)] == expected


def test_the_page_of_messages_is_current() -> None:
    written = (ROOT / "docs" / "messages.md").read_text("utf-8")
    assert written == page(), "run: python -m server.log.reference_page docs/messages.md"
