"""The configuration reference, as Markdown and as a manual page, out of the schema's annotations.

    python -m config_schema.reference_page docs/configuration.md man/amps-config.5

Both are written from the same chapters, so that they have the same content. The output depends on
the schema alone: running it twice gives the same bytes, and a test compares the committed files.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from config_schema.schema import ROOT, ElementDoc, children, elements, sections

_TITLE: Final = "Configuration reference"
_INTRODUCTION: Final = (
    "Every element of a configuration, generated from `config_schema/amps_config.xsd`. "
    "Elements are named by their path below `AMPSConfig`."
)
_WORTH_SHARING: Final = 3
"""From this many elements on, a repeated part is described once and referred to."""


@dataclass(frozen=True, slots=True)
class ReferenceEntry:
    """One element of a chapter.

    Attributes:
        doc: the schema's documentation of it.
        same_as: the path of an element described earlier that contains exactly the same elements;
            None where the elements inside have entries of their own.
    """

    doc: ElementDoc
    same_as: str | None

    @property
    def title(self) -> str:
        """The path without the root."""
        return short(self.doc.path)


@dataclass(frozen=True, slots=True)
class Chapter:
    """A section of the configuration: its own element, and those described under it."""

    head: ReferenceEntry
    entries: tuple[ReferenceEntry, ...]


@cache
def chapters() -> tuple[Chapter, ...]:
    """Return the whole reference: first the elements of the instance, then its sections."""
    top = children(ROOT).values()
    plain = tuple(ReferenceEntry(doc, None) for doc in top if not children(doc.path))
    described: dict[tuple[ElementDoc, ...], str] = {}
    parts = [tuple(_entries(doc, described)) for doc in top if children(doc.path)]
    return (
        Chapter(ReferenceEntry(elements()[ROOT], None), plain),
        *(Chapter(part[0], part[1:]) for part in parts),
    )


def short(path: str) -> str:
    """Return the path as the reference names it: without the root, except for the root itself."""
    return path.removeprefix(f"{ROOT}/")


def _entries(
    doc: ElementDoc, described: dict[tuple[ElementDoc, ...], str]
) -> Iterator[ReferenceEntry]:
    """Return the element and those inside it; `described` collects the parts listed so far."""
    inside = nested_elements(doc)
    known = described.get(inside) if len(inside) >= _WORTH_SHARING else None
    yield ReferenceEntry(doc, known)
    if known is None:
        described.setdefault(inside, doc.path)
        for child in children(doc.path).values():
            yield from _entries(child, described)


def nested_elements(doc: ElementDoc) -> tuple[ElementDoc, ...]:
    """Return the elements below an element, with relative paths so that equal parts are equal."""
    return tuple(
        replace(other, path=path.removeprefix(doc.path))
        for path, other in elements().items()
        if path.startswith(f"{doc.path}/")
    )


def occurrence(doc: ElementDoc) -> str:
    """Return how often an element may occur."""
    if doc.required:
        return "required, one or more" if doc.repeatable else "required"
    return "any number" if doc.repeatable else "optional"


def facts(doc: ElementDoc) -> Iterator[tuple[str, str]]:
    """Return the properties of an element besides its description: label and text (Markdown)."""
    if doc.expected:
        yield "Value", doc.expected
    if doc.default is not None:
        yield "Default", f"`{doc.default}`" if _is_literal(doc) else doc.default
    if doc.synonyms:
        yield "Also written", ", ".join(f"`{synonym}`" for synonym in doc.synonyms)
    if doc.effect:
        yield "No effect", doc.effect
    if doc.since:
        yield "Since", f"AMPS {doc.since}"
    if doc.modules:
        yield "Modules", ", ".join(f"`{module}`" for module in doc.modules)
    if doc.others == "any":
        yield "Other elements", "the options of whatever module is used"
    if doc.others == "tolerated":
        yield "Other elements", "accepted with a warning, unless their names are nearly those above"


def _is_literal(doc: ElementDoc) -> bool:
    """Return true if the default is written as it would be in a file, rather than explained."""
    return doc.default is not None and re.fullmatch(r"[^\s;]+", doc.default) is not None


def examples(doc: ElementDoc) -> Iterator[str]:
    """Return the examples of an element, as written in a configuration."""
    for example in doc.examples:
        if example.startswith("<"):
            yield example
        else:
            yield f"<{doc.name}>{escape(example)}</{doc.name}>"


# Markdown


def markdown() -> str:
    """Return the reference page."""
    lines = [f"# {_TITLE}", "", _INTRODUCTION, "", *_contents(), ""]
    for section in sections():
        lines += [f"## {section.title}", "", section.text, ""]
    for chapter in chapters():
        lines += _markdown_entry(chapter.head, "##")
        for entry in chapter.entries:
            lines += _markdown_entry(entry, "###")
    lines += ["## Index", "", *_index()]
    return "\n".join(lines) + "\n"


def anchor(title: str) -> str:
    """Return the link target of a heading: lower case, letters and digits only."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _link(title: str) -> str:
    return f"[{title}](#{anchor(title)})"


