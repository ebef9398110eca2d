"""The elements that a name, a path or the end of one, or a line of a file refers to."""

import os
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Final

from config_schema.document import ConfigNode
from config_schema.schema import ROOT, ElementDoc, elements
from config_schema.units import quoted

_MIN_SIMILARITY: Final = 0.6
_MAX_SUGGESTED: Final = 3


class UnknownElementError(ValueError):
    """There is no such element; the text has similar ones."""


def find_elements(name: str) -> list[ElementDoc]:
    """Find the elements that a name stands for.

    Args:
        name: a path from the root (`/AMPSConfig/SOW/Topic/Key`), the end of one (`Topic/Key`) or a
            name by itself (`Key`). A retired name refers to its replacement.
            Case does not matter.

    Returns:
        The schema's documentation of each of them, in its order.

    Raises:
        UnknownElementError: there is none.
    """
    steps = [step.casefold() for step in name.strip().strip("/").split("/")]
    whole = steps[0] == ROOT.casefold()
    matches = [doc for doc in elements().values() if _ends_with(doc, steps, whole=whole)]
    if not matches:
        raise UnknownElementError(_unknown(name, steps))
    named = [doc for doc in matches if doc.name.casefold() == steps[-1]]
    return named or matches


def at_line(root: ConfigNode, files: Sequence[str], file: str, line: int) -> tuple[str, ConfigNode]:
    """Find the element that stands at a line, or that the text there belongs to.

    Args:
        root: the tree in canonical names.
        files: the files that it was read from, the including file first.
        file: which of them; "" for the first.
        line: counted from 1.

    Returns:
        The canonical path of the last element that begins at the line, or else before it, and the
        element.

    Raises:
        UnknownElementError: the configuration has no such file, or nothing there.
    """
    wanted_file = _file(files, file) if file else files[0]
    matches = [
        (path, node) for path, node in _walk(root, root.tag) if node.location.file == wanted_file
    ]
    before = [(path, node) for path, node in matches if node.location.line <= line]
    if not before:
        raise UnknownElementError(f"{wanted_file} has no element at or before line {line}")
    last = max(node.location.line for _, node in before)
    return next(pair for pair in reversed(before) if pair[1].location.line == last)


def nodes_at(root: ConfigNode, path: str) -> list[ConfigNode]:
    """List the elements of a tree in canonical names that are at a canonical path."""
    matches = [root] if path.partition("/")[0] == root.tag else []
    for step in path.split("/")[1:]:
        matches = [child for node in matches for child in node.all(step)]
    return matches


def _ends_with(doc: ElementDoc, steps: Sequence[str], *, whole: bool) -> bool:
    own_steps = doc.path.split("/")
    if len(steps) > len(own_steps) or (whole and len(steps) != len(own_steps)):
        return False
    above = [step.casefold() for step in own_steps[-len(steps) : -1]]
    names = {doc.name.casefold(), *(synonym.casefold() for synonym in doc.synonyms)}
    return above == list(steps[:-1]) and steps[-1] in names


def _unknown(name: str, steps: Sequence[str]) -> str:
    by_name: dict[str, str] = {}
    for doc in elements().values():
        for known in (doc.name, *doc.synonyms):
            by_name.setdefault(known.casefold(), known)
    alike = get_close_matches(steps[-1], by_name, n=_MAX_SUGGESTED, cutoff=_MIN_SIMILARITY)
    if steps[-1] in by_name and len(steps) > 1:
        paths = [doc.path for doc in find_elements(steps[-1])]
        places = get_close_matches(name.strip("/"), paths, n=_MAX_SUGGESTED, cutoff=0)
        return f"there is no element {quoted(name)}; did you mean {_either(places)}?"
    if alike:
        return (
            f"there is no element {quoted(name)}; did you mean {_either(_named(alike, by_name))}?"
        )
    return f"there is no element {quoted(name)}; docs/configuration.md has an index of all of them"


def _named(folded: Sequence[str], by_name: dict[str, str]) -> list[str]:
    return [by_name[name] for name in folded]


def _either(names: Sequence[str]) -> str:
    return " or ".join(names)


def _file(files: Sequence[str], file: str) -> str:
    """Return the file as problems name it, given its path or the end of it."""
    real_path = os.path.realpath(file)
    same = [path for path in files if os.path.realpath(path) == real_path]
    matches = same or [path for path in files if path.endswith(f"/{file}")]
    if len(matches) == 1:
        return matches[0]
    raise UnknownElementError(
        f"{quoted(file)} is not a file of the configuration: {', '.join(files)}"
    )


def _walk(node: ConfigNode, path: str) -> Iterator[tuple[str, ConfigNode]]:
    yield path, node
    for child in node.children:
        yield from _walk(child, f"{path}/{child.tag}")
