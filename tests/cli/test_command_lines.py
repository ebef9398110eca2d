"""What all commands have in common: help, version, completion, and how they refuse."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from config_schema.version import VERSION

ROOT: Final = Path(__file__).parents[2]
_SCRIPT: Final = runpy.run_path(str(ROOT / "scripts/make_completions.py"))
COMMANDS: Final[list[str]] = list(_SCRIPT["COMMANDS"])
DIRECTORY: Final[Path] = _SCRIPT["DIRECTORY"]
start_of: Final[Callable[[str], Callable[[], int]]] = _SCRIPT["start_of"]
completions: Final[Callable[[], Iterator[tuple[Path, str]]]] = _SCRIPT["completions"]
ANSWERING: Final = [
    (name, word)
    for name in COMMANDS
    for word in ("--help", "-h", "--version")
    if (name, word) != ("amps-grep", "-h")  # leaves out the names of files
]


def run(name: str, *words: str) -> int:
    """The status of a command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, *words])
        try:
            return start_of(name)()
        except SystemExit as ended:
            return int(ended.code or 0)


@pytest.mark.parametrize(("name", "word"), ANSWERING)
def test_help_and_version(name: str, word: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(name, word) == 0
    captured = capfd.readouterr()
    if word == "--version":
        assert captured.err == ""
        assert re.fullmatch(rf".*{re.escape(VERSION)}.*\n", captured.out)
    else:
        text = captured.out or captured.err
        assert name in text
        assert "--help" in text or name == "spark"


WRONG: Final = {
    "ampServer": ["--verfy-config", "x.xml"],
    "spark": ["sow", "-sever", "x"],
    "amps-pipeline": ["stats", "--tpo", "3", "journal"],
    "amps-users": ["add", "--rol", "x"],
    "amps-backup": ["create", "--instnce", "x"],
}
"""Words that make no sense; for all other commands an option that none of them has."""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_command_line_is_one_line(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(name, *WRONG.get(name, ["--no-such-option"])) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert re.fullmatch(rf"{name}( \w+)?: .+\n", captured.err)
    assert "did you mean" in captured.err or "--help" in captured.err


def test_an_option_that_is_mistyped_is_guessed(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("amps_journal_dump", "x.journal", "--extnets") == 2
    assert capfd.readouterr().err == (
        "amps_journal_dump: unrecognized arguments: --extnets; did you mean --extents?\n"
    )


@pytest.mark.parametrize("limit", ["5:2", "-1", "1:-1", ":", "1:", ":1", "x", "1:2:3"])
def test_a_range_that_is_none_is_refused(limit: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("amps_journal_dump", f"-l{limit}", "x.journal") == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert f"'{limit}' is neither a number of entries nor a range N:M" in captured.err


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_is_in_the_manual_page(name: str) -> None:
    """Those of all commands and of each of its own."""
    page = (ROOT / f"man/{name}.1").read_text().replace("\\-", "-").replace("\\fR", "")
    script = (DIRECTORY / "bash" / name).read_text()
    options = {word for line in re.findall(r"options='(.*?)'", script) for word in line.split()}
    assert "--version" in options
    missing = {option for option in options if not re.search(rf"(?<![\w-]){option}(?![\w-])", page)}
    assert missing == set()


def test_the_completions_are_those_of_the_commands() -> None:
    """Otherwise: make pages, or python scripts/make_completions.py."""
    files = {path.relative_to(DIRECTORY) for path in DIRECTORY.rglob("*") if path.is_file()}
    made = dict(completions())
    assert files == set(made)
    assert [
        str(path) for path, text in made.items() if (DIRECTORY / path).read_text() != text
    ] == []


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_the_scripts_are_good_shell(shell: str) -> None:
    """As the shell sees them, where there is one."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    paths = list((DIRECTORY / shell).iterdir())
    commands = "\n".join(f"{shell} -n {path} || exit 1" for path in paths)
    done = subprocess.run(["sh", "-c", commands], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


COMPLETED: Final = [
    (["amps-ctl", "client", "d"], "disconnect"),
    (["amps-ctl", "--url", "x", "cl"], "client"),
    (["amps-backup", ""], "create download list restore upload verify"),
    (["amps-users", ""], "add check list passwd remove"),
    (["amps-users", "add", "--s"], "--stdin"),
    (["amps-users", "--cost"], ""),
    (["amps_file", "--print-completion", "z"], "zsh"),
    (["amps_file", "--print-completion", "=", ""], "bash fish zsh"),
    (["amps-service", "un"], "uninstall"),
    (["amps_journal_dump", "x.journal", "--no"], "--no-data"),
    (["spark", "sow", "-t"], "-topic -topn -type"),
    (["spark", "help", "p"], "ping publish"),
    (["ampServer", "--verify"], "--verify-config"),
    (["amps-pipeline", "st"], "stats"),
    (["amps_sow_dump", "-n", "1"], ""),
    (["amps_sow_dump", ""], ""),  # names of files, which are bash's
]


@pytest.mark.parametrize(("words", "expected"), COMPLETED)
def test_bash_completes(words: list[str], expected: str) -> None:
    function = "_" + words[0].replace("-", "_")
    typed = " ".join(f"'{word}'" for word in words)
    code = (
        "compopt() { :; }\n"  # works only while somebody types
        f"source {DIRECTORY / 'bash' / words[0]}\n"
        f"COMP_WORDS=({typed}) COMP_CWORD={len(words) - 1}\n"
        f"{function}\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    assert sorted(done.stdout.split()) == expected.split()
