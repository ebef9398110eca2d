"""Reads and verifies the configuration, and redacts its secrets."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping, Sized
from dataclasses import dataclass, replace
from typing import Final

from lxml import etree

from config_schema.compile import compile_config
from config_schema.configuration_text import redact_document
from config_schema.document import ConfigDocument, ConfigNode, load
from config_schema.problems import Location, Problem, Problems, Severity
from config_schema.redaction import HIDDEN
from config_schema.spec import InstanceSpec
from config_schema.validate import validate
from server.app.wiring.catalogue import ProgramCatalogue
from server.app.wiring.start_check import check_start
from server.cli.doctor.findings import Examination
from server.cli.doctor.redaction import SecretRedactor

AREA: Final = "configuration"
_MAX_SHOWN: Final = 3
_UNKNOWN: Final = ("unknown element", "is not an option")
"""Texts of errors about an unknown element, which may be `Password` mistyped."""


@dataclass(slots=True)
class DoctorConfiguration:
    """A configuration, as far as it could be read.

    Attributes:
        path: absolute path of the file.
        document: the parsed XML; None if it is no XML.
        spec: the instance that it describes; None if it cannot be used.
        partial_spec: the instance without the parts in error; None if nothing is left then.
        problems: errors and warnings.
    """

    path: str
    document: ConfigDocument | None
    spec: InstanceSpec | None
    partial_spec: InstanceSpec | None
    problems: Problems

    @property
    def redacted_text(self) -> str | None:
        """The text as the admin interface shows it; None if it has not been read."""
        return None if self.document is None else redact_document(self.document)


def read(path: str, defines: Mapping[str, str], secrets: SecretRedactor) -> DoctorConfiguration:
    """Read a configuration, and add its secrets to `secrets`.

    Relative paths in it are not looked at.

    Args:
        path: path of the file.
        defines: variables for it.
        secrets: collects its secrets.
    """
    path = os.path.abspath(path)
    problems = Problems()
    document = load(path, defines=defines, environ=os.environ, problems=problems)
    spec = understood = None
    if document is not None:
        secrets.add_configuration(document.expanded_text)
        secrets.add(document.secrets)
        root = validate(document, problems)
        if document.is_complete:
            spec = compile_config(root, ProgramCatalogue(), problems)
        understood = spec or _understood(root)
    return DoctorConfiguration(path, document, spec, understood, problems)


def _understood(root: ConfigNode) -> InstanceSpec | None:
    """Return the instance that a configuration describes without the parts in error.

    The result is good for finding files and addresses, and for nothing else.
    """
    while True:
        problems = Problems()
        spec = compile_config(root, ProgramCatalogue(), problems)
        if spec is not None:
            return spec
        wrong = {problem.location for problem in problems if problem.severity is Severity.ERROR}
        understood = replace(root, children=tuple(_valid_sections(root, wrong)))
        if understood == root:
            return None
        root = understood


def _valid_sections(root: ConfigNode, wrong: Container[Location]) -> Iterator[ConfigNode]:
    """Yield the sections of a configuration, without the parts that contain an error."""
    for section in root.children:
        children = tuple(part for part in section.children if not _contains_location(part, wrong))
        if len(children) < len(section.children) or section.location not in wrong:
            yield replace(section, children=children)


def _contains_location(node: ConfigNode, locations: Container[Location]) -> bool:
    return node.location in locations or any(
        _contains_location(child, locations) for child in node.children
    )


def examine(configuration: DoctorConfiguration, examination: Examination) -> None:
    """Verify a configuration; the working directory must be the base of its relative paths."""
    problems, document, spec = configuration.problems, configuration.document, configuration.spec
    if document is not None and spec is not None:
        check_start(spec, validate(document, Problems()), problems)
    lines = [f"{problem}" for problem in problems]
    examination.texts["configuration/verification.txt"] = "\n".join([*lines, ""])
    errors = [one for one in problems if one.severity is Severity.ERROR]
    warnings = [one for one in problems if one.severity is Severity.WARNING]
    value = f"{configuration.path}: {counted(errors, 'error')}, {counted(warnings, 'warning')}"
    advice = f"ampServer --verify-config {configuration.path} shows all of them"
    if errors:
        examination.add_wrong(AREA, "verification", value, _first(errors), advice)
    elif warnings:
        examination.add_attention(AREA, "verification", value, _first(warnings), advice)
    else:
        examination.add_ok(AREA, "verification", value)
    if document is None:
        return
    examination.texts["configuration/config.xml"] = _text(document, errors)
    examination.facts[AREA] = {
        "file": configuration.path,
        "files": list(document.files),
        "usable": spec is not None,
        "instance": configuration.partial_spec and configuration.partial_spec.name,
        "problems": lines,
    }


def counted(items: Sized, noun: str) -> str:
    """Return the number of things with the noun, in the plural unless it is 1."""
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"


def _first(problems: list[Problem]) -> str:
    shown = "; ".join(f"{problem}" for problem in problems[:_MAX_SHOWN])
    omitted = len(problems) - _MAX_SHOWN
    return shown if omitted <= 0 else f"{shown}; and {omitted} more"


def _text(document: ConfigDocument, errors: list[Problem]) -> str:
    """Return the configuration; redact the content of unknown elements, which may be secret."""
    unknown = {
        problem.element
        for problem in errors
        if any(phrase in problem.message for phrase in _UNKNOWN)
    }
    if not unknown:
        return document.expanded_text
    root = etree.fromstring(document.expanded_text.encode())
    for element in root.iter("{*}*"):
        parent = element.getparent()
        if parent is not None and _label(parent, element) in unknown:
            for inside in element.iter("{*}*"):
                inside.text = HIDDEN if (inside.text or "").strip() else inside.text
    return etree.tostring(root, encoding="unicode")


def _label(parent: etree._Element, element: etree._Element) -> str:
    return f"{etree.QName(parent).localname}/{etree.QName(element).localname}"
