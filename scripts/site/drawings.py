"""Sphinx extension: drawings in Mermaid's language become lists of steps.

GitHub draws them. In the site nothing is run by the browser that comes from elsewhere, and the
library that draws would be larger than all pages together; so a step is an entry of a list here,
with the functions that it names, and with what comes after it where that is not the next one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar, Final

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

_BOX: Final = re.compile(r'^\s*(?P<name>\w+)[\[{]"(?P<text>.*)"[\]}]$')
_ARROWS: Final = re.compile(r"^\s*\w+( --> \w+)+$")
_PARTICIPANT: Final = re.compile(r"^\s*participant (?P<name>\w+) as (?P<text>.+)$")
_NOTE: Final = re.compile(r"^\s*Note over (?P<name>\w+): (?P<text>.+)$")
_SENT: Final = re.compile(r"^\s*(?P<name>\w+)-(?:>>|\))(?P<to>\w+): (?P<text>.+)$")


def setup(app: Sphinx) -> dict[str, bool]:
    """Have drawings read here."""
    app.add_directive("mermaid", Drawing)
    return {"parallel_read_safe": True}


class Drawing(Directive):
    """A drawing."""

    has_content: ClassVar = True

    def run(self) -> list[nodes.Node]:
        """The list that stands for it."""
        kind, *lines = self.content
        steps = {"flowchart TD": boxes, "sequenceDiagram": exchanges}[kind]
        return [nodes.enumerated_list("", *(_entry(*step) for step in steps(lines)))]


def boxes(lines: list[str]) -> Iterator[tuple[str, str]]:
    """What comes before a step, and the step, of a flowchart."""
    texts = {box["name"]: box["text"] for line in lines if (box := _BOX.match(line))}
    after: dict[str, list[str]] = {}
    for line in lines:
        if _ARROWS.match(line):
            names = line.split()[::2]
            for one, other in pairwise(names):
                after.setdefault(one, []).append(other)
    order = list(texts)
    for position, (name, text) in enumerate(texts.items()):
        following = after.get(name, [])
        if following and following != order[position + 1 : position + 2]:
            steps = " or ".join(str(order.index(one) + 1) for one in following)
            text = f"{text}<br/>→ {steps}"
        yield "", text


def exchanges(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Who does a step, and the step, of a sequence diagram."""
    names: dict[str, str] = {}
    for line in lines:
        if found := _PARTICIPANT.match(line):
            names[found["name"]] = found["text"]
        elif found := _NOTE.match(line):
            yield names[found["name"]], found["text"]
        elif found := _SENT.match(line):
            yield f"{names[found['name']]} → {names[found['to']]}", found["text"]


def _entry(who: str, text: str) -> nodes.list_item:
    said, *named = text.split("<br/>")
    head = nodes.paragraph()
    if who:
        head += [nodes.emphasis(who, who), nodes.Text(": ")]
    head += nodes.Text(said)
    lines = [nodes.line("", "", _line(name)) for name in named]
    return nodes.list_item("", head, *([nodes.line_block("", *lines)] if lines else []))


def _line(text: str) -> nodes.Node:
    return nodes.Text(text) if text.startswith("→") else nodes.literal(text, text)
