"""`amps_sqlite3_report`: prints the rows of a statistics database since a moment, table by table.

Source: AMPS User Guide, Statistics Database Report.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Final

from server.app.command_line import CommandLineParser, file_name, make_parser
from server.app.stdio import say
from server.cli.entry_point import command
from server.cli.journal_text import write_out
from server.cli.statistics_file import (
    ResultRow,
    StatisticsFile,
    StatisticsFileError,
    as_csv,
    as_json,
)
from server.statistics.timestamps import from_text
from server.storage.journal.format.layout import encode_text

NAME: Final = "amps_sqlite3_report"
PROBLEM: Final = 1


@command(NAME, failed=PROBLEM)
def main(arguments: Sequence[str] | None = None) -> int:
    """Print a report.

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
            title = f"amps-sqlite3-report on {options.file} since {options.timestamp}\n"
            write_out([encode_text(title)])
        damaged = [
            base
            for base in file.joined_tables
            if not _print_table(file, base, since, as_objects=options.json)
        ]
    except StatisticsFileError as problem:
        say(f"{NAME}: {problem}")
        return PROBLEM
    if damaged:
        say(
            f"{NAME}: {options.file}: of {len(file.joined_tables)} tables {len(damaged)}"
            " could not be"
            f" read to their end: {', '.join(damaged)}"
        )
        return PROBLEM
    return 0


def _print_table(file: StatisticsFile, base: str, since: int, *, as_objects: bool) -> bool:
    """Print the rows of a table, if there are any.

    Returns:
        True if all of them could be read.
    """
    try:
        answer = file.rows_since(base, since)
        if answer is not None:
            write_out(_lines(base, *answer, as_objects=as_objects))
    except StatisticsFileError as problem:
        sys.stdout.flush()
        say(f"{NAME}: {problem}: the rest of table {base} is skipped")
        return False
    return True


def _lines(
    base: str, names: list[str], rows: Iterator[ResultRow], *, as_objects: bool
) -> Iterator[bytes]:
    for number, row in enumerate(rows):
        if as_objects:
            yield as_json(["table", *names], (base, *row))
            continue
        if number == 0:
            yield encode_text(f"TABLE {base}\n") + as_csv(names)
        yield as_csv(row)


def _parser() -> CommandLineParser:
    parser = make_parser(
        NAME,
        "Print what a statistics database has since a moment, table by table.",
        as_json="print each row as a JSON object, with the name of its table",
    )
    add = parser.add_argument
    add(
        "file",
        metavar="FILE",
        type=file_name,
        help="the database; a server may be writing to it",
    )
    add("timestamp", metavar="TIMESTAMP", help="the moment in UTC, such as 20180501T000000")
    return parser


if __name__ == "__main__":
    sys.exit(main())
