"""Every message that the source logs is in the catalogue and gets the values of its text."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from server.log.catalogue import CATALOGUE

ROOT = Path(__file__).parents[2]
FOLDERS = ("config_schema", "server", "actions", "amperage", "pipeline")
ID = re.compile(r"[0-9A-F]{2}-[0-9]{4}")


class Use(NamedTuple):
    """A message id in the source; `given` is None where it is not an argument of emit."""

    place: str
    message_id: str
    given: frozenset[str] | None
    more: bool
    """Whether further fields come from a mapping (`**fields`)."""


def uses(source: str, place: str) -> Iterator[Use]:
    """Every string that has the form of a message id, and what goes with it."""
    if "emit(" not in source and not ID.search(source):
        return  # parsing all sources takes seconds
    tree = ast.parse(source)
    emitted: set[ast.expr] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_emit(node.func) and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                emitted.add(first)
                names = [keyword.arg for keyword in node.keywords]
                given = frozenset(name for name in names if name is not None)
                yield Use(f"{place}:{node.lineno}", first.value, given, None in names)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or node in emitted:
            continue
        if isinstance(node.value, str) and ID.fullmatch(node.value):
            yield Use(f"{place}:{node.lineno}", node.value, None, False)


def mistake(use: Use) -> str | None:
    """What is wrong with a use, or None."""
    message = CATALOGUE.get(use.message_id)
    if message is None:
        return f"{use.place}: {use.message_id} is not in server/log/catalogue.toml"
    if use.given is None:
        return None
    template = message.template
    missing = template.required - use.given
    if missing and not use.more:
        return f"{use.place}: {use.message_id} needs {sorted(missing)}"
    if unknown := use.given - template.required - template.optional:
        return f"{use.place}: {use.message_id} has no {sorted(unknown)}"
    return None


def _is_emit(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute):
        return function.attr == "emit"
    return isinstance(function, ast.Name) and function.id == "emit"


def test_the_source_logs_only_messages_of_the_catalogue_with_their_fields() -> None:
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert paths
    mistakes = [
        mistake(use)
        for path in paths
        for use in uses(path.read_text("utf-8"), str(path.relative_to(ROOT)))
    ]
    assert not [found for found in mistakes if found]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("log.emit('00-0015', seconds=1)", None),
        ("log.emit('07-0013', client=c)", None),
        ("log.emit('07-0013', client=c, reason=r)", None),
        ("log.emit('07-0013', **fields)", None),
        ("emit('00-0015')", "x:1: 00-0015 needs ['seconds']"),
        ("log.emit('00-0015', seconds=1, minutes=2)", "x:1: 00-0015 has no ['minutes']"),
        ("log.emit('00-9999')", "x:1: 00-9999 is not in server/log/catalogue.toml"),
        ("log.emit('oops')", "x:1: oops is not in server/log/catalogue.toml"),
        ("if log.enabled('00-9998'): pass", "x:1: 00-9998 is not in server/log/catalogue.toml"),
        ("TABLE = {1: '00-9997'}", "x:1: 00-9997 is not in server/log/catalogue.toml"),
    ],
)
def test_the_check_finds_what_it_is_for(source: str, expected: str | None) -> None:
    assert [mistake(use) for use in uses(source, "x")] == [expected]
