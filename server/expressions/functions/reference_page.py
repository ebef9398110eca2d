"""Makes the part of docs/expressions.md that lists the functions, from the registry.

`python -m server.expressions.functions.reference_page docs/expressions.md`
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from server.expressions.functions.builtin import BUILTINS
from server.expressions.functions.lookups import value_lookup
from server.expressions.functions.registry import AGGREGATES, ALIASES, Function
from server.expressions.functions.times import legacy

HEADING: Final = "## Functions\n"
"""Where the generated part begins; it goes to the end of the page."""

_INTRODUCTION: Final = """\
This part is generated from the registry of functions; after a change there, run
`python -m server.expressions.functions.reference_page docs/expressions.md`.

Names are read in any case. An argument becomes what its place asks for: a *text* is anything as its
bytes, a *number* anything as a number (NaN if it is none), an *integer* a number cut towards zero.
NULL for one of these makes the result NULL. *Any value* may be NULL. Only an *array* is passed
whole; of an array in any other place the first element counts. A *pattern* is a quoted regular
expression. Arguments in brackets may be left out, `...` stands for any number of further ones.
"""


def functions_part() -> str:
    """Return the generated part of the page, in Markdown."""
    functions = [*BUILTINS.values(), *legacy(lambda: 0.0), value_lookup((), lambda *_: None)]
    sections = dict.fromkeys(function.section for function in functions)
    parts = [HEADING, _INTRODUCTION]
    for section in sections:
        parts.append(f"### {section}\n")
        parts.append(_table(function for function in functions if function.section == section))
    parts.append("### Aggregates\n")
    parts.append(_aggregates())
    older = ", ".join(f"`{old}` for `{new}`" for old, new in ALIASES.items())
    parts.append(f"Older spellings are known too: {older}.\n")
    return "\n".join(parts)


def _table(functions: Iterable[Function]) -> str:
    rows = ["| function | result |", "| --- | --- |"]
    for function in functions:
        remark = "" if function.is_deterministic else " *Non-deterministic.*"
        rows.append(f"| `{_signature(function)}` | {function.summary}{remark} |")
    return "\n".join(rows) + "\n"


def _signature(function: Function) -> str:
    arguments = [parameter.value for parameter in function.parameters]
    arguments += [f"[{parameter.value}]" for parameter in function.optional]
    if function.variadic:
        arguments.append(f"{function.variadic.value} ...")
    return f"{function.name}({', '.join(arguments)})"


def _aggregates() -> str:
    rows = ["| function | type | result |", "| --- | --- | --- |"]
    for name, aggregate in AGGREGATES.items():
        arguments = "expression" if aggregate.arity == (1, 1) else "expression, [text]"
        kind = "that of the values" if aggregate.result == "any" else aggregate.result
        rows.append(f"| `{name}({arguments})` | {kind} | {aggregate.summary} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    guide = page.read_text("utf-8").partition(HEADING)[0]
    page.write_text(guide + functions_part(), "utf-8")
