"""`amps_clients_ack_dump`: prints the highest sequence of each publisher.

Source: AMPS User Guide, Dump clients.ack File.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from server.app.command_line import CommandLineParser
from server.cli.entry_point import command
from server.cli.sidecar_dump import dump_files, parser_for
from server.storage.journal.format.times import iso_timestamp
from server.storage.journal.publisher_table import VERSION as FORMAT_VERSION
from server.storage.journal.publisher_table import PublisherTable, unpack_clients
from server.util.json_lines import json_line


@command("amps_clients_ack_dump")
def main(arguments: Sequence[str] | None = None) -> int:
    """Dump clients.ack files.

    Returns:
        The exit status: 0, or 1 if a file cannot be read.
    """
    return dump_files(_parser(), arguments, unpack_clients, _dump, _objects)


def _dump(path: Path, table: PublisherTable, limit: int | None) -> Iterator[bytes]:
    yield (
        f"File Name       : {path.name}\n"
        f"Version         : amperage::clients.ack/v{FORMAT_VERSION}\n"
        f"Last txid       : {table.txid}\n"
        f"Clients         : {len(table.sequences)}\n"
    ).encode("utf-8", "surrogateescape")
    yield f"{'client name hash':>20}  {'last seq':>20}  last message\n".encode()
    for client, (sequence, time) in islice(sorted(table.sequences.items()), limit):
        yield f"{client:>20}  {sequence:>20}  {iso_timestamp(time)}\n".encode()
    if table.missing_ranges:
        yield f"{'client name hash':>20}  {'missing from':>20}  {'to':>20}\n".encode()
    for client, first, last in islice(sorted(table.missing_ranges), limit):
        yield f"{client:>20}  {first:>20}  {last:>20}\n".encode()


def _objects(path: Path, table: PublisherTable, limit: int | None) -> Iterator[bytes]:
    yield json_line(
        {
            "record": "file",
            "file": str(path),
            "version": f"amperage::clients.ack/v{FORMAT_VERSION}",
            "last txid": str(table.txid),
            "clients": len(table.sequences),
        }
    )
    for client, (sequence, time) in islice(sorted(table.sequences.items()), limit):
        yield json_line(
            {
                "record": "client",
                "file": str(path),
                "client name hash": str(client),
                "last seq": str(sequence),
                "last message": iso_timestamp(time),
            }
        )
    for client, first, last in islice(sorted(table.missing_ranges), limit):
        yield json_line(
            {
                "record": "missing",
                "file": str(path),
                "client name hash": str(client),
                "missing from": str(first),
                "to": str(last),
            }
        )


def _parser() -> CommandLineParser:
    return parser_for(
        "amps_clients_ack_dump",
        "Print the highest sequence of each publisher.",
        kind="clients.ack",
        items="publishers",
    )


if __name__ == "__main__":
    sys.exit(main())
