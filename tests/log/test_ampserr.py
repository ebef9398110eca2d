"""The ampserr command: what it prints and how it ends."""

import subprocess
import sys

import pytest

from server.cli.ampserr import main
from server.log.catalogue import CATALOGUE
from tests.support.server import ROOT, environment


def test_one_id_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["00-0015"]) == 0
    assert capsys.readouterr().out == (
        "AMPS Message 00-0015 [level = info]\n"
        "\n"
        "    DESCRIPTION: State is recovered, and all enabled transports accept\n"
        "        connections. Scripts can wait for this entry; a log file that is\n"
        "        appended to has one per start.\n"
        "    ACTION: No action is needed.\n"
        "    TEXT: AMPS initialization completed ({seconds} seconds).\n"
        "\n"
        "Found 1 error matching '00-0015'.\n"
    )


@pytest.mark.parametrize(
    ("expression", "headings", "summary"),
    [
        (
            "70-",
            [
                "AMPS Message 70-0004 [level = error]",
                "AMPS Message 70-0011 [level = warning]",
                "AMPS Message 70-0012 [level = info]",
                "AMPS Message 70-0013 [level = error]",
                "AMPS Message 70-0020 [level = warning]",
            ],
            "Found 5 errors matching '70-'.",
        ),
        ("1f-0004", ["AMPS Message 1F-0004 [level = info]"], "Found 1 error matching '1f-0004'."),
    ],
)
def test_an_expression_finds_messages(
    expression: str, headings: list[str], summary: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([expression]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("AMPS Message")] == headings
    assert lines[-1] == summary


def test_a_dot_finds_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["."]) == 0
    output = capsys.readouterr().out
    assert all(f"AMPS Message {message_id} " in output for message_id in CATALOGUE)
    assert output.endswith(f"Found {len(CATALOGUE)} errors matching '.'.\n")
    assert max(map(len, output.splitlines())) <= 80


def test_finding_nothing_is_said_and_shows_in_the_status(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["99-0001"]) == 1
    assert capsys.readouterr().out == "Found 0 errors matching '99-0001'.\n"


def test_a_broken_expression_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["["]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("ampserr: '[' is not a regular expression: ")


def test_without_an_argument_the_usage_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "ampserr: the following arguments are required: error; see ampserr --help\n"
    )


def test_a_reader_that_leaves_early_sees_no_traceback() -> None:
    command = [sys.executable, "-m", "server.cli.ampserr", "."]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=ROOT
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
