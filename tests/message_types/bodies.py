"""What the tests of binary message types share: random documents, and what holds of any body."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from hypothesis import strategies as st

from server.message_types.base import BodyError, MessageType
from server.message_types.paths import Path
from server.message_types.registry import create
from server.message_types.select_list import parse_selection
from server.message_types.trees import Tree

NAMES = st.sampled_from(["a", "b", "c", "id", "ü", "long_field_name", ""])

SCALARS: st.SearchStrategy[Tree] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-200, 200),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
)

TREES: st.SearchStrategy[Tree] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)

DOCUMENTS: st.SearchStrategy[dict[str, Tree]] = st.dictionaries(NAMES, TREES, max_size=6)

SELECTION = parse_selection("-/,+/a,+/b/c,-/id/a")


def message_type(module: str, **options: Sequence[str]) -> MessageType:
    """A message type with the options of a configuration."""
    return create(module, module, options)


def paths_of(tree: Tree) -> list[Path]:
    """Every path that leads somewhere in a document, with and without subscripts, and some that do
    not."""
    found = set(_paths(tree, ()))
    return [*sorted((path for path in found if path), key=str), ("absent",), ("a", "absent", "b")]


def _paths(tree: Tree, path: Path) -> Iterator[Path]:
    yield path
    if isinstance(tree, dict):
        for name, inner in tree.items():
            yield from _paths(inner, (*path, name))
    elif path:
        yield (*path, 0)
        for index, inner in enumerate(tree if isinstance(tree, list) else []):
            yield from _paths(inner, path)
            yield from _paths(inner, (*path, index))


def damaged(bodies: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Bodies with bytes cut off, replaced and inserted, and bytes that never were a body."""

    def damage(body: bytes, cuts: list[tuple[float, bytes, int]]) -> bytes:
        for where, new, dropped in cuts:
            at = int(where * len(body))
            body = body[:at] + new + body[at + dropped :]
        return body

    cut = st.tuples(st.floats(0, 1), st.binary(max_size=4), st.integers(0, 6))
    return st.one_of(
        st.builds(damage, bodies, st.lists(cut, min_size=1, max_size=3)), st.binary(max_size=60)
    )


def survives(kind: MessageType, body: bytes, other: bytes) -> None:
    """Feed a body of any quality to everything that reads bodies.

    Raises:
        AssertionError: a value is not what a message type may hand out.
        Exception: anything but BodyError was raised.
    """
    paths: list[Path] = [("a",), ("b", "c"), ("id",), ("a", 1), ("c", 0, "b"), ("a",)]
    for value in kind.extractor(paths)(body):
        for element in value if isinstance(value, list) else [value]:
            assert element is None or type(element) in (bool, int, float, str)
    operations: list[Callable[[], object]] = [
        lambda: kind.merge(body, other),
        lambda: kind.merge(other, body),
        lambda: kind.differ(body, other, [("id",)]),
        lambda: kind.differ(other, body, [("id",)]),
        lambda: kind.select(body, SELECTION),
        lambda: kind.update(body, [(("a",), 1), (("b", "c"), "x")]),
    ]
    for operation in operations:
        with contextlib.suppress(BodyError):
            operation()
