"""`amps_file`: tells what kind of file something is, and in which version of its format.

Source: AMPS User Guide, Identify Type of AMPS File.
"""

from __future__ import annotations

import argparse
import glob
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from config_schema.version import AMPS_VERSION, VERSION
from server.journal import clients, index, layout, queue_points, side_files
from server.journal.naming import COMPRESSED, JOURNAL
from server.sow import chain_file, slab_format
from server.tools.command import command

KINDS: Final = {
    layout.MAGIC: "journal",
    index.INDEX_MAGIC: "journal index",
    index.TOPIC_INDEX_MAGIC: "journal topic index",
    clients.MAGIC: "clients.ack",
    queue_points.MAGIC: "queues.ack",
    side_files.REPLICATION_MAGIC: "replication.ack",
    slab_format.MAGIC: "sow",
    chain_file.MAGIC: "chained keys",
}
"""What files begin with, some after a checksum; two bytes with the version follow, lowest first."""

_CHECKSUM_SIZE: Final = 4

_GZIP_MAGIC: Final = b"\x1f\x8b"
_BEGINNING: Final = 4096


def identify(path: Path) -> str:
    """The kind of a file and the version of its format.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        start = file.read(_BEGINNING)
    if start.startswith(_GZIP_MAGIC):
        try:
            start = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(start, 64)
        except zlib.error:
            return "damaged gzip data"
    for place in (0, _CHECKSUM_SIZE):
        kind = KINDS.get(start[place : place + 8])
        if kind is not None:
            version = int.from_bytes(start[place + 8 : place + 10], "little")
            return f"AMPS {kind} {version}.0"
    if path.name.endswith((JOURNAL, COMPRESSED)) and start and not any(start):
        return "AMPS journal, not yet used"
    return "not an AMPS file"


@command("amps_file")
def main(arguments: Sequence[str] | None = None) -> int:
    """Identify files.

    Args:
        arguments: the command line without the program's name; that of the process if None.

    Returns:
        The exit status: 0, or 1 if a file cannot be read.
    """
    options = _parser().parse_args(arguments)
    status = 0
    for pattern in options.file_name:
        for name in sorted(glob.glob(pattern)) or [pattern]:
            try:
                kind = identify(Path(name))
            except OSError as problem:
                print(f"amps_file: {name}: {problem.strerror or problem}", file=sys.stderr)
                status = 1
            else:
                print(f"{Path(name).name}: {kind}")
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="amps_file", description="Tell what kind of file something is."
    )
    parser.add_argument("file_name", nargs="+", help="a file, or a pattern such as '*.journal'")
    parser.add_argument(
        "--version", action="version", version=f"amps_file {VERSION} (AMPS {AMPS_VERSION})"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
