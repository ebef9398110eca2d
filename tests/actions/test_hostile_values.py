"""A value is data, whatever is in it: it cannot change a command, and not a condition."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actions.context import ActionContext, VariableTemplate
from actions.expressions import ExpressionTemplate
from actions.module import StepError
from server.expressions import ContextKind, parse
from server.expressions.backends.compile_message import compile_filter
from server.util.encoding import text_to_bytes
from server.util.shell_quoting import shell_command
from tests.actions.support import Bench
from tests.support.chances import examples
from tests.support.waiting import WAIT_SECONDS

HOSTILE = [
    "touch pwned",
    "; touch pwned",
    "$(touch pwned)",
    "`touch pwned`",
    "' ; touch pwned ; '",
    '" ; touch pwned ; "',
    "\\' ; touch pwned",
    "&& touch pwned",
    "| touch pwned",
    "> pwned",
    "\n touch pwned\n",
    "${IFS}touch${IFS}pwned",
    "* ? [a-z] ~ $HOME",
    "-n",
    "\\",
    "'",
    '"',
    "\udcff\udcfe",
    "",
]

COMMANDS = [
    "printf %s {{X}}",
    'printf %s "{{X}}"',
    "printf %s '{{X}}'",
    "printf '%s' <<<'' 2>/dev/null {{X}} || printf %s {{X}}",
    'x={{X}}; printf %s "$x"',
    'printf %s "`printf %s "{{X}}"; printf .`" | sed \'$s/[.]$//\'',
]


def run(command: str, value: str, directory: Path) -> bytes:
    template = VariableTemplate(command)
    text, names = shell_command(template.parts, template.tail)
    environment = {name.encode(): text_to_bytes(value) for name in names}
    environment[b"PATH"] = b"/usr/bin:/bin"
    done = subprocess.run(
        text,
        check=False,
        shell=True,
        env=environment,
        cwd=directory,
        capture_output=True,
        timeout=WAIT_SECONDS,
    )
    return done.stdout


NESTED = [
    "printf %s \"$(printf %s {{X}}; printf .)\" | sed '$s/[.]$//'",
    "printf %s \"`printf %s {{X}}; printf .`\" | sed '$s/[.]$//'",
    'printf %s "${UNSET:-{{X}}}"',
    "x=$((1 << 2))\nprintf %s {{X}}",
    "printf %s ${UNSET:-{{X}}}",
    "# it's only a comment\nprintf %s {{X}}",
    "echo it\\'s >/dev/null; printf %s {{X}}",
    "(printf %s {{X}})",
    "if [ {{X}} = {{X}} ]; then printf %s {{X}}; fi",
    'x=$(echo "a)"); printf %s {{X}}',
]
HERE = [
    "cat <<END\n{{X}}\nEND\n",
    "cat <<-'A' >/dev/null; cat <<B\nit's\n\tA\n{{X}}\nB\n",
]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("command", NESTED)
def test_nested_quotes_keep_a_value_in_one_piece(command: str, value: str, tmp_path: Path) -> None:
    assert run(command, value, tmp_path) == text_to_bytes(value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("command", HERE)
def test_a_here_document_has_the_value_as_it_is(command: str, value: str, tmp_path: Path) -> None:
    assert run(command, value, tmp_path) == text_to_bytes(value) + b"\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("command", COMMANDS[:3])
def test_a_command_gets_a_value_as_one_word(command: str, value: str, tmp_path: Path) -> None:
    assert run(command, value, tmp_path) == text_to_bytes(value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_value_is_parsed_wherever_it_stands(command: str, value: str, tmp_path: Path) -> None:
    run(command, value, tmp_path)
    assert not (tmp_path / "pwned").exists()


FRAGMENTS = [
    "{{X}}",
    "{{X}}",
    "printf %s ",
    "x=",
    "'",
    '"',
    "`",
    "$(",
    "(",
    ")",
    "{ ",
    "}",
    "${Y:-",
    "$((1 << 2))",
    "${Y#",
    "\\",
    " ",
    "\n",
    "#",
    ";",
    "|",
    "&&",
    "<<E\n",
    "<<'E'\n",
    "\nE\n",
    "if true; then ",
    "; fi",
    "case a in a) ",
    ";; esac",
]


@pytest.mark.process
@settings(max_examples=examples(150))
@given(st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=9), st.sampled_from(HOSTILE))
def test_no_value_is_parsed_however_odd_the_command(fragments: list[str], value: str) -> None:
    """Quotes, substitutions, comments and here-documents, whether they make sense or not."""
    with tempfile.TemporaryDirectory() as directory:
        run("".join(fragments), value, Path(directory))
        assert not Path(directory, "pwned").exists()


@pytest.mark.process
@settings(max_examples=examples(60))
@given(
    st.sampled_from(COMMANDS[:3]),
    st.text(alphabet="'\"\\$`(){};&|<>*?~#!\n\t -aX0é", max_size=20),
)
def test_any_value_arrives(command: str, value: str) -> None:
    assert run(command, value, Path("/")) == text_to_bytes(value)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("date", "date"),
        ("a {{X}} b", 'a "${AMPERAGE_1}" b'),
        ('"{{X}}" {{Y}}', '"${AMPERAGE_1}" "${AMPERAGE_2}"'),
        ("'it {{X}}'", "'it '\"${AMPERAGE_1}\"''"),
        ('\\"{{X}}', '\\""${AMPERAGE_1}"'),
        ("\"'{{X}}'\"", "\"'${AMPERAGE_1}'\""),
    ],
)
def test_how_a_command_refers_to_values(command: str, expected: str) -> None:
    template = VariableTemplate(command)
    assert shell_command(template.parts, template.tail)[0] == expected


def test_a_zero_byte_fails_the_step() -> None:
    bench = Bench()
    bench.add(None, ("amps-action-do-execute-system", {"Command": "true {{X}}"}))
    bench.perform(X=b"a\0b")
    assert "zero byte" in str(bench.entries("29-0101")[0]["reason"])


def holds(condition: str, value: str) -> bool:
    template = ExpressionTemplate(
        condition, lambda text: compile_filter(parse(text, ContextKind.CONDITION))
    )
    return template.compile_expanded(ActionContext("i", 0.0, {"X": text_to_bytes(value)}, ""))(())


WORDS = st.text(alphabet="'\"\\rR= aOR1safe\n", max_size=16)


@given(st.sampled_from(["'{{X}}' = 'safe'", '"{{X}}" = "safe"', "{{X}} = 'safe'"]), WORDS)
def test_a_condition_compares_the_value_and_nothing_else(condition: str, value: str) -> None:
    assert holds(condition, value) == (value == "safe")


@given(WORDS)
def test_a_value_cannot_leave_a_raw_string(value: str) -> None:
    condition = "r'{{X}}' = 'safe'"
    if "'" in value:
        with pytest.raises(StepError, match="raw string"):
            holds(condition, value)
    else:
        assert holds(condition, value) == (value == "safe")


@pytest.mark.parametrize(
    ("condition", "value", "expected"),
    [
        ("{{X}} > 5", "6", True),
        ("{{X}} > 5", "-6.5", False),
        ("{{X}} = 5", "4 OR 1 = 1", False),
        ("'{{X}}' LIKE 'important'", "very important one", True),
        ("'{{X}}' LIKE 'important'", "' OR '' LIKE '", False),
        ('"{{X}}" == "unassign"', "unassign", True),
        ("'a{{X}}b' = 'ab'", "", True),
        ("OR'{{X}}' = 'x'", "x", None),
        ("{{X}}", "1 = 1", True),
        ("{{X}}", "1 = 2", False),
        ("({{X}})", "1 = 1", False),
    ],
)
def test_conditions(condition: str, value: str, expected: bool | None) -> None:
    if expected is None:
        with pytest.raises(StepError):
            holds(condition, value)
    else:
        assert holds(condition, value) is expected
