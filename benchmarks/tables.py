"""The tables that benchmarks print, and that pages of docs/ have.

`python -m benchmarks --write NAME` prints the tables of a benchmark, and puts them into the page
that has a place for them instead of those that it had, with the conditions under which they were
measured.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from amperage.wire import framing

_PAGES: Final = [
    Path(__file__).parents[1] / "docs" / name for name in ("performance.md", "scaling.md")
]
_BEGIN: Final = "<!-- benchmark: {name} -->"
_END: Final = "<!-- end of benchmark: {name} -->"

_recorded: list[str] = []
"""What has been printed, as Markdown."""


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; numbers are grouped by thousands and right-aligned.

    Args:
        title: a line above it.
        head: names of columns.
        rows: their cells; None for what was not measured.
    """
    cells = [list(head), *[[_cell(value) for value in row] for row in rows]]
    _recorded.append(_markdown(title, cells))
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    print(f"\n{title}")
    for number, row in enumerate(cells):
        first, *others = row
        print(
            "  " + first.ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)),
            sep="  ",
        )
        if number == 0:
            print("  " + "  ".join("-" * width for width in widths), flush=True)


@contextmanager
def written(name: str, pages: Sequence[Path] = _PAGES) -> Iterator[None]:
    """Put the tables that are printed meanwhile into a page.

    Args:
        name: the benchmark's name, whose tables are replaced.
        pages: of which one has a place for them.

    Raises:
        ValueError: none has.
    """
    page = next((page for page in pages if _place(name).search(page.read_text())), None)
    if page is None:
        of = " or ".join(page.name for page in pages)
        raise ValueError(
            f"no page has a place for {name}: expected the lines {_BEGIN.format(name=name)}"
            f" and {_END.format(name=name)} in {of}"
        )
    conditions = _conditions()
    _recorded.clear()
    yield
    parts = [_BEGIN.format(name=name), conditions, *_recorded, _END.format(name=name)]
    tables = "\n\n".join(parts)
    page.write_text(_place(name).sub(lambda _: tables, page.read_text()))


def _place(name: str) -> re.Pattern[str]:
    begin, end = (re.escape(line.format(name=name)) for line in (_BEGIN, _END))
    return re.compile(f"{begin}.*?{end}", re.DOTALL)


def _conditions() -> str:
    """When, on what, beside what, and what of."""
    form = "as it is written" if str(framing.__file__).endswith(".py") else "compiled"
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} processors ({_processor()}), a load of"
        f" {os.getloadavg()[0]:.1f} before it began, Python {platform.python_version()}, the"
        f" message path {form}."
    )


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def _markdown(title: str, cells: Sequence[Sequence[str]]) -> str:
    """A table below its title."""
    head, *rows = cells
    rule = ["---", *["---:"] * (len(head) - 1)]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    first = ["| " + " | ".join(head) + " |", "|" + "|".join(rule) + "|"]
    return "\n".join([f"**{title}**", "", *first, *lines])


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
