"""The command line of spark: what it means, what is wrong with it, and how it is described."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.cli.spark.help import command_help, overview
from server.cli.spark.main import main
from server.cli.spark.options import COMMANDS, OPTIONS, SparkSettings, UsageError, parse

GOLDEN = Path(__file__).parent / "golden" / "spark"
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_its_help_screen(name: str) -> None:
    assert command_help(name) == (GOLDEN / f"help_{name}.txt").read_text()


@pytest.mark.parametrize("words", ["help sow", "sow --help", "sow -h"])
def test_help_is_where_it_is_looked_for(words: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 0
    assert capfd.readouterr().out == command_help("sow")


def test_the_overview_names_the_commands() -> None:
    assert overview() == (GOLDEN / "help.txt").read_text()


@pytest.mark.parametrize("name", COMMANDS)
def test_each_example_is_a_command_line_of_its_command(name: str) -> None:
    program, command, *words = COMMANDS[name].example.replace("'", "").split()
    assert (program, command) == ("spark", name)
    known = {f"-{option}" for option in (*COMMANDS[name].required, *COMMANDS[name].optional)}
    assert {word for word in words if word.startswith("-")} <= known


@pytest.mark.parametrize("page", ["man/spark.1", "docs/client.md"])
def test_each_command_and_option_is_documented(page: str) -> None:
    text = (ROOT / page).read_text().replace("\\-", "-")
    assert [name for name in COMMANDS if name not in text] == []
    assert [name for name in OPTIONS if f"-{name}" not in text] == []


MEANINGS = [
    ("ping", "-server h:1", SparkSettings(server="h:1")),
    ("ping", "-server h:1 -secure 1", SparkSettings(server="h:1", secure=True)),
    ("ping", "-secure -server h:1", SparkSettings(server="h:1", secure=True)),
    ("ping", "-secure no -server h:1", SparkSettings(server="h:1", secure=False)),
    ("ping", "-server h:1 -server h:2", SparkSettings(server="h:2")),
    ("ping", "-server h:1 -prot json -type fix", SparkSettings(server="h:1", type="fix")),
    (
        "publish",
        "-server h:1 -topic t -rate .25 -delimiter 1 -delta -file f",
        SparkSettings(server="h:1", topic="t", rate=0.25, delimiter=1, delta=True, file="f"),
    ),
    (
        "subscribe",
        "-topic t -server h:1 -ack -backlog 10 -copy h:2 -format {data}",
        SparkSettings(server="h:1", topic="t", ack=True, backlog=10, copy="h:2", format="{data}"),
    ),
    (
        "sow",
        "-server h:1 -topic t -filter -1=/a -orderby /a -topn 0 -batchsize 5",
        SparkSettings(server="h:1", topic="t", filter="-1=/a", orderby="/a", topn=0, batchsize=5),
    ),
]


@pytest.mark.parametrize(("command", "line", "meaning"), MEANINGS)
def test_a_command_line_means(command: str, line: str, meaning: SparkSettings) -> None:
    assert parse(command, line.split()) == meaning


MISTAKES = [
    ("ping", "", "-server is missing"),
    ("publish", "-server h:1", "-topic is missing"),
    ("publish", "-server h:1 -topic", "-topic has no value"),
    ("publish", "-server h:1 -topc t", "unknown option -topc; did you mean -topic?"),
    ("publish", "--server h:1", "unknown option --server; did you mean -server?"),
    ("ping", "\u2013server h:1", "did you mean -server?"),
    ("ping", "-server h:1 -topic t", "unknown option -topic; known are -authenticator, -cafile"),
    ("publish", "h:1", "unexpected 'h:1'; every option has a name, such as -server"),
    ("publish", "-server h:1 -topic t -delimiter 256", "-delimiter is '256': expected the decimal"),
    ("publish", "-server h:1 -topic t -rate 0", "-rate is '0': expected messages a second"),
    ("publish", "-server h:1 -topic t -rate inf", "-rate is 'inf': expected"),
    ("publish", "-server h:1 -topic t -rate fast", "-rate is 'fast': expected"),
    ("sow", "-server h:1 -topic t -topn -1", "-topn is '-1': expected a whole number"),
    ("subscribe", "-server h:1 -topic t -backlog 0", "-backlog is '0': expected a number from 1"),
    ("ping", "-server h:1 -proto smtp", "-proto is 'smtp': expected one of amps, fix, nvfix, xml"),
]


@pytest.mark.parametrize(("command", "line", "said"), MISTAKES)
def test_a_mistake_is_explained(command: str, line: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(command, line.split())
    assert said in str(caught.value)
