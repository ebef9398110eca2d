"""Sphinx extension: manual pages, written with the man macros of troff, are pages of the site.

Only what our pages use is understood; anything else is an error, so that nothing is lost.

A page is a list of lines. Those that begin with a dot are requests, the others text, which fills
paragraphs until a request ends them. `Reader` keeps where the next paragraph goes: into the page, a
section, or what describes the last tag.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, Final

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.parsers import Parser

_FONT: Final = re.compile(r"\\f([BIRP])")
_ESCAPES: Final = {r"\-": "-", r"\&": "", r"\e": "\\", r"\(aq": "'", r"\(dq": '"', r"\ ": "\u00a0"}
_ESCAPE: Final = re.compile("|".join(re.escape(escape) for escape in _ESCAPES))
_WORD: Final = re.compile(r'"[^"]*"?|[^ ]+')
_REFERENCE: Final = re.compile(r"^([\w.-]+)\s*\((\d)\)")

Fonts = tuple[str, str]


def setup(app: Sphinx) -> dict[str, bool]:
    """Have Sphinx read manual pages as well."""
    app.add_source_suffix(".1", "man")
    app.add_source_parser(ManualPages)
    return {"parallel_read_safe": True}


class ManualPages(Parser):
    """Reads a page into a document."""

    supported: ClassVar = ("man",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Fill a document with what a manual page says."""
        Reader(document).read(inputstring.splitlines())


class Reader:
    """Where a page is being read."""

    def __init__(self, document: nodes.document) -> None:
        self._document = document
        self._title: nodes.Element = document
        self._section: nodes.Element = document
        self._place: nodes.Element = document
        self._outer: list[nodes.Element] = []
        self._paragraph: nodes.Element | None = None
        self._tagging = False

    def read(self, lines: list[str]) -> None:
        """Read all lines."""
        remaining = iter(lines)
        for line in remaining:
            if line.startswith(r".\""):
                continue
            if not line.startswith("."):
                self._add(text_of(line))
                continue
            request, *words = split(line)
            if request == "nf":
                self._verbatim(remaining)
            elif request in _FONTS:
                self._add(alternating(words, _FONTS[request]))
            elif request in _REQUESTS:
                _REQUESTS[request](self, words)
            else:
                raise ValueError(f"{self._document['source']}: no such request: {line}")

    def title(self, _words: list[str]) -> None:
        """TH: the page begins."""
        self._title = self._begin(self._document, Path(self._document["source"]).stem)
        self._section = self._place = self._title

    def section(self, words: list[str]) -> None:
        """SH: a section of the page."""
        self._section = self._place = self._begin(self._title, " ".join(words).capitalize())

    def subsection(self, words: list[str]) -> None:
        """SS: a section of a section."""
        self._place = self._begin(self._section, " ".join(words))
        self._outer.clear()

    def tag(self, _words: list[str]) -> None:
        """TP: the next line is a tag, and what follows describes it."""
        term, definition = nodes.term(), nodes.definition()
        entries = self._entries()
        entries += nodes.definition_list_item("", term, definition)
        self._tagging = True
        self._paragraph = term
        self._place = definition

    def end_paragraph(self, _words: list[str]) -> None:
        """PP: back to the section."""
        if not self._outer and isinstance(self._place, nodes.definition):
            self._place = self._place.parent.parent.parent
        self._paragraph = None

    def continue_description(self, _words: list[str]) -> None:
        """IP, sp: another paragraph of what there is."""
        self._paragraph = None

    def break_line(self, _words: list[str]) -> None:
        """br: a new line of the same paragraph."""
        if self._paragraph is not None:
            self._paragraph += nodes.Text("\n")
            self._paragraph += nodes.raw("", "<br>", format="html")

    def indent(self, _words: list[str]) -> None:
        """RS: what follows belongs into the description, whatever it is."""
        self._outer.append(self._place)
        self._paragraph = None

    def unindent(self, _words: list[str]) -> None:
        """RE: back from there."""
        self._place = self._outer.pop()
        self._paragraph = None

    def _begin(self, parent: nodes.Element, title: str) -> nodes.Element:
        section = nodes.section("", nodes.title("", title))
        section["names"] = [nodes.fully_normalize_name(title)]
        self._document.note_implicit_target(section, section)
        parent += section
        self._paragraph = None
        return section

    def _entries(self) -> nodes.Element:
        """The list of tags that the next one joins."""
        place = self._place
        if isinstance(place, nodes.definition) and place not in self._outer:
            return place.parent.parent
        if len(place) and isinstance(place[-1], nodes.definition_list):
            return place[-1]
        entries = nodes.definition_list()
        place += entries
        return entries

    def _add(self, parts: list[nodes.Node]) -> None:
        if self._paragraph is None:
            self._paragraph = nodes.paragraph()
            self._place += self._paragraph
        elif len(self._paragraph):
            self._paragraph += nodes.Text(" ")
        self._paragraph += parts
        if self._tagging:
            self._tagging = False
            self._paragraph = None

    def _verbatim(self, lines: Iterator[str]) -> None:
        """Nf: lines as they are, up to fi."""
        text = []
        for line in lines:
            if line.startswith(".fi"):
                break
            request = split(line)[0] if line.startswith(".") else ""
            words = split(line)[1:] if request in _FONTS else [line]
            text.append(plain("".join(words)))
        block = nodes.literal_block("\n".join(text), "\n".join(text), language="text")
        self._place += block
        self._paragraph = None


