"""What the language accepts and refuses, asked of the schema itself.

The cases use canonical names: renaming synonyms is the validator's part.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config_schema.document import load
from config_schema.problems import Problems, Severity
from config_schema.schema import ROOT, ElementDoc, children, elements, load_schema
from config_schema.validate import validate
from tests.support.chances import examples

PROJECT = Path(__file__).parents[2]

CASES = [
    pytest.param(fragment, expected, id=title)
    for title, fragment, expected in re.findall(
        r"^## (.*)\n([^#]*?)^=> (\w+)$",
        (Path(__file__).parent / "schema_cases.txt").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
]

VALUES = {
    "interval": (
        ["10s", "500ms", "1.5h", "250us", "86400", "1D", "10 s", "3w"],
        ["", "ten", "-1s", "1y", "1h30m"],
    ),
    "size": (
        ["10MB", "2G", "4096", "0.5T", "64 kb", "10b"],
        ["", "big", "-1", "10MiB", "10M2"],
    ),
    "count": (["5000", "10k", "2M"], ["", "many", "-1", "10x"]),
    "percent": (["50%", "50", "12.5 %"], ["", "half", "%"]),
    "fileMask": (["0640", "640"], ["", "0980", "rw-r--r--"]),
    "inetAddr": (
        ["9007", "0.0.0.0:9007", "[::]:9007", "host.example.com:9007"],
        ["", "host", "host:", "a b:1"],
    ),
    "boolean": (
        ["true", "False", "ENABLED", "disabled", "yes", "no", "on", "off", "1", "0"],
        ["", "maybe", "2"],
    ),
    "expiration": (["30s", "Enabled", "disabled", "1d"], ["", "never"]),
    "functionArity": (["", "3"], ["three"]),
    "version": (["5.0", "5.3.4.0", "5"], ["", "new"]),
    "name": (["a", "with blanks"], [""]),
}
"""For each simple type, what it accepts and what it refuses."""


def violations(fragment: str) -> list[str]:
    """The tags of the elements that break a rule."""
    text = f"<{ROOT}><Name>test</Name>{fragment}</{ROOT}>"
    found = (error.elem for error in load_schema().iter_errors(text))
    return [elem.tag for elem in found if elem is not None]


@pytest.mark.parametrize(("fragment", "expected"), CASES)
def test_fragments(fragment: str, expected: str) -> None:
    if expected == "accepted":
        assert violations(fragment) == []
    else:
        assert expected in violations(fragment)


def test_all_fragments_are_read() -> None:
    text = (Path(__file__).parent / "schema_cases.txt").read_text(encoding="utf-8")
    assert len(CASES) == text.count("\n## ") > 0


def test_the_name_of_the_instance_is_required() -> None:
    assert [error.path for error in load_schema().iter_errors(f"<{ROOT}/>")] == [f"/{ROOT}"]


@pytest.mark.parametrize("type_name", VALUES)
def test_values(type_name: str) -> None:
    accepted, refused = VALUES[type_name]
    value_type = load_schema().types[type_name]
    assert [text for text in accepted if not value_type.is_valid(text)] == []
    assert [text for text in refused if value_type.is_valid(text)] == []


def test_every_choice_is_accepted_whatever_its_case() -> None:
    for doc in elements().values():
        for value in doc.values:
            for text in (value, value.upper(), value.title()):
                assert load_schema().types[doc.type_name].is_valid(text)


def value_of(doc: ElementDoc) -> st.SearchStrategy[str]:
    if doc.values:
        return st.sampled_from(doc.values)
    if doc.type_name in VALUES:
        return st.sampled_from(VALUES[doc.type_name][0])
    return st.sampled_from(["value", "/a/b", "^a.*$"])


@st.composite
def trees(draw: st.DrawFn, path: str = ROOT) -> Element:
    """Any configuration of the language: its elements in any order and as often as allowed."""
    doc = elements()[path]
    element = Element(doc.name)
    inside = list(draw(choices_of_children(path)))
    if doc.type_name and not inside:
        element.text = draw(value_of(doc))
    for child in inside:
        element.append(draw(trees(child.path)))
    if doc.others != "refused" and draw(st.booleans()):
        SubElement(element, "Unlisted").text = "1"
    return element


@st.composite
def choices_of_children(draw: st.DrawFn, path: str) -> Sequence[ElementDoc]:
    listed = list(children(path).values())
    chosen = [doc for doc in listed if doc.required]
    optional = [doc for doc in listed if doc.repeatable or not doc.required]
    if optional:
        extra = draw(st.lists(st.sampled_from(optional), max_size=4))
        once = {doc.path: doc for doc in extra if not doc.repeatable}
        chosen += [*once.values(), *(doc for doc in extra if doc.repeatable)]
    return draw(st.permutations(chosen))


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(trees())
def test_every_configuration_that_follows_the_documentation_is_accepted(tree: Element) -> None:
    assert [(error.path, error.reason) for error in load_schema().iter_errors(tree)] == []


def configurations() -> Iterator[Path]:
    """The configurations that come with the project, and those of a folder of one's own."""
    for folder in (PROJECT / "sample_configs", Path(os.environ.get("AMPS_CONFIGS", os.devnull))):
        yield from sorted(folder.glob("*.xml"))


DEFINES = {"REGION": "emea", "PORT": "9007"}
"""What the samples ask their user for."""


@pytest.mark.parametrize("path", list(configurations()), ids=lambda path: path.name)
def test_whole_files(path: Path) -> None:
    """Set AMPS_CONFIGS to a folder of configurations that are known to run to include them."""
    problems = Problems()
    document = load(str(path), defines=DEFINES, environ={}, problems=problems)
    assert document is not None
    validate(document, problems)
    assert [str(problem) for problem in problems if problem.severity is not Severity.INFO] == []
