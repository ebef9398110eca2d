"""ampServer --explain: an element's purpose, allowed values, and uses in a configuration."""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from config_schema.configuration_text import redact_value
from config_schema.document import ConfigNode
from config_schema.problems import Location, Severity
from config_schema.reference_page import examples, facts, occurrence, short
from config_schema.schema import ROOT, ElementDoc, children, elements
from config_schema.settings import (
    SettingsEntry,
    UnknownElementError,
    at_line,
    find_elements,
    nodes_at,
)
from server.app.check_report import print_problems, report
from server.app.configuration import read_configuration
from server.app.stdio import put, say

_LINE: Final = re.compile(r"(?:(.+):)?(\d+)")
_MAX_EXPLAINED: Final = 5
"""If more elements share a name, only those in the configuration are explained."""

_INDENT: Final = "    "
_WIDTH: Final = 100


@dataclass(frozen=True, slots=True)
class _ElementUse:
    """One occurrence of an element in the configuration.

    Attributes:
        entry: the title of the part that contains it.
        text: its value, or the default, with secrets redacted.
        location: its location; None for a default.
    """

    entry: str
    text: str
    location: Location | None


@dataclass(frozen=True, slots=True)
class _Explanation:
    """An element, with all paths that share its documentation, and its uses."""

    doc: ElementDoc
    paths: tuple[str, ...]
    uses: tuple[_ElementUse, ...]


@dataclass(frozen=True, slots=True)
class _ExplainedConfiguration:
    """The configuration: its tree, files, effective settings (if it can be used) and secrets."""

    root: ConfigNode
    files: Sequence[str]
    settings: SettingsEntry | None
    secrets: frozenset[str]


def explain_elements(
    path: str, names: Sequence[str], defines: Mapping[str, str], *, as_json: bool
) -> int:
    """Print the documentation of elements and their uses in a configuration.

    Args:
        path: the configuration.
        names: names or paths of elements; or lines, as `12` or `part.xml:12`.
        defines: variables given on the command line.
        as_json: print a JSON object.

    Returns:
        The exit code: 1 if the configuration cannot be read, or a name matches no element.

    Raises:
        OutputError: the output cannot be written.
    """
    read = read_configuration(path, defines)
    if read.root is None or read.root.tag != ROOT:
        return report(path, read.problems)
    if read.spec is None:
        print_problems(read.problems, Severity.ERROR)
        say(f"{path} cannot be used: its elements are shown as written, without their effects")
    files = read.document.files if read.document else (path,)
    subject = _ExplainedConfiguration(read.root, files, read.settings, read.secrets)
    explanations: list[_Explanation] = []
    code = 0
    for name in names:
        try:
            explanations += _explanations(name, subject)
        except UnknownElementError as error:
            say(f"ampServer: {error}")
            code = 1
    if as_json:
        put(f"{_as_json(path, explanations)}\n")
    elif explanations:
        put("".join(f"{line}\n" for line in _as_text(explanations)))
    return code


def _explanations(name: str, subject: _ExplainedConfiguration) -> list[_Explanation]:
    line = _LINE.fullmatch(name)
    if line is None:
        return _explain_elements(find_elements(name), subject)
    number = int(line[2])
    path, node = at_line(subject.root, subject.files, line[1] or "", number)
    if number > (count := _lines(node.location.file)):
        lines = "1 line" if count == 1 else f"{count} lines"
        raise UnknownElementError(f"{node.location.file} has {lines}, and no line {number}")
    doc = elements().get(path)
    if doc is None:
        raise UnknownElementError(
            f"{node.location}: {node.written_tag} is up to the module whose option it is"
        )
    uses = [use for use in _uses(path, subject) if use.location == node.location]
    return [_Explanation(doc, (path,), tuple(uses))]


def _lines(file: str) -> float:
    """Return the number of lines of a file; infinity if it can no longer be read."""
    try:
        content = Path(file).read_bytes() if Path(file).is_file() else None
    except OSError:
        content = None
    return math.inf if content is None else len(content.splitlines())


