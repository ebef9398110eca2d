"""`amps_file`: prints the kind of a file, and the version of its format.

Source: AMPS User Guide, Identify Type of AMPS File.
"""

from __future__ import annotations

import glob
import os
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from server.app.command_line import CommandLineParser, file_name, make_parser
from server.app.stdio import say
from server.cli.entry_point import command
from server.cli.journal_text import write_out
from server.statistics.layout import version_of as statistics_version
from server.storage.journal import clock_steps, index, publisher_table, queue_points, removal_record
from server.storage.journal.format import layout, side_files
from server.storage.journal.format.file_names import COMPRESSED, JOURNAL
from server.storage.journal.format.layout import encode_text
from server.storage.sow.keys import chain_file
from server.storage.sow.slab import slab_format
from server.util.json_lines import json_line
from server.util.safe_open import open_regular, other_kind

NAME: Final = "amps_file"
PROBLEM: Final = 1

KINDS: Final = {
    layout.MAGIC: "journal",
    index.INDEX_MAGIC: "journal index",
    index.TOPIC_INDEX_MAGIC: "journal topic index",
    publisher_table.MAGIC: "clients.ack",
    queue_points.MAGIC: "queues.ack",
    removal_record.MAGIC: "removed.ack",
    clock_steps.MAGIC: "steps.ack",
    side_files.REPLICATION_MAGIC: "replication.ack",
    slab_format.MAGIC: "sow",
    chain_file.MAGIC: "chained keys",
}
"""Magic numbers at the start of files, in some after a checksum. The version of the format follows
in two bytes, least significant byte first.
"""

_CHECKSUM_SIZE: Final = 4

_GZIP_MAGIC: Final = b"\x1f\x8b"
_BEGINNING: Final = 4096


class FileIdentity(NamedTuple):
    """The identification of a file.

    Attributes:
        kind: the kind, in words.
        version: of its format; None if it is no file of a server.
    """

    kind: str
    version: int | None = None

    def __str__(self) -> str:
        return self.kind if self.version is None else f"AMPS {self.kind} {self.version}.0"


def identify(path: Path) -> FileIdentity:
    """Return the kind of a file and the version of its format.

    Raises:
        OSError: it cannot be read.
    """
    irregular_kind = other_kind(os.stat(path).st_mode)
    if irregular_kind is not None:
        return FileIdentity(irregular_kind)
    with open_regular(path) as file:
        start = file.read(_BEGINNING)
    if not start:
        return FileIdentity("empty")
    if start.startswith(_GZIP_MAGIC):
        try:
            start = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(start, 64)
        except zlib.error:
            return FileIdentity("damaged gzip data")
    for offset in (0, _CHECKSUM_SIZE):
        kind = KINDS.get(start[offset : offset + 8])
        if kind is not None:
            return FileIdentity(kind, int.from_bytes(start[offset + 8 : offset + 10], "little"))
    if (version := statistics_version(start)) is not None:
        return FileIdentity("statistics database", version)
    if path.name.endswith((JOURNAL, COMPRESSED)) and start and not any(start):
        return FileIdentity("AMPS journal, not yet used")
    return FileIdentity("not an AMPS file")


@command(NAME)
def main(arguments: Sequence[str] | None = None) -> int:
    """Identify files.

    Returns:
        The exit status: 0, or 1 if a file cannot be read.
    """
    options = _parser().parse_args(arguments)
    status = 0
    for pattern in options.file_name:
        for name in _names(pattern):
            try:
                kind = identify(Path(name))
            except OSError as problem:
                say(f"{NAME}: {name}: {problem.strerror or problem}")
                status = PROBLEM
                continue
            write_out([_object(name, kind) if options.json else _line(name, kind)])
    return status


def _names(pattern: str) -> list[str]:
    """Return the files that match an argument of the command line."""
    if Path(pattern).exists():  # an existing file's name may contain wildcards
        return [pattern]
    return sorted(glob.glob(pattern)) or [pattern]


def _line(name: str, identity: FileIdentity) -> bytes:
    return encode_text(f"{Path(name).name}: {identity}\n")


def _object(name: str, identity: FileIdentity) -> bytes:
    return json_line({"file": name, **identity._asdict()})


def _parser() -> CommandLineParser:
    parser = make_parser(
        NAME, "Tell what kind of file something is.", as_json="print a JSON object for each file"
    )
    parser.add_argument(
        "file_name", type=file_name, nargs="+", help="a file, or a pattern such as '*.journal'"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
