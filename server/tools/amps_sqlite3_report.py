"""`amps_sqlite3_report`: prints what a statistics database has since a moment, table by table.

Source: AMPS User Guide, Statistics Database Report.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from config_schema.version import AMPS_VERSION, VERSION
from server.program.console import say
from server.statistics.timestamps import from_text
from server.tools.command import command
from server.tools.statistics_file import StatisticsFile, UnreadableError, as_csv, as_json

PROBLEM: Final = 1


@command("amps_sqlite3_report", failed=PROBLEM)
def main(arguments: Sequence[str] | None = None) -> int:
    """Print a report.

    Args:
        arguments: the command line without the program's name; that of the process if None.

    Returns:
        The exit status: 0, or 1 if the database cannot be read.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        since = from_text(options.timestamp)
    except ValueError as problem:
        parser.error(str(problem))
    try:
        file = StatisticsFile(options.file)
        if not options.json:
            print(f"amps-sqlite3-report on {options.file} since {options.timestamp}")
        for base in file.bases:
            _print_table(file, base, since, as_objects=options.json)
    except UnreadableError as problem:
        sys.stdout.flush()
        say(f"amps_sqlite3_report: {problem}")
        return PROBLEM
    return 0


def _print_table(file: StatisticsFile, base: str, since: int, *, as_objects: bool) -> None:
    """Print what a table has, unless that is nothing."""
    answer = file.since(base, since)
    if answer is None:
        return
    names, rows = answer
    for number, row in enumerate(rows):
        if as_objects:
            print(as_json(["table", *names], (base, *row)))
            continue
        if number == 0:
            print(f"TABLE {base}")
            print(as_csv(names))
        print(as_csv(row))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="amps_sqlite3_report",
        description="Print what a statistics database has since a moment, table by table.",
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="the database; a server may be writing to it")
    add("timestamp", metavar="TIMESTAMP", help="the moment in UTC, such as 20180501T000000")
    add("--json", action="store_true", help="print each row as a JSON object")
    version = f"amps_sqlite3_report {VERSION} (AMPS {AMPS_VERSION})"
    add("--version", action="version", version=version)
    return parser


if __name__ == "__main__":
    sys.exit(main())
