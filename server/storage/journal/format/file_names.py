"""Names of the files that make up the transaction log of an instance.

Source: AMPS User Guide, Configuring a Transaction Log, Reference to File Types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

JOURNAL: Final = ".journal"
COMPRESSED: Final = ".journal.gz"
INDEX: Final = ".index.gz"
TOPIC_INDEX: Final = ".topic.index"
INDEXES: Final = (INDEX, TOPIC_INDEX)
TEMPORARY_SUFFIX: Final = ".tmp"
"""Suffix of a file that is still being made; such a file is useless after a crash."""

TRUNCATED_SUFFIX: Final = ".cut-"
"""Suffix, before a number, of a journal's name for the bytes that recovery has cut off."""

_KINDS: Final = "|".join(map(re.escape, (JOURNAL, COMPRESSED, *INDEXES)))
_TABLES: Final = "(clients|queues|replication|steps)"
_UNFINISHED: Final = (
    rf"(\d{{10}}({_KINDS})|(next|now){re.escape(JOURNAL)}|{_TABLES}\.ack(\.[a-z]+)?)"
)
_NUMBERED: Final = re.compile(rf"(?P<name>.+)\.(?P<number>\d{{10}})(?P<kind>{_KINDS})")


def journal_name(instance: str, number: int, kind: str = JOURNAL) -> str:
    """Return the name of a file of `kind` with a number."""
    return f"{_as_file_name(instance)}.{number:010}{kind}"


def clients_name(instance: str) -> str:
    """Return the name of the cache of client sequences."""
    return f"{_as_file_name(instance)}.clients.ack"


def queues_name(instance: str) -> str:
    """Return the name of the cache of queues' recovery points."""
    return f"{_as_file_name(instance)}.queues.ack"


def removal_record_name(instance: str) -> str:
    """Return the name of the note about removed messages."""
    return f"{_as_file_name(instance)}.removed.ack"


def replication_name(instance: str) -> str:
    """Return the name of the file with replication's state."""
    return f"{_as_file_name(instance)}.replication.ack"


def steps_name(instance: str) -> str:
    """Return the name of the file of the wall clock's steps."""
    return f"{_as_file_name(instance)}.steps.ack"


def temporary_journal_name(instance: str, purpose: str) -> str:
    """Return the name of a journal that is still being made.

    Args:
        instance: the instance's name.
        purpose: `now` for immediate use, or `next` for later.
    """
    return f"{_as_file_name(instance)}.{purpose}{JOURNAL}{TEMPORARY_SUFFIX}"


def sibling(path: Path, kind: str) -> Path:
    """Return the path of the file of another kind that belongs to a journal file."""
    stem = path.name.removesuffix(".gz").removesuffix(JOURNAL)
    return path.with_name(stem + kind)


def journal_files(directory: Path, instance: str) -> dict[int, Path]:
    """Return the journal files of an instance in a directory, compressed or not, by number.

    If both forms of a file exist, it has been compressed, and its original not yet removed.
    """
    paths: dict[int, Path] = {}
    for number, path in list_journal_files(directory, instance):
        kind = kind_of(path)
        if kind == JOURNAL or (kind == COMPRESSED and number not in paths):
            paths[number] = path
    return paths


def list_journal_files(directory: Path, instance: str) -> Iterator[tuple[int, Path]]:
    """Yield the journals of an instance in a directory and their indexes, with their numbers."""
    for path in sorted(_names(directory)):
        match = _NUMBERED.fullmatch(path.name)
        if match is not None and match["name"] == _as_file_name(instance):
            yield int(match["number"]), path


def kind_of(path: Path) -> str:
    """Return the kind of a file with a number: JOURNAL, COMPRESSED, or one of INDEXES; else ""."""
    match = _NUMBERED.fullmatch(path.name)
    return "" if match is None else match["kind"]


def instances_with_journals(directory: Path) -> set[str]:
    """Return the instances with journal files in a directory, as their file names spell them."""
    matches = (_NUMBERED.fullmatch(path.name) for path in _names(directory))
    return {match["name"] for match in matches if match and match["kind"] in (JOURNAL, COMPRESSED)}


def unfinished_files(directory: Path, instance: str) -> list[Path]:
    """Return the unfinished files that an interrupted run of this instance has left."""
    name = re.escape(_as_file_name(instance))
    unfinished = re.compile(rf"{name}\.{_UNFINISHED}{re.escape(TEMPORARY_SUFFIX)}")
    return [path for path in _names(directory) if unfinished.fullmatch(path.name)]


def _names(directory: Path) -> Iterable[Path]:
    return directory.iterdir() if directory.is_dir() else ()


def _as_file_name(instance: str) -> str:
    return instance.replace("/", "_")
