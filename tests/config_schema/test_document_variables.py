"""${VARIABLE} in texts and attributes."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from config_schema.document import ConfigDocument, load
from config_schema.problems import Problems
from config_schema.version import AMPS_VERSION

DEFINES = {"PORT": "9007", "BOTH": "defined", "MARKUP": '</Name><X a="\'"/>&amp;]]>--', "EMPTY": ""}
ENVIRON = {
    "HOME": "/home/amps",
    "BOTH": "environment",
    "AGAIN": "${PORT}",
    "BRACED": "{PORT}",
    "CONTROL": "\x01",
    "UNDECODABLE": "\udcff",
    "LONG": "x" * 100_000,
    "with.dot-and space": "odd",
}


def expand(
    path: Path, text: str, environ: Mapping[str, str] = ENVIRON
) -> tuple[ConfigDocument | None, list[str]]:
    path.write_text(text)
    problems = Problems()
    document = load(str(path), defines=DEFINES, environ=environ, problems=problems)
    return document, [str(problem).replace(f"{path.parent}/", "") for problem in problems]


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("${PORT}", "9007"),
        ("host:${PORT}/${HOME}", "host:9007//home/amps"),
        ("${BOTH}", "defined"),
        ("[${EMPTY}]", "[]"),
        ("${AMPS_VERSION}", AMPS_VERSION),
        ("${with.dot-and space}", "odd"),
        ("${MARKUP}", DEFINES["MARKUP"]),
        ("<![CDATA[${MARKUP}]]>", DEFINES["MARKUP"]),
        ("$PORT {PORT} $ {PORT} {{PORT}} ${PORT", "$PORT {PORT} $ {PORT} {{PORT}} ${PORT"),
    ],
)
def test_expansion(tmp_path: Path, written: str, text: str) -> None:
    document, problems = expand(
        tmp_path / "amps.xml", f"<A>{written}<!-- ${{NOT_A_VARIABLE}} --></A>"
    )
    assert problems == []
    assert document is not None
    assert document.root.text == text
    assert document.root.children == ()
    again, _ = expand(tmp_path / "expanded.xml", document.expanded_text)
    assert again is not None
    assert again.root.text == text


def test_expansion_in_attributes_and_between_elements(tmp_path: Path) -> None:
    document, problems = expand(tmp_path / "amps.xml", '<A a="${MARKUP}"><B/>${PORT}</A>')
    assert problems == []
    assert document is not None
    assert document.root.attributes == {"a": DEFINES["MARKUP"]}
    assert document.root.text == "9007"


def test_where_the_configuration_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "b.xml").write_text("<B>${AMPS_CONFIG_DIRECTORY} ${AMPS_CONFIG_PATH}</B>")
    monkeypatch.chdir(tmp_path)
    document, _ = expand(Path("amps.xml"), "<A><Include>inc/b.xml</Include></A>")
    assert document is not None
    assert document.root.value("B") == f"{tmp_path} {tmp_path}/amps.xml"
    assert document.root.location.file == "amps.xml"


def test_the_name_of_an_included_file_may_hold_a_variable(tmp_path: Path) -> None:
    (tmp_path / "9007.xml").write_text("<B/>")
    document, problems = expand(tmp_path / "amps.xml", "<A><Include>${PORT}.xml</Include></A>")
    assert problems == []
    assert document is not None
    assert [child.tag for child in document.root.children] == ["B"]


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (
            "<B>${NONE}</B>",
            "A/B: variable 'NONE' is not defined; set it in the environment or start with",
        ),
        ("<B c='${NONE}'/>", "B/@c: variable 'NONE' is not defined"),
        ("<B>${}</B>", "A/B: variable '' is not defined"),
        ("<B/>${NONE}", "A: variable 'NONE' is not defined"),
        ("<B>${AGAIN}</B>", "A/B: '${AGAIN}' still holds a ${VARIABLE} after its variables were"),
        ("<B>$${BRACED}</B>", "A/B: '$${BRACED}' still holds a ${VARIABLE}"),
        ("<B>${CONTROL}</B>", "A/B: the value of variable 'CONTROL' holds a character that XML"),
        ("<B>${UNDECODABLE}</B>", "A/B: the value of variable 'UNDECODABLE' holds a character"),
        (f"<B>{'${LONG}' * 20}</B>", "A/B: the variables in '${LONG}${LONG}"),
    ],
)
def test_what_cannot_be_expanded(tmp_path: Path, written: str, problem: str) -> None:
    document, problems = expand(tmp_path / "amps.xml", f"<A>\n{written}</A>")
    assert document is not None
    assert not document.is_complete
    assert any(node.is_incomplete for node in (document.root, *document.root.children))
    assert len(problems) == 1
    line, _, message = problems[0].partition(": error: ")
    assert line in ("amps.xml:1", "amps.xml:2")
    assert message.startswith(problem)


def test_every_undefined_variable_is_reported_in_one_run(tmp_path: Path) -> None:
    _, problems = expand(tmp_path / "amps.xml", "<A>\n<B>${X}</B>\n<B>${Y}</B>\n<B>${Z}</B></A>")
    assert [problem.split(": ")[0] for problem in problems] == [f"amps.xml:{n}" for n in (2, 3, 4)]


def test_variables_count_towards_the_size_of_the_configuration(tmp_path: Path) -> None:
    document, problems = expand(tmp_path / "amps.xml", f"<A>{'<B>${LONG}</B>' * 60}</A>")
    assert document is None
    assert len(problems) == 1
    assert "the configuration is larger than 5,242,880 bytes here" in problems[0]


def test_a_value_may_be_in_a_file_and_is_secret_then(tmp_path: Path) -> None:
    (tmp_path / "pin.txt").write_text("opensesame\n")
    (tmp_path / "PIN").write_text("a credential")
    (tmp_path / "KEYED").write_text("keyed credential")
    environ = {
        "PIN_FILE": str(tmp_path / "pin.txt"),
        "SET": "by itself",
        "SET_FILE": str(tmp_path / "missing"),
        "CREDENTIALS_DIRECTORY": str(tmp_path),
    }
    path = tmp_path / "amps.xml"
    path.write_text("<A><B>${PIN}</B><C>${KEYED}</C><D>${SET}</D></A>")
    problems = Problems()
    document = load(str(path), defines={}, environ=environ, problems=problems)
    assert document is not None
    assert [child.text for child in document.root.children] == [
        "opensesame",
        "keyed credential",
        "by itself",
    ]
    assert document.secrets == {"opensesame", "keyed credential"}
    assert not list(problems)


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (None, "No such file or directory"),
        (b"\xff", "expected UTF-8"),
        (b"x" * 65_537, "longer than 65536 bytes"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, content: bytes | None, cause: str
) -> None:
    secret = tmp_path / "pin.txt"
    if content is not None:
        secret.write_bytes(content)
    path = tmp_path / "amps.xml"
    path.write_text("<A>${PIN}</A>")
    problems = Problems()
    load(str(path), defines={}, environ={"PIN_FILE": str(secret)}, problems=problems)
    assert f"variable 'PIN': {secret}: {cause}" in str(next(iter(problems)))


def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    secret = tmp_path / "pin"
    os.mkfifo(secret)
    _, problems = expand(tmp_path / "amps.xml", "<A>${PIN}</A>", environ={"PIN_FILE": str(secret)})
    assert "variable 'PIN': pin: it is no regular file" in problems[0]


def test_a_credential_that_cannot_be_looked_for_is_named(tmp_path: Path) -> None:
    name = "x" * 300  # longer than names of files
    _, problems = expand(
        tmp_path / "amps.xml", f"<A>${{{name}}}</A>", {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    )
    assert f"{name}: File name too long" in problems[0]


def test_names_of_variables_are_no_paths(tmp_path: Path) -> None:
    path = tmp_path / "amps.xml"
    path.write_text("<A>${../amps.xml}</A>")
    (tmp_path / "credentials").mkdir()
    problems = Problems()
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path / "credentials")}
    load(str(path), defines={}, environ=environ, problems=problems)
    assert "variable '../amps.xml' is not defined" in str(next(iter(problems)))
