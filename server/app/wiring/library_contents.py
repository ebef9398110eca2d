"""Finds the names that a Python library defines, from its source, without running it.

Verifying a configuration must not execute the code that the configuration names. It can check that
the library exists, that it is Python, and that it has the functions that will be called.
"""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

from server.util.plugin_loader import LibraryError, is_file


def names_defined(library: str) -> frozenset[str] | None:
    """Return the names that a library defines at its top level.

    Args:
        library: as for `server.util.plugin_loader.load_library`.

    Returns:
        The names; None if they are known only by running it, for instance since it is compiled.

    Raises:
        LibraryError: the library does not exist, or is not Python.
    """
    source = _file(library) if is_file(library) else _installed(library)
    if source is None:
        return None
    try:
        with tokenize.open(source) as file:
            names = set(_names(ast.parse(file.read())))
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        raise LibraryError(f"it cannot be read as Python: {_explain(error)}") from None
    return None if names & {"*", "__getattr__"} else frozenset(names)


def _file(library: str) -> Path:
    path = Path(library)
    if path.suffix != ".py":
        raise LibraryError(
            "compiled libraries cannot be loaded here: expected a .py file or the name of a Python "
            "module that does the same"
        )
    if not path.is_file():
        raise LibraryError(
            "there is no such file; a relative path starts at the working directory"
            if not path.is_absolute()
            else "there is no such file"
        )
    return path


def _installed(library: str) -> Path | None:
    """Return the source file of an importable module, without importing its parents."""
    spec, search_path = None, None
    parts = library.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        spec = PathFinder.find_spec(name, search_path)
        if spec is None:
            raise LibraryError(f"there is no Python module {name}; a file needs its ending .py")
        search_path = spec.submodule_search_locations
    is_source = spec is not None and spec.has_location and (spec.origin or "").endswith(".py")
    return Path(spec.origin) if spec and spec.origin and is_source else None


def _names(module: ast.Module) -> Iterator[str]:
    """Yield the names that running a module would define; `*` for a star import."""
    for statement in _statements(module.body):
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield statement.name
            case ast.Import() | ast.ImportFrom():
                for alias in statement.names:
                    yield alias.asname or alias.name.partition(".")[0]
            case _:
                yield from _assigned(statement)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run at module load, also those inside if, try and with."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for part in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, part, []))
        for handler in getattr(statement, "handlers", []):
            yield from _statements(handler.body)


def _assigned(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _explain(error: Exception) -> str:
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f"line {error.lineno}: {error.msg}"
    if isinstance(error, OSError):
        return str(error.strerror).lower()
    return str(error)
