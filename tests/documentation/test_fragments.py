"""XML on the pages is configuration that the server takes, in the place where it belongs.

A fragment is put into `services.xml`, below the elements that its own belong in, and the whole
is checked as `ampServer --verify-config` does. What is wrong within the fragment's lines fails;
what its surroundings lack does not: a fragment shows a part of a topic, not all that a topic needs.

The place of an element is the nearest to the root that the schema accepts it in. In the reference
page it is that of the heading.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element, fromstring, tostring

import pytest
from _pytest.mark.structures import ParameterSet
from xmlschema.validators import XsdElement

from config_schema.compile import compile_config
from config_schema.document import load
from config_schema.problems import Problems, Severity
from config_schema.schema import ROOT as ROOT_ELEMENT
from config_schema.schema import elements, load_schema
from config_schema.validate import validate
from server.app.wiring.catalogue import ProgramCatalogue
from server.app.wiring.provision import check_provisions
from tests.documentation.fences import ROOT, Fence, fences, python_files

HERE: Final = Path(__file__).parent
FILES: Final = HERE / "files" / "all"
REFERENCE: Final = "docs/configuration.md"
VARIABLES: Final = {"AMPS_CLIENT_SECRET": "secret"}

_HEADING: Final = re.compile(r"^#{2,4} (\w+(?:/\w+)*)$", re.MULTILINE)


@dataclass
class Written:
    """A configuration as text, which knows the lines of the fragment in it."""

    lines: list[str] = field(default_factory=list)
    of_the_fragment: set[int] = field(default_factory=set)

    def write(self, element: Element, ours: frozenset[Element], inside: bool = False) -> None:
        """Write an element, each tag on a line of its own."""
        inside = inside or element in ours
        opened = Element(element.tag, element.attrib)
        opened.text = element.text if len(element) == 0 else ""
        text = tostring(opened, encoding="unicode", short_empty_elements=False)
        if len(element) == 0:
            self._add(text, inside)
            return
        head, _, tail = text.rpartition("</")
        self._add(head, inside)
        for child in element:
            self.write(child, ours, inside)
        self._add(f"</{tail}", inside)

    def _add(self, text: str, inside: bool) -> None:
        for line in text.split("\n"):
            self.lines.append(line)
            if inside:
                self.of_the_fragment.add(len(self.lines))


def marked(fence: Fence) -> ParameterSet:
    """Definitions of protobuf are compiled by a program."""
    marks = [pytest.mark.process] if "ProtoFile>" in fence.text else []
    return pytest.param(fence, marks=marks, id=str(fence))


@pytest.mark.parametrize("fence", [marked(fence) for fence in fences("xml")])
def test_the_server_takes_it(fence: Fence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    for name, code in python_files(fence.page).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
    monkeypatch.chdir(tmp_path)
    written = configuration(fence)
    Path("config.xml").write_text("\n".join(written.lines))
    problems = Problems()
    document = load("config.xml", defines={}, environ=VARIABLES, problems=problems)
    assert document is not None
    spec = compile_config(validate(document, problems), ProgramCatalogue(), problems)
    if spec is not None:
        check_provisions(spec, problems)
    wrong = [
        str(problem)
        for problem in problems
        if problem.severity is Severity.ERROR and problem.location.line in written.of_the_fragment
    ]
    assert wrong == []


def configuration(fence: Fence) -> Written:
    """The surroundings with a fragment in its place."""
    root = fromstring((HERE / "surroundings.xml").read_text())
    fragment = fromstring(f"<fragment>{fence.text}</fragment>")
    for element in fragment:
        path = heading(fence) if fence.page == REFERENCE else place(element)
        if path == ROOT_ELEMENT:
            root = element
        else:
            put(root, path.split("/")[1:-1], element, repeatable=elements()[path].repeatable)
    written = Written()
    written.write(root, frozenset(fragment))
    return written


def heading(fence: Fence) -> str:
    """The element that the reference describes where a fence stands."""
    above = (ROOT / fence.page).read_text().split("\n")[: fence.line]
    title = _HEADING.findall("\n".join(above))[-1]
    return title if title == ROOT_ELEMENT else f"{ROOT_ELEMENT}/{title}"


def place(element: Element) -> str:
    """Where an element belongs: the place nearest to the root that the schema accepts it in."""
    refusals = {path: list(_refusals(path, element)) for path in _places(element.tag)}
    assert refusals, f"no configuration has an element {element.tag}"
    fit = [path for path, refused in refusals.items() if not refused]
    assert fit, refusals
    return min(fit, key=lambda path: path.count("/"))


def _places(tag: str) -> Iterator[str]:
    return (path for path, doc in elements().items() if tag in (doc.name, *doc.synonyms))


def _refusals(path: str, element: Element) -> Iterator[str | None]:
    declaration = load_schema().find(path)
    assert isinstance(declaration, XsdElement)
    return (error.reason for error in declaration.iter_errors(element))


def put(root: Element, parents: list[str], element: Element, *, repeatable: bool) -> None:
    """Put an element below others, which are made where they are missing.

    It takes the place of one that it could not stand beside.
    """
    parent = root
    for tag in parents:
        found = parent.find(tag)
        if found is None:
            found = Element(tag)
            parent.append(found)
        parent = found
    name = element.findtext("Name")
    for there in parent.findall(element.tag):
        if not repeatable or (name is not None and there.findtext("Name") == name):
            parent.remove(there)
    parent.append(element)
