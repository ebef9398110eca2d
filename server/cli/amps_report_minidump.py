"""`amps-report-minidump`: prints the contents of minidumps.

AMPS's command of this name sends them to 60East by mail. This one sends nothing: `amps-doctor`
collects the files that a colleague needs. The options of AMPS's command are accepted, with a notice
that they have no effect, so that scripts find their minidumps reported.

Source: AMPS User Guide, Submit Minidump to 60East; Minidump.
"""

from __future__ import annotations

import argparse
import glob
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Final

from server.app.command_line import CommandLineParser, file_name, make_parser
from server.app.stdio import say
from server.cli.entry_point import command
from server.cli.journal_text import write_out
from server.cli.minidumps.breakpad import MAGIC, SENSITIVE, Breakpad, read_breakpad
from server.cli.minidumps.reader import (
    MAX_MINIDUMP_SIZE,
    Minidump,
    NoMinidumpError,
    ThreadStack,
    read_minidump,
)
from server.util.json_lines import json_line
from server.util.safe_open import open_regular

_NAME: Final = "amps-report-minidump"
_FEW_CALLS: Final = 3
_FEW_ROWS: Final = 10


@command(_NAME)
def main(arguments: Sequence[str] | None = None) -> int:
    """Report minidumps.

    Returns:
        The exit status: 0, or 1 if a file cannot be read, is damaged, or is none of this server's.
    """
    options = _parser().parse_args(arguments)
    if any((options.email, options.subject, options.body, options.ticket, options.compress)):
        say(f"{_NAME}: nothing is sent; amps-doctor packs the files for an analysis")
    status = 0
    for pattern in options.minidumps:
        for name in sorted(glob.glob(pattern)) or [pattern]:
            status |= _report(name, options)
    return status


def _report(name: str, options: argparse.Namespace) -> int:
    """Print the contents of a file, and return the resulting exit status."""
    try:
        with open_regular(name) as file:
            octets = file.read(MAX_MINIDUMP_SIZE)
        dump = read_breakpad(octets) if octets.startswith(MAGIC) else read_minidump(octets)
    except OSError as error:
        return _report_problem(name, f"cannot be read: {error.strerror or error}")
    except NoMinidumpError as error:
        return _report_problem(name, str(error))
    if isinstance(dump, Breakpad):
        shown, text = _breakpad_data(dump), _breakpad_text(name, dump)
    else:
        shown, text = {"kind": "amperage", **asdict(dump)}, _text(name, dump, all_rows=options.all)
    if options.json:
        write_out([json_line({"file": name, **shown})])
    else:
        write_out([f"{line}\n".encode(errors="surrogateescape") for line in text])
    if dump.missing:
        return _report_problem(name, f"is not whole: it lacks {'; '.join(dump.missing)}")
    return 1 if isinstance(dump, Breakpad) else 0


def _report_problem(name: str, problem: str) -> int:
    say(f"{_NAME}: {name} {problem}")
    return 1


def _breakpad_data(dump: Breakpad) -> dict[str, object]:
    return {
        "kind": "breakpad",
        "time": dump.taken_at and dump.taken_at.isoformat(),
        "streams": [{"name": name, "bytes": size} for name, size in dump.streams],
        "counts": dump.counts,
        "missing": dump.missing,
    }


def _breakpad_text(name: str, dump: Breakpad) -> Iterator[str]:
    yield f"{name}: a minidump in Microsoft's format, as AMPS writes them; not one of Amperage"
    yield f"  taken          {dump.taken_at or 'at a time that it does not say'}"
    yield from (f"  {label:14} {count:,}" for label, count in dump.counts.items())
    yield from (f"  {stream} ({size:,} bytes)" for stream, size in dump.streams)
    sensitive = [stream for stream, _ in dump.streams if stream in SENSITIVE]
    if sensitive:
        yield f"  Take care with whom you share it: {', '.join(sensitive)} may have secrets in it."
    yield "  Calls can be read with a debugger only, and the symbols of the program that wrote it."


def _text(name: str, dump: Minidump, *, all_rows: bool) -> Iterator[str]:
    facts = dump.facts
    yield f"{name}: instance {dump.instance}, Amperage {dump.version} (AMPS {dump.amps_version})"
    if "time" in facts:
        yield f"  taken          {facts['time']}, by process {facts['process']}"
        yield f"  Python         {facts['python']}"
    if "user_seconds" in facts:
        yield f"  processor      {facts['user_seconds']} s user, {facts['system_seconds']} s system"
    if "largest_resident_kib" in facts:
        yield f"  largest size   {int(facts['largest_resident_kib']) / 1024:,.1f} MiB"
    for title, rows in dump.tables.items():
        yield f"  {title}"
        yield from _limited(
            [f"{count:>16,} {label}" for label, count in rows.items()], all_rows=all_rows
        )
    if dump.tasks:
        yield "  where tasks wait"
        lines = [f"{count:>16,} {position}" for position, count in dump.tasks.items()]
        yield from _limited(lines, all_rows=all_rows)
    for thread in dump.threads:
        yield from _thread(thread, all_rows=all_rows)


def _limited(lines: Sequence[str], *, all_rows: bool) -> Iterator[str]:
    shown = lines if all_rows else lines[:_FEW_ROWS]
    yield from shown
    if len(shown) < len(lines):
        yield f"{'':16} and {len(lines) - len(shown):,} more (--all)"


def _thread(thread: ThreadStack, *, all_rows: bool) -> Iterator[str]:
    """Yield the calls of a thread, the innermost first: the current place matters most."""
    yield f"  thread {thread.name}, innermost call first"
    calls = thread.calls[::-1]
    for call in calls if all_rows else calls[:_FEW_CALLS]:
        yield f"    {call.function}, {call.file}:{call.line}"
        if call.code:
            yield f"        {call.code}"
    if not all_rows and len(calls) > _FEW_CALLS:
        yield f"    and {len(calls) - _FEW_CALLS} around it (--all)"


def _parser() -> CommandLineParser:
    parser = make_parser(
        _NAME, "Show what minidumps say.", as_json="print each minidump as a JSON object"
    )
    add = parser.add_argument
    add(
        "minidumps",
        type=file_name,
        nargs="+",
        metavar="FILE",
        help="a minidump, or a pattern such as '*.txt'",
    )
    add("--all", action="store_true", help="all calls of each thread, and all rows of each table")
    add("-e", "--email", help="not used, as nothing is sent")
    add("-s", "--subject", help="not used")
    add("-b", "--body", help="not used")
    add("-t", "--ticket", help="not used")
    add("-c", "--compress", action="store_true", help="not used")
    return parser


if __name__ == "__main__":
    sys.exit(main())
