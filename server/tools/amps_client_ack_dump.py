"""`amps_clients_ack_dump`: prints the highest sequence of each publisher.

Source: AMPS User Guide, Dump clients.ack File.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from server.journal.clients import VERSION as FORMAT_VERSION
from server.journal.clients import ClientsCache, unpack_clients
from server.journal.times import iso_timestamp
from server.tools.ack_files import dump_files, parser_for
from server.tools.command import command


@command("amps_clients_ack_dump")
def main(arguments: Sequence[str] | None = None) -> int:
    """Dump clients.ack files.

    Args:
        arguments: the command line without the program's name; that of the process if None.

    Returns:
        The exit status: 0, or 1 if a file cannot be read.
    """
    return dump_files(_parser(), arguments, unpack_clients, _dump)


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
    return parser_for(
        "amps_clients_ack_dump",
        "Print the highest sequence of each publisher.",
        kind="clients.ack",
        things="publishers",
    )


if __name__ == "__main__":
    sys.exit(main())
