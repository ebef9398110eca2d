"""The rules of language that a program can check: names, and the words of docstrings."""

from __future__ import annotations

import ast
import builtins
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, TypeGuard

import pytest

_ROOT: Final = Path(__file__).parents[1]
_PRODUCT: Final = ("amperage", "config_schema", "server", "actions", "pipeline")

_SHARED_NAMES: Final = {
    "Message",  # amperage.Message, and pipeline.expressions.Message, which are both public
}

_OTHER_FILES: Final = {"actions.py", "client.py", "feed.py", "server.py"}
"""Files of an application, which docstrings name."""

_MODULES_IN_ING: Final = {
    "blocking": "the blocking client, beside `aio`",
    "chaining": "AMPS's word: the chaining key generator",
    "do_nothing": "AMPS's name of the action",
    "encoding": "a noun",
    "framing": "a noun",
    "monitoring": "AMPS's word: the Monitoring Guide",
    "shell_quoting": "a noun",
    "underlying": "AMPS's word: UnderlyingTopic",
}

_PLAIN_BASES: Final = {"object", "Protocol", "Generic", "NamedTuple", "Exception", "Enum", "Struct"}
"""Bases without members that docstrings name."""

_RATES: Final = [
    (r"what", 0, 2),
    (r"who|whom|whose|whoever", 0, 0.5),
    (r"somebody|nobody|anybody|everybody", 0, 0.05),
    (r"returns?", 4, 40),
]
"""A pattern of words, and their least and largest number in 1,000 words of docstrings."""


_DEFINITION: Final = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class _Module:
    """What the tests look at of a module.

    Attributes:
        text: all of it.
        docstrings: those of the module, its classes and functions, and of attributes.
        names: what it defines or imports.
        public_classes: the names of classes at its top.
        arguments: for each docstring of a function or class with a section Args, what that section
            names, and the parameters.
        members: for each class, what it defines and assigns, and its bases.
    """

    text: str
    docstrings: tuple[str, ...]
    names: frozenset[str]
    public_classes: tuple[str, ...]
    arguments: tuple[tuple[str, frozenset[str], frozenset[str]], ...]
    members: dict[str, tuple[set[str], set[str]]]


@cache
def modules() -> dict[Path, _Module]:
    """The modules of the product, each read once for all tests."""
    files = [file for package in _PRODUCT for file in sorted((_ROOT / package).rglob("*.py"))]
    assert len(files) > 1000
    return {file: _read(file.read_text("utf-8")) for file in files}


def _read(text: str) -> _Module:
    tree = ast.parse(text)
    docstrings: list[str] = []
    names: set[str] = set()
    for node in _statements(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(docstring))):
                docstrings.append(docstring)
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                names.update(_stored(targets))
            case ast.AnnAssign(target=target):
                names.update(_stored([target]))
            case ast.Import(names=imported) | ast.ImportFrom(names=imported):
                names.update((one.asname or one.name).rpartition(".")[2] for one in imported)
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    public = tuple(name for name in classes if not name.startswith("_"))
    defined = [node for node in _statements(tree) if isinstance(node, _DEFINITION)]
    return _Module(
        text,
        tuple(docstrings),
        frozenset(names),
        public,
        tuple(_documented_arguments(defined)),
        {node.name: _members(node) for node in defined if isinstance(node, ast.ClassDef)},
    )


def _documented_arguments(
    defined: list[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef],
) -> Iterator[tuple[str, frozenset[str], frozenset[str]]]:
    for node in defined:
        section = re.search(
            r"^Args:\n((?: {4}.*\n?|\n)+)", ast.get_docstring(node) or "", re.MULTILINE
        )
        function = (
            next((one for one in node.body if _is_constructor(one)), None)
            if isinstance(node, ast.ClassDef)
            else node
        )
        if section is None or function is None:
            continue
        parameters = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
        named = re.findall(r"^ {4}((?:\*{0,2}\w+, )*\*{0,2}\w+): ", section[1], re.MULTILINE)
        words = frozenset(re.findall(r"\w+", " ".join(named)))
        yield node.name, words, frozenset(parameters)


def _is_constructor(node: ast.AST) -> TypeGuard[ast.FunctionDef]:
    return isinstance(node, ast.FunctionDef) and node.name in {"__init__", "__new__"}


