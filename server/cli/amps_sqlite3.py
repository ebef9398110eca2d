"""`amps-sqlite3`: queries a statistics database.

The answer has a line with the names of its columns, and one for each of its rows.

Source: AMPS User Guide, Query Statistics Database.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from server.app.command_line import CommandLineParser, file_name, make_parser
from server.app.stdio import say
from server.cli.entry_point import command
from server.cli.journal_text import write_out
from server.cli.statistics_file import StatisticsFile, StatisticsFileError, as_csv, as_json

PROBLEM: Final = 1

_SIZE: Final = "size"


@command("amps-sqlite3", failed=PROBLEM)
def main(arguments: Sequence[str] | None = None) -> int:
    """Query a statistics database.

    Returns:
        The exit status: 0, or 1 if the database cannot be read or the query not be answered.
    """
    parser = _parser()
    options = parser.parse_intermixed_args(arguments)
    if options.size == (options.query is not None):
        parser.error("expected either a query or --size, after the database")
    try:
        file = StatisticsFile(options.database)
        if options.size or options.query == _SIZE:
            _print_sizes(file, as_objects=options.json)
        else:
            _print_answer(file, options.query, as_objects=options.json)
    except StatisticsFileError as problem:
        sys.stdout.flush()
        say(f"amps-sqlite3: {problem}")
        return PROBLEM
    return 0


def _print_answer(file: StatisticsFile, query: str, *, as_objects: bool) -> None:
    names, rows = file.query(query)
    if not as_objects and names:
        write_out([as_csv(names)])
    write_out(as_json(names, row) if as_objects else as_csv(row) for row in rows)


def _print_sizes(file: StatisticsFile, *, as_objects: bool) -> None:
    names = ["table", "rows", "bytes"]
    if not as_objects:
        write_out([as_csv(names)])
    write_out(as_json(names, row) if as_objects else as_csv(row) for row in file.table_sizes())


def _parser() -> CommandLineParser:
    parser = make_parser(
        "amps-sqlite3",
        "Ask a statistics database. X_STATIC and X_DYNAMIC are joined as X, and there are the"
        " functions iso8601(timestamp), iso8601_local(timestamp) and timestamp(text).",
        usage="amps-sqlite3 [--json] DATABASE QUERY\n       amps-sqlite3 [--json] DATABASE --size",
        as_json="print each row as a JSON object",
    )
    add = parser.add_argument
    add(
        "database",
        metavar="DATABASE",
        type=file_name,
        help="its file; a server may be writing to it",
    )
    add("query", metavar="QUERY", nargs="?", help="an SQL query, in quotes")
    add("--size", action="store_true", help="show how large each table is")
    return parser


if __name__ == "__main__":
    sys.exit(main())
