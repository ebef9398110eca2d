"""Reading the same fields of many JSON bodies, where the first of equal keys counts.

Nearly all bodies of a topic are well-formed and have scalars in the wanted fields. These are read
by a chain of C functions: simdjson parses a body, the fields are looked up, a row is added. A body
that stops the chain is read by `first_wins_extractor`, which reads any, and the chain goes on after
it. It stops at what simdjson refuses, at a field that is missing, and behind a body with an object
or array in a field: as long as that is held, the parser does not take another body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import simdjson

from server.message_types.json_read import (
    KEPT_BUFFERS,
    REFUSED,
    SCALARS,
    first_wins_extractor,
    is_direct,
)

if TYPE_CHECKING:
    from server.message_types.base import Path, Value
    from server.message_types.bulk import BulkExtractor

_Row: TypeAlias = "tuple[Value, ...]"

_PATIENCE: Final = 32
"""Bodies that may stop the chain; if more do, the others are read one by one."""


def first_wins_bulk_extractor(paths: Sequence[Path]) -> BulkExtractor:
    """Make a reader of many bodies that finds in each what `first_wins_extractor` does."""
    extract = first_wins_extractor(paths)

    def read_singly(bodies: Sequence[bytes]) -> Sequence[Sequence[Value]]:
        return list(zip(*map(extract, bodies), strict=True))

    if not paths or not all(is_direct(path) for path in paths):
        return read_singly
    parse: Callable[[bytes], Any] = simdjson.Parser().parse
    look_up = _look_up(paths)

    def read(bodies: Sequence[bytes]) -> Sequence[Sequence[Value]]:
        if max(map(len, bodies)) > KEPT_BUFFERS:
            return read_singly(bodies)
        rows: list[_Row] = []
        rest = iter(bodies)
        for _ in range(_PATIENCE):
            try:
                rows.extend(map(look_up, map(parse, rest)))
            except REFUSED:
                stopped = True
            else:
                stopped = False
            if rows and any(value.__class__ not in SCALARS for value in rows[-1]):
                rows[-1] = extract(bodies[len(rows) - 1])
            if not stopped:
                break
            rows.append(extract(bodies[len(rows)]))
        rows.extend(map(extract, rest))
        return list(zip(*rows, strict=True))

    return read


def _look_up(paths: Sequence[Path]) -> Callable[[Any], _Row]:
    """Make a function that looks up the values of paths in a document of simdjson's."""
    if len(paths) > 1 and all(len(path) == 1 for path in paths):
        return itemgetter(*(path[0] for path in paths))
    values = ["document" + "".join(f"[{step!r}]" for step in path) for path in paths]
    function = eval(f"lambda document: ({', '.join(values)},)")  # noqa: S307 - names only as literals
    return cast("Callable[[Any], _Row]", function)
