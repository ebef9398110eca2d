"""Which messages a target writes: Level, Levels, IncludeErrors, ExcludeErrors, and what wins."""

from pathlib import Path
from typing import Any

import pytest

from config_schema.problems import Problems
from server.log.event_log import EventLog
from server.log.levels import Level
from server.log.target_filter import select
from server.log.targets import LogTargetError

from .support import ONE_PER_LEVEL, ids, log_of, target

ALL = list(ONE_PER_LEVEL)


def levels_of(**settings: Any) -> list[str]:
    """The levels of which at least the sample message is written."""
    chosen = select(target(**settings), Problems())
    return [level.label for level, message_id in ONE_PER_LEVEL.items() if message_id in chosen]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, []),
        ({"level": "none"}, []),
        ({"level": "emergency"}, ["emergency"]),
        ({"level": "error"}, ["error", "critical", "emergency"]),
        ({"level": "info"}, ["info", "warning", "error", "critical", "emergency"]),
        ({"level": "debug"}, ["info", "warning", "error", "critical", "emergency"]),
        ({"level": "stats"}, ["info", "warning", "error", "critical", "emergency"]),
        ({"level": "trace"}, [level.label for level in ALL]),
        ({"level": "developer"}, [level.label for level in ALL]),
        ({"levels": ("trace",)}, ["trace"]),
        ({"levels": ("trace", "info")}, ["trace", "info"]),
        (
            {"level": "error", "levels": ("trace", "info")},
            ["trace", "info", "error", "critical", "emergency"],
        ),
        ({"level": "critical", "levels": ("none",)}, ["critical", "emergency"]),
        ({"level": "none", "levels": ("warning",)}, ["warning"]),
    ],
)
def test_level_is_a_lower_bound_and_levels_are_added(
    settings: dict[str, Any], expected: list[str]
) -> None:
    assert sorted(levels_of(**settings)) == sorted(expected)


@pytest.mark.parametrize(
    ("settings", "written", "not_written"),
    [
        ({"include_errors": ("00-0015",)}, {"00-0015"}, {"00-0001", "70-0004"}),
        ({"include_errors": ("12-.*",)}, {"12-0001", "12-0010", "12-1002"}, {"17-0002"}),
        ({"include_errors": ("12-", "17-0002")}, {"12-0001", "17-0002"}, {"17-0001"}),
        ({"level": "warning", "include_errors": ("00-0015",)}, {"00-0015", "70-0011"}, {"00-0001"}),
        ({"level": "trace", "exclude_errors": ("12-0010",)}, {"12-0001"}, {"12-0010"}),
        (
            {"level": "info", "exclude_errors": ("00-0001", "1.*")},
            {"00-0002"},
            {"00-0001", "14-0001"},
        ),
        (
            {"include_errors": ("12-.*",), "exclude_errors": ("12-0010",)},
            {"12-0001", "12-1002"},
            {"12-0010"},
        ),
        (
            {"include_errors": ("00-0002",), "exclude_errors": ("00-0001", "00-0004", "12-1.*")},
            {"00-0002"},
            {"00-0001", "00-0015"},
        ),
    ],
)
def test_ids_are_included_and_excluded_and_excluding_wins(
    settings: dict[str, Any], written: set[str], not_written: set[str]
) -> None:
    chosen = select(target(**settings), Problems())
    assert written <= chosen
    assert not not_written & chosen


def test_each_target_gets_what_it_asks_for(tmp_path: Path) -> None:
    everything = target(file_name=str(tmp_path / "all"), level="developer")
    grave = target(file_name=str(tmp_path / "grave"), level="error")
    nothing = target(file_name=str(tmp_path / "nothing"))
    with log_of(everything, grave, nothing) as log:
        for message_id in ONE_PER_LEVEL.values():
            log.emit(message_id)
        assert log.enabled(ONE_PER_LEVEL[Level.TRACE])
    assert ids(tmp_path / "all.log") == list(ONE_PER_LEVEL.values())
    assert ids(tmp_path / "grave.log") == [
        message_id for level, message_id in ONE_PER_LEVEL.items() if level >= Level.ERROR
    ]
    assert ids(tmp_path / "nothing.log") == []


def test_a_message_that_no_target_wants_is_not_enabled(tmp_path: Path) -> None:
    with log_of(target(file_name=str(tmp_path / "a"), level="warning")) as log:
        assert log.enabled("70-0011")
        assert not log.enabled("12-0001")
        assert not log.enabled("no such id")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"level": "loud"},
            "config.xml:7: error: Target/Level: 'loud' is not a log level; expected one of",
        ),
        ({"levels": ("info", "x")}, "config.xml:7: error: Target/Levels: 'x' is not a log level;"),
        (
            {"include_errors": ("12-(",)},
            "config.xml:7: error: Target/IncludeErrors: '12-(' is neither a message id nor",
        ),
        (
            {"exclude_errors": ("*",)},
            "config.xml:7: error: Target/ExcludeErrors: '*' is neither a message id nor",
        ),
    ],
)
def test_mistakes_in_the_configuration_are_located(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(LogTargetError) as refused:
        EventLog([target("stdout", **settings)], "unit-1")
    assert str(refused.value).startswith(sentence)


def test_all_mistakes_of_all_targets_are_reported_at_once() -> None:
    wrong = [target("stdout", level="x"), target("stderr", levels=("y",), exclude_errors=("[",))]
    with pytest.raises(LogTargetError) as refused:
        EventLog(wrong, "unit-1")
    assert [problem.element for problem in refused.value.problems] == [
        "Target/Level",
        "Target/Levels",
        "Target/ExcludeErrors",
    ]


def test_an_id_that_this_server_never_logs_is_remarked_on(tmp_path: Path) -> None:
    spec = target(file_name=str(tmp_path / "a"), level="info", exclude_errors=("7A-1234",))
    with log_of(spec):
        pass
    assert (
        "info: 00-0010 config.xml:7 Target/ExcludeErrors: no message of this server has an id "
        "that matches '7A-1234'; ampserr lists the ids that there are\n"
    ) in (tmp_path / "a.log").read_text()