def _contents() -> Iterator[str]:
    titles = [section.title for section in sections()]
    titles += [chapter.head.title for chapter in chapters()]
    yield from (f"- {_link(title)}" for title in (*titles, "Index"))


def _markdown_entry(entry: ReferenceEntry, mark: str) -> Iterator[str]:
    yield from (f"{mark} {entry.title}", "")
    yield from (f"*{occurrence(entry.doc)}.* {entry.doc.documentation}", "")
    lines = [f"- {label}: {text}" for label, text in facts(entry.doc)]
    if entry.same_as:
        lines.append(f"- Contains: the same as {_link(short(entry.same_as))}")
    if lines:
        yield from (*lines, "")
    for example in examples(entry.doc):
        yield from ("```xml", example, "```", "")


def _index() -> Iterator[str]:
    """Return every name, with the places that describe it."""
    places: dict[str, list[str]] = {}
    for chapter in chapters():
        for entry in (chapter.head, *chapter.entries):
            for name in (entry.doc.name, *entry.doc.synonyms):
                places.setdefault(name, []).append(entry.title)
    for name in sorted(places, key=lambda name: (name.lower(), name)):
        yield f"- `{name}`: {', '.join(_link(title) for title in places[name])}"


# Manual page


def manual() -> str:
    """Return the manual page amps-config(5), in the man macros of troff."""
    lines = ['.TH AMPS-CONFIG 5 "" Amperage "File Formats"']
    lines.append(".ad l")  # long paths leave too few words in a line to stretch it to the margin
    lines += [".SH NAME", r"amps-config \- the configuration of an Amperage instance"]
    lines += [".SH DESCRIPTION", _inline(_INTRODUCTION)]
    for section in sections():
        lines += [f'.SH "{_inline(section.title).upper()}"', *_prose(section.text)]
    for chapter in chapters():
        lines.append(f'.SH "{_literal(chapter.head.title)}"')
        for entry in (chapter.head, *chapter.entries):
            lines += _manual_entry(entry)
    lines += [".SH SEE ALSO", r"\fBampServer\fR(1), docs/configuration.md"]
    return "\n".join(lines) + "\n"


def _manual_entry(entry: ReferenceEntry) -> Iterator[str]:
    yield ".TP"
    yield rf"\fB{_literal(entry.title)}\fR ({occurrence(entry.doc)})"
    yield _inline(entry.doc.documentation)
    for label, text in facts(entry.doc):
        yield ".br"
        yield f"{label}: {_inline(text)}"
    if entry.same_as:
        yield ".br"
        yield rf"Contains: the same as \fB{_literal(short(entry.same_as))}\fR"
    for example in examples(entry.doc):
        yield from (".sp", ".nf", *map(_literal, example.splitlines()), ".fi")


def _prose(text: str) -> Iterator[str]:
    """Convert the Markdown of the schema's prose: paragraphs, lists and indented code."""
    for block in text.split("\n\n"):
        lines = block.splitlines()
        if block.startswith("    "):
            code = (_literal(line.removeprefix("    ")) for line in lines)
            yield from (".PP", ".RS 4", ".nf", *code, ".fi", ".RE")
        elif block.startswith("- "):
            for line in lines:
                yield from (r".IP \(bu 2", _inline(line.removeprefix("- ")))
        else:
            yield from (".PP", _inline(" ".join(lines)))


def _inline(text: str) -> str:
    """Convert backticks to bold and asterisks to italic; keep everything else verbatim."""
    parts = re.split(r"(`[^`]*`|\*[A-Za-z][^*`]*\*)", text)
    return _guarded("".join(_span(part) for part in parts))


def _span(part: str) -> str:
    if part.startswith("`"):
        return rf"\fB{_escaped(part.strip('`'))}\fR"
    if re.fullmatch(r"\*[A-Za-z][^*`]*\*", part):
        return rf"\fI{_escaped(part.strip('*'))}\fR"
    return _escaped(part)


def _literal(text: str) -> str:
    return _guarded(_escaped(text))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\e").replace("-", r"\-")


def _guarded(line: str) -> str:
    """Escape a line that begins with a dot or a quote: troff would take it for a request."""
    return rf"\&{line}" if line.startswith((".", "'")) else line


def main(arguments: Sequence[str]) -> int:
    """Write the two files.

    Args:
        arguments: the path of the Markdown page and the path of the manual page.

    Returns:
        The exit status.
    """
    match arguments:
        case [page, manual_page]:
            Path(page).write_text(markdown(), encoding="utf-8")
            Path(manual_page).write_text(manual(), encoding="utf-8")
            return 0
        case _:
            sys.stderr.write("usage: python -m config_schema.reference_page MARKDOWN MANUAL\n")
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
