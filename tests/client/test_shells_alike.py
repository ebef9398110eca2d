"""The blocking and the asyncio commands and streams have the same source, but for `await`."""

from __future__ import annotations

import ast
import inspect
import re
from types import ModuleType

import pytest

from amperage.client import aio_commands, aio_stream, blocking_commands, blocking_stream

_AS_BLOCKING = [
    (r"\b(async|await) ", ""),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"StopAsyncIteration", "StopIteration"),
    (r"Awaitable\[None\]", "None"),
    (r"Async(Commands|Shell)", r"Blocking\1"),
    (r"Async(Iterator|MessageStream|StreamOwner)", r"\1"),
]


def code(module: ModuleType) -> str:
    """Return the source of a module without imports, docstrings and comments."""
    tree = ast.parse(inspect.getsource(module))
    tree.body = [it for it in tree.body if not isinstance(it, ast.Import | ast.ImportFrom)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [it for it in node.body if not is_text(it)]
    return ast.unparse(tree)


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


@pytest.mark.parametrize(
    ("blocking", "aio"), [(blocking_commands, aio_commands), (blocking_stream, aio_stream)]
)
def test_the_asyncio_source_is_the_blocking_source(blocking: ModuleType, aio: ModuleType) -> None:
    translated = code(aio)
    for pattern, replacement in _AS_BLOCKING:
        translated = re.sub(pattern, replacement, translated)
    assert translated.splitlines() == code(blocking).splitlines()