def _explain_elements(
    docs: Sequence[ElementDoc], subject: _ExplainedConfiguration
) -> list[_Explanation]:
    """Explain elements; those that differ only in path, such as queues of all kinds, once."""
    alike: dict[ElementDoc, list[str]] = {}
    for doc in docs:
        alike.setdefault(replace(doc, path=doc.name), []).append(doc.path)
    explanations = [
        _Explanation(
            elements()[paths[0]],
            tuple(paths),
            tuple(use for path in paths for use in _uses(path, subject)),
        )
        for paths in alike.values()
    ]
    written = [
        explanation for explanation in explanations if any(use.location for use in explanation.uses)
    ]
    if len(explanations) <= _MAX_EXPLAINED or not written:
        return explanations
    others = [
        path
        for explanation in explanations
        if explanation not in written
        for path in explanation.paths
    ]
    if others:
        say(f"not there, and not explained: {', '.join(map(short, others))}")
    return written


def _uses(path: str, subject: _ExplainedConfiguration) -> list[_ElementUse]:
    """Return the uses of an element in each part of the configuration that may contain it."""
    uses = list(_in_entries(path, subject.settings, "")) if subject.settings else []
    if not uses:
        nodes = nodes_at(subject.root, path)
        uses = [_ElementUse("", node.text, node.location) for node in nodes]
    name = path.rpartition("/")[2]
    return [replace(use, text=redact_value(name, use.text, subject.secrets)) for use in uses]


def _in_entries(path: str, entry: SettingsEntry, around: str) -> Iterator[_ElementUse]:
    title = ", ".join(filter(None, (around, entry.name)))
    if entry.path == path:
        yield _ElementUse(title, "", entry.location)
    for setting in entry.settings.values():
        if setting.path == path and not setting.items:
            yield _ElementUse(title, setting.text, None)
        elif setting.path == path:
            yield from (_ElementUse(title, item.text, item.location) for item in setting.items)
    for inner in entry.entries:
        yield from _in_entries(path, inner, title)


# Text output


def _as_text(explanations: Sequence[_Explanation]) -> Iterator[str]:
    for position, explanation in enumerate(explanations):
        if position:
            yield ""
        yield ", ".join(map(short, explanation.paths))
        yield _wrapped(f"{explanation.doc.documentation} ({occurrence(explanation.doc)})")
        for label, text in facts(explanation.doc):
            yield _wrapped(f"{label}: {text}")
        inside = children(explanation.doc.path)
        if inside:
            yield _wrapped(f"Contains: {', '.join(inside)}")
        for example in examples(explanation.doc):
            yield f"{_INDENT}Example: {example.splitlines()[0]}"
            yield from (f"{_INDENT}  {line}" for line in example.splitlines()[1:])
        yield ""
        yield from _uses_as_text(explanation)


def _uses_as_text(explanation: _Explanation) -> Iterator[str]:
    if not explanation.uses:
        yield f"{_INDENT}It is not in the configuration."
    rows = [(use.entry, _text(use), str(use.location or "")) for use in explanation.uses]
    widths = [max(len(row[column]) for row in rows) for column in range(2)] if rows else [0, 0]
    for entry, text, location in rows:
        columns = [entry.ljust(widths[0]), text.ljust(widths[1]), location]
        yield f"{_INDENT}{'  '.join(filter(str.strip, columns))}".rstrip()


def _text(use: _ElementUse) -> str:
    text = " ".join(use.text.split())
    return text if use.location else f"{text} (default)"


def _wrapped(text: str) -> str:
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


# JSON output


def _as_json(path: str, explanations: Sequence[_Explanation]) -> str:
    content = {"file": path, "elements": [_element(explanation) for explanation in explanations]}
    return json.dumps(content, indent=2, ensure_ascii=False)


def _element(explanation: _Explanation) -> dict[str, Any]:
    doc = explanation.doc
    return {
        "paths": [f"/{path}" for path in explanation.paths],
        "documentation": doc.documentation,
        "required": doc.required,
        "repeatable": doc.repeatable,
        "type": doc.type_name,
        "expected": doc.expected,
        "values": doc.values,
        "default": doc.default,
        "synonyms": doc.synonyms,
        "no_effect": doc.effect,
        "modules": doc.modules,
        "examples": list(examples(doc)),
        "since": doc.since,
        "here": [_use(use) for use in explanation.uses],
    }


def _use(use: _ElementUse) -> dict[str, Any]:
    return {
        "entry": use.entry,
        "value": use.text,
        "default": use.location is None,
        "file": use.location.file if use.location else None,
        "line": use.location.line if use.location else None,
    }
