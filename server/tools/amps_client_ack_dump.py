"""`amps_clients_ack_dump`: prints the highest sequence of each publisher.

Source: AMPS User Guide, Dump clients.ack File.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from config_schema.version import AMPS_VERSION, VERSION
from server.journal.clients import VERSION as FORMAT_VERSION
from server.journal.clients import ClientsCache, unpack_clients
from server.journal.layout import FormatError
from server.journal.times import iso_timestamp
from server.tools.command import command
from server.tools.journal_text import write_out


@command("amps_clients_ack_dump")
def main(arguments: Sequence[str] | None = None) -> int:
    """Dump clients.ack files.

    Args:
        arguments: the command line without the program's name; that of the process if None.

    Returns:
        The exit status: 0, or 1 if a file cannot be read.
    """
    options = _parser().parse_args(arguments)
    status = 0
    for path in options.filename:
        try:
            cache = unpack_clients(path.read_bytes())
        except (OSError, FormatError) as problem:
            why = problem.strerror if isinstance(problem, OSError) else str(problem)
            print(f"amps_clients_ack_dump: {path}: {why}", file=sys.stderr)
            status = 1
            continue
        write_out(_dump(path, cache, options.limit))
    return status


def _dump(path: Path, cache: ClientsCache, limit: int | None) -> Iterator[bytes]:
    yield (
        f"File Name       : {path.name}\n"
        f"Version         : amperage::clients.ack/v{FORMAT_VERSION}\n"
        f"Last txid       : {cache.txid}\n"
        f"Clients         : {len(cache.sequences)}\n"
    ).encode("utf-8", "surrogateescape")
    yield f"{'client name hash':>20}  {'last seq':>20}  last message\n".encode()
    for client, (sequence, time) in islice(sorted(cache.sequences.items()), limit):
        yield f"{client:>20}  {sequence:>20}  {iso_timestamp(time)}\n".encode()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="amps_clients_ack_dump", description="Print the highest sequence of each publisher."
    )
    parser.add_argument("filename", type=Path, nargs="+", help="a clients.ack file")
    parser.add_argument("-n", "--limit", type=int, help="publishers to print per file at most")
    version = f"amps_clients_ack_dump {VERSION} (AMPS {AMPS_VERSION})"
    parser.add_argument("--version", action="version", version=version)
    return parser


if __name__ == "__main__":
    sys.exit(main())
