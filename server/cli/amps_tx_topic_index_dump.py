"""`amps_tx_topic_index_dump`: prints which entries of a journal file are of which topic.

A topic index has numbers for topics. Their names, and the offsets of the entries' bodies, are in
the index beside it (`.index.gz`); if that is missing, only the numbers are printed.

Source: AMPS User Guide, Dump Journal Topic Index File.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from amperage.wire.bookmarks import client_hash
from server.app.command_line import CommandLineParser, make_parser
from server.app.stdio import say
from server.cli.entry_point import command
from server.cli.journal_text import RULE, write_out
from server.cli.read_errors import reason
from server.storage.journal.format.entry import JournalTopic
from server.storage.journal.format.file_names import INDEX, TOPIC_INDEX
from server.storage.journal.format.layout import JournalFormatError, encode_text
from server.storage.journal.index import (
    ANY_TOPIC,
    JournalIndex,
    JournalTopicIndex,
    unpack_index,
    unpack_postings,
)
from server.storage.journal.index import VERSION as FORMAT_VERSION
from server.util.json_lines import json_line
from server.util.safe_open import read_regular

NAME: Final = "amps_tx_topic_index_dump"
PROBLEM: Final = 1


@command(NAME)
def main(arguments: Sequence[str] | None = None) -> int:
    """Dump topic indexes.

    Returns:
        The exit status: 0, or 1 if a file cannot be read or its topics have no names.
    """
    options = _parser().parse_args(arguments)
    status = 0
    for path in options.filename:
        try:
            topic_index = unpack_postings(read_regular(path))
        except (OSError, JournalFormatError) as problem:
            say(f"{NAME}: {reason(path, problem)}")
            status = PROBLEM
            continue
        beside = path.with_name(path.name.removesuffix(TOPIC_INDEX) + INDEX)
        index: JournalIndex | None = None
        try:
            index = unpack_index(read_regular(beside))
        except (OSError, JournalFormatError) as problem:
            say(f"{NAME}: {reason(beside, problem)}: names and offsets are not known")
            status = PROBLEM
        write_out((_objects if options.json else _dump)(path, topic_index, index, options))
    return status


def _dump(
    path: Path,
    topic_index: JournalTopicIndex,
    index: JournalIndex | None,
    options: argparse.Namespace,
) -> Iterator[bytes]:
    yield encode_text(
        f"File Name       : {path.name}\n"
        f"Version         : amperage::topic.index/v{FORMAT_VERSION}\n"
        f"Total Entries   : {topic_index.count}\n"
        f"Topics          : {len(topic_index.topics)}\n"
    )
    yield RULE
    with_entries = (options.topic, options.topic_hash) != (None, None)
    for number, entries in topic_index.topics.items():
        topic = None if index is None else index.definitions.topics.get(number)
        if not _is_wanted(topic, options):
            continue
        yield encode_text(_about(number, topic, len(entries)))
        if with_entries:
            for entry in entries.tolist():
                yield encode_text(_line(entry, index))
        yield RULE


def _objects(
    path: Path,
    topic_index: JournalTopicIndex,
    index: JournalIndex | None,
    options: argparse.Namespace,
) -> Iterator[bytes]:
    yield json_line(
        {
            "record": "file",
            "file": str(path),
            "version": f"amperage::topic.index/v{FORMAT_VERSION}",
            "total entries": topic_index.count,
            "topics": len(topic_index.topics),
        }
    )
    with_entries = (options.topic, options.topic_hash) != (None, None)
    for number, entries in topic_index.topics.items():
        topic = None if index is None else index.definitions.topics.get(number)
        if not _is_wanted(topic, options):
            continue
        about: dict[str, object] = {
            "record": "topic",
            "file": str(path),
            "topic": None if topic is None else topic.name,
            "message type": None if topic is None else topic.message_type,
            "topic hash": None if topic is None else str(client_hash(topic.name)),
            "number": number,
            "entries": len(entries),
        }
        yield json_line(about)
        if with_entries:
            for entry in entries.tolist():
                yield _entry_json(path, entry, index)


def _is_wanted(topic: JournalTopic | None, options: argparse.Namespace) -> bool:
    if options.message_type is not None and (
        topic is None or topic.message_type != options.message_type
    ):
        return False
    if options.topic is not None and (topic is None or topic.name != options.topic):
        return False
    return options.topic_hash is None or (
        topic is not None and client_hash(topic.name) == options.topic_hash
    )


def _about(number: int, topic: JournalTopic | None, entries: int) -> str:
    if number == ANY_TOPIC:
        name = "*** not known: the records are damaged ***"
    elif topic is None:
        name = "*** not known, or an entry of the log's own ***"
    else:
        name = topic.name
    text = f"topic           : {name}\n"
    if topic is not None:
        text += f"message type    : {topic.message_type}\n"
        text += f"topic hash      : {client_hash(topic.name)}\n"
    return text + f"number          : {number}\nentries         : {entries}\n"


def _line(entry: int, index: JournalIndex | None) -> str:
    position = _entry_position(entry, index)
    if position is None:
        return f"  entry {entry}\n"
    txid, offset = position
    return f"  entry {entry}, local txid {txid}, data at {offset}\n"


def _entry_json(path: Path, entry: int, index: JournalIndex | None) -> bytes:
    txid, offset = _entry_position(entry, index) or (None, None)
    return json_line(
        {
            "record": "entry",
            "file": str(path),
            "entry": entry,
            "local txid": None if txid is None else str(txid),
            "data offset": offset,
        }
    )


def _entry_position(entry: int, index: JournalIndex | None) -> tuple[int, int] | None:
    """Return the txid of an entry and the offset of its body; None if unknown."""
    if index is None or entry >= index.count:
        return None
    # With extras there are two offsets for each entry, else one; see `JournalIndex`.
    step = (len(index.offsets) - 1) // index.count
    return index.first_txid + entry, int(index.offsets[step * entry])


def _parser() -> CommandLineParser:
    parser = make_parser(
        NAME,
        "Print which entries of a journal file are of which topic.",
        as_json="print JSON: an object for each file, each topic, and each entry",
        epilog="Without --topic or --topic-hash, topics are listed without their entries.",
    )
    parser.add_argument("filename", type=Path, nargs="+", help="a .topic.index file")
    parser.add_argument("--topic", metavar="NAME", help="the entries of this topic")
    parser.add_argument(
        "--topic-hash",
        metavar="HASH",
        type=int,
        help="the entries of the topic with this hash, as amps_journal_dump shows it",
    )
    parser.add_argument("--message-type", metavar="TYPE", help="only topics of this message type")
    return parser


if __name__ == "__main__":
    sys.exit(main())
