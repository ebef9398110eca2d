"""`amps_queues_ack_dump`: prints how far the messages of queues are acknowledged.

Source: AMPS User Guide, Dump queues.ack File.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from server.app.command_line import CommandLineParser
from server.cli.entry_point import command
from server.cli.journal_text import RULE
from server.cli.sidecar_dump import dump_files, parser_for
from server.storage.journal.format.layout import encode_text
from server.storage.journal.format.times import iso_timestamp
from server.storage.journal.queue_points import VERSION as FORMAT_VERSION
from server.storage.journal.queue_points import QueuePoint, QueuePointTable, unpack_queues
from server.util.json_lines import json_line


@command("amps_queues_ack_dump")
def main(arguments: Sequence[str] | None = None) -> int:
    """Dump queues.ack files.

    Returns:
        The exit status: 0, or 1 if a file cannot be read.
    """
    return dump_files(_parser(), arguments, unpack_queues, _dump, _objects)


def _dump(path: Path, table: QueuePointTable, limit: int | None) -> Iterator[bytes]:
    yield encode_text(
        f"File Name       : {path.name}\n"
        f"Version         : amperage::queues.ack/v{FORMAT_VERSION}\n"
        f"Last txid       : {table.txid}\n"
        f"Queues          : {len(table.points)}\n"
    )
    yield RULE
    for point in islice(table.points, limit):
        yield encode_text(_text(point))


def _objects(path: Path, table: QueuePointTable, limit: int | None) -> Iterator[bytes]:
    yield json_line(
        {
            "record": "file",
            "file": str(path),
            "version": f"amperage::queues.ack/v{FORMAT_VERSION}",
            "last txid": str(table.txid),
            "queues": len(table.points),
        }
    )
    for point in islice(table.points, limit):
        yield json_line(
            {
                "record": "queue",
                "file": str(path),
                "queue": point.name,
                "message type": point.message_type,
                "recovery point": point.recovery_point,
                "begins at txid": str(point.begin_txid),
                "needed from txid": str(point.needed_from_txid),
                "early acks": [
                    {"bookmark": f"{client}|{sequence}|", "came": iso_timestamp(received)}
                    for (client, sequence), received in point.early_acks
                ],
            }
        )


def _text(point: QueuePoint) -> str:
    text = (
        f"queue           : {point.name}\n"
        f"message type    : {point.message_type}\n"
        f"recovery point  : {point.recovery_point}\n"
        f"begins at txid  : {point.begin_txid}\n"
        f"needed from txid: {point.needed_from_txid}\n"
        f"early acks      : {len(point.early_acks)}\n"
    )
    for (client, sequence), received in point.early_acks:
        text += f"  {client}|{sequence}| {iso_timestamp(received)}\n"
    return text + RULE.decode()


def _parser() -> CommandLineParser:
    return parser_for(
        "amps_queues_ack_dump",
        "Print how far queues have been worked off.",
        kind="queues.ack",
        items="queues",
    )


if __name__ == "__main__":
    sys.exit(main())
