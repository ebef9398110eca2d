"""Golden configurations: what a check prints for them, word by word.

A golden file begins with a sentence that says what it proves. Then come the files of the
configuration, each under a line `=== name`, config.xml first, and under `=== expected` the lines
that the check prints. In the files, `@repeat 3 <a>@` stands for three times <a>, and `@byte 00@`
for that byte. After a change of words: pytest --update-golden, then read the difference.
"""

import re
from pathlib import Path

import pytest

from config_schema.compile import compile_config
from config_schema.document import load
from config_schema.problems import Problems
from config_schema.validate import validate
from tests.config_schema.program import Program

GOLDEN = Path(__file__).parent / "golden"
EXPECTED = "=== expected\n"
REPEAT = re.compile(r"@repeat (\d+) ([^@]*)@")
BYTE = re.compile(rb"@byte ([0-9A-F]{2})@")


def check(path: str) -> str:
    """Run every stage over a configuration and return the lines that it prints."""
    problems = Problems()
    document = load(path, defines={}, environ={}, problems=problems)
    if document is not None:
        spec = compile_config(validate(document, problems), Program(), problems)
        assert (spec is None) == problems.has_errors
    return "".join(f"{problem}\n" for problem in problems)


def write_files(text: str, directory: Path) -> None:
    for part in re.split(r"^=== ", text, flags=re.MULTILINE)[1:]:
        name, _, content = part.partition("\n")
        content = REPEAT.sub(lambda match: match[2] * int(match[1]), content)
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        octets = content.removesuffix("\n").encode()
        path.write_bytes(BYTE.sub(lambda match: bytes.fromhex(match[1].decode()), octets))


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.txt")))
def test_check_prints(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    golden = GOLDEN / f"{name}.txt"
    files, marker, expected = golden.read_text(encoding="utf-8").partition(EXPECTED)
    assert marker, f"{golden} has no expected lines"
    write_files(files, tmp_path)
    monkeypatch.chdir(tmp_path)
    printed = check("config.xml")
    if request.config.getoption("--update-golden"):
        golden.write_text(files + EXPECTED + printed, encoding="utf-8")
    else:
        assert printed == expected