_FONTS: Final[dict[str, Fonts]] = {
    "B": ("B", "B"),
    "I": ("I", "I"),
    "BR": ("B", "R"),
    "RB": ("R", "B"),
    "BI": ("B", "I"),
    "IB": ("I", "B"),
    "IR": ("I", "R"),
    "RI": ("R", "I"),
}

_REQUESTS: Final[dict[str, Callable[[Reader, list[str]], None]]] = {
    "TH": Reader.title,
    "SH": Reader.section,
    "SS": Reader.subsection,
    "TP": Reader.tag,
    "PP": Reader.end_paragraph,
    "IP": Reader.continue_description,
    "sp": Reader.continue_description,
    "br": Reader.break_line,
    "RS": Reader.indent,
    "RE": Reader.unindent,
}


def split(line: str) -> list[str]:
    """The request of a line, and its words; those in quotes are one."""
    words = _WORD.findall(line[1:])
    return [word[1:].removesuffix('"') if word.startswith('"') else word for word in words]


def plain(text: str) -> str:
    """A text without fonts."""
    return _ESCAPE.sub(lambda found: _ESCAPES[found[0]], _FONT.sub("", text))


def text_of(text: str, font: str = "R") -> list[nodes.Node]:
    """The parts of a text, each in its font.

    Args:
        text: with changes of the font in it.
        font: the one that it begins with.
    """
    pieces = [font, *_FONT.split(text)]
    pairs = zip(pieces[::2], pieces[1::2], strict=True)
    return [in_font(name, part) for name, part in pairs if part]


def alternating(words: list[str], fonts: Fonts) -> list[nodes.Node]:
    """The words of a request that takes two fonts in turn; a reference to a page is a link."""
    if len(words) > 1 and fonts[0] != fonts[1] and _REFERENCE.match("".join(words[:2])):
        name, section = words[0], words[1]
        rest = section[3:]
        return [reference(plain(name), section[:3]), *([nodes.Text(plain(rest))] if rest else [])]
    if fonts[0] == fonts[1]:
        return [in_font(fonts[0], " ".join(words))]
    return [
        part for position, word in enumerate(words) for part in text_of(word, fonts[position % 2])
    ]


def in_font(font: str, text: str) -> nodes.Node:
    """A text, in a font."""
    shown = plain(text)
    if font == "B":
        return nodes.strong(shown, shown)
    if font == "I":
        return nodes.emphasis(shown, shown)
    return nodes.Text(shown)


def reference(name: str, section: str) -> nodes.Node:
    """A link to another page; that of the configuration is the reference page of the site."""
    shown = nodes.strong(name, name)
    if not (Path(__file__).parents[2] / "man" / f"{name}.{section[1]}").exists():
        return nodes.inline("", "", shown, nodes.Text(section))
    target = f"/man/{name}" if section == "(1)" else "/docs/configuration"
    link = addnodes.pending_xref(
        "", shown, refdomain="std", reftype="doc", reftarget=target, refexplicit=True
    )
    return nodes.inline("", "", link, nodes.Text(section))