def _members(node: ast.ClassDef) -> tuple[set[str], set[str]]:
    found: set[str] = set()
    for inner in ast.walk(node):
        match inner:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                found.add(name)
            case ast.AsyncFunctionDef(name=name) | ast.Attribute(attr=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
    return found, {ast.unparse(base).partition("[")[0].split(".")[-1] for base in node.bases}


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """The statements of a module, at any depth; expressions, which are most of it, are left out."""
    pending = [tree]
    while pending:
        node = pending.pop()
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inside = getattr(node, field, ())
            if isinstance(inside, list):  # those of a lambda and of a condition are expressions
                pending += inside
                yield from inside


def _stored(targets: list[ast.expr]) -> Iterator[str]:
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                yield node.id


def docstrings() -> Iterator[str]:
    """The docstrings of modules, classes and functions, and of attributes."""
    for module in modules().values():
        yield from module.docstrings


@cache
def words_of_docstrings() -> Counter[str]:
    """How often each word is there."""
    counts: Counter[str] = Counter()
    for docstring in docstrings():
        counts.update(re.findall(r"[a-z']+", docstring.lower()))
    return counts


def test_docstrings_name_exceptions_that_exist() -> None:
    """An exception that a function raises is a class of the product, or one of Python's."""
    classes = set(dir(builtins)).union(*(module.names for module in modules().values()))
    entry = re.compile(r"^ *((?:\w+, )*(?:\w+ or )?\w+): ", re.MULTILINE)
    for docstring in docstrings():
        for section in re.findall(r"Raises:\n((?: +.+\n?)+)", docstring):
            for names in entry.findall(section):
                unknown = set(re.findall(r"\w+", names)) - {"or"} - classes
                assert not unknown, docstring


def test_docstrings_name_files_that_exist() -> None:
    found = [*_ROOT.glob("*.py"), *_ROOT.glob("[!.]*/**/*.py*")]  # not the libraries in .venv
    files = {file.name for file in found}
    for docstring in docstrings():
        named = set(re.findall(r"(?<!`)\b(\w+\.pyx?)\b", docstring))
        assert named <= files | _OTHER_FILES, docstring


def test_docstrings_name_arguments_that_exist() -> None:
    for file, module in modules().items():
        for function, named, parameters in module.arguments:
            unknown = {name for name in named - parameters if name.rstrip("_") not in parameters}
            assert not unknown, f"{file}: {function}"


def test_docstrings_name_members_that_exist() -> None:
    """Of a class of the product whose bases are all of the product, in the form `Class.member`."""
    times = Counter(name for module in modules().values() for name in module.members)
    classes = {
        name: found
        for module in modules().values()
        for name, found in module.members.items()
        if times[name] == 1
    }

    def members(name: str) -> set[str] | None:
        own, bases = classes[name]
        inherited = [members(base) if base in classes else None for base in bases - _PLAIN_BASES]
        return None if None in inherited else own.union(*filter(None, inherited))

    for file, module in modules().items():
        for name, member in re.findall(r"`(?:\w+\.)*(\w+)\.(\w+)(?:\([^`]*\))?`", module.text):
            if name in classes and (known := members(name)) is not None:
                assert member in known, f"{file}: `{name}.{member}`"


def test_a_public_class_has_a_name_of_its_own() -> None:
    places = defaultdict(list)
    for file, module in modules().items():
        for name in module.public_classes:
            places[name].append(str(file.relative_to(_ROOT)))
    shared = {name: files for name, files in places.items() if len(files) > 1}
    assert set(shared) <= _SHARED_NAMES, shared


def test_modules_are_named_with_nouns() -> None:
    found = {file.stem for file in modules() if file.stem.endswith("ing")}
    found |= {file.stem for file in _ROOT.glob("server/**/*.pyx") if file.stem.endswith("ing")}
    assert found == set(_MODULES_IN_ING)


def test_limits_are_called_max_and_min() -> None:
    pattern = re.compile(r"\b_?(?:(?:MOST|LEAST|LONGEST|LARGEST)_(?!RECENT)\w+|\w*AT_ONCE)\b")
    names = [
        f"{file.relative_to(_ROOT)}: {name}"
        for file, module in modules().items()
        for name in pattern.findall(module.text)
    ]
    assert names == []


@pytest.mark.parametrize(("words", "least", "most"), _RATES)
def test_docstrings_keep_to_the_fields_words(words: str, least: float, most: float) -> None:
    counts = words_of_docstrings()
    found = sum(count for word, count in counts.items() if re.fullmatch(words, word))
    assert least <= 1000 * found / counts.total() <= most
