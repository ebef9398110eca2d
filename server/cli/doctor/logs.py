"""The last entries of the logs, and the warnings and errors in them.

Entries below `info` are left out, since those contain the bytes received from and sent to clients;
so are the entries of `amps-action-do-echo-message`, which may contain a message.
"""

from __future__ import annotations

import glob
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from config_schema.spec import InstanceSpec
from server.admin.diagnosis.findings import CheckVerdict
from server.cli.doctor.findings import Examination
from server.cli.log_entries import LogLines, log_entries, parts_of
from server.log.catalogue import summary_of
from server.log.levels import LEVELS, Level
from server.log.targets.file import DEFAULT_MASK, FORMATS
from server.util.safe_open import open_regular

AREA: Final = "log"
VERSION: Final = "logged version"
"""Name of the fact with the version of the server started last, according to the log."""

_MAX_BYTES: Final = 16 << 20
_MAX_ENTRIES: Final = 5_000
_MAX_NAMED: Final = 5
_MAX_FILES: Final = 3
_ECHO: Final = "29-0103"
_START_ID: Final = "00-0001"
_VERSION: Final = re.compile(r" 00-0001 Amperage ([^:\s]+)")
_TOKEN: Final = re.compile(r"%.")


class _LogFileEntry(NamedTuple):
    """An entry of a log, with all its lines."""

    level: Level
    id: str
    text: str


def examine(spec: InstanceSpec, examination: Examination) -> None:
    """Check the log files of an instance, if it has any."""
    targets = [one for one in spec.logging if one.protocol in FORMATS]
    if not targets:
        where = ", ".join(sorted({one.protocol for one in spec.logging})) or "nowhere"
        examination.add_attention(
            AREA,
            "files",
            f"the instance logs to {where}",
            "there is no file of which the end could be shown here",
            "add a Target of the protocol file; journalctl -u amps may have what went to stdout",
        )
    for target in targets:
        suffix = FORMATS[target.protocol].suffix
        mask = target.file_name or DEFAULT_MASK
        names = _files(mask if mask.endswith(suffix) else f"{mask}{suffix}")
        if not names:
            examination.add_attention(
                AREA,
                mask,
                "no file",
                "the instance has never logged there, or somewhere else",
                "see --work-dir, where relative paths begin",
            )
        for path in names[:_MAX_FILES]:
            examination.run_step(AREA, partial(_examine_file, path, examination))


def examine_lines(name: str, lines: Iterable[bytes], examination: Examination) -> None:
    """Check lines of a log.

    Args:
        name: the log's name in the report.
        lines: lines of the log with their line ends, the oldest first.
        examination: collects the findings.
    """
    recent = deque[_LogFileEntry](maxlen=_MAX_ENTRIES)
    left_out = 0
    for entry in _entries(lines):
        if entry.level < Level.INFO or entry.id == _ECHO:
            left_out += 1
        else:
            recent.append(entry)
    note = [f"({left_out:,} entries below info, and messages, are left out)"] if left_out else []
    text = "\n".join([*note, *(entry.text for entry in recent), ""])
    examination.texts[f"log/{_file_name(name, examination)}"] = text
    for begun in (start_entry for start_entry in recent if start_entry.id == _START_ID):
        version = _VERSION.search(begun.text)
        if version is not None:
            examination.facts[VERSION] = version[1]
    levels = Counter(entry.level for entry in recent)
    worst = max(levels, default=Level.INFO)
    verdict = CheckVerdict.OK
    if worst >= Level.WARNING:
        verdict = CheckVerdict.ERROR if worst >= Level.CRITICAL else CheckVerdict.WARNING
    counts = ", ".join(f"{levels[level]:,} {level.label}" for level in sorted(levels, reverse=True))
    examination.add_finding(
        AREA,
        name,
        counts or "no entries",
        verdict,
        _complaints(recent),
        "ampserr ID says what to do",
    )


def _complaints(entries: Iterable[_LogFileEntry]) -> str:
    """Return the most frequent warnings and errors, counted by the ids of entries."""
    ids = Counter(entry.id for entry in entries if entry.level >= Level.WARNING)
    return "; ".join(
        f"{count:,} x {identity} {summary_of(identity)}".rstrip()
        for identity, count in ids.most_common(_MAX_NAMED)
    )


def _files(mask: str) -> list[Path]:
    """Return the files that match a mask, the newest first."""
    pattern = "".join(
        "*" if _TOKEN.fullmatch(part) else glob.escape(part)
        for part in re.split(r"(%.)", mask)
        if part
    )
    paths = [Path(name) for name in glob.glob(pattern)]
    return sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)


def _examine_file(path: Path, examination: Examination) -> None:
    """Check the end of a file; a compressed file is read completely."""
    with open_regular(path) as file:
        if path.suffix != FORMATS["gzip"].suffix:
            file.seek(max(0, path.stat().st_size - _MAX_BYTES))
        examine_lines(str(path), LogLines(file), examination)


def _entries(lines: Iterable[bytes]) -> Iterator[_LogFileEntry]:
    """Yield the entries of a log.

    A line that is no entry may be the rest of one. It gets the lowest level and is left out.
    """
    for _, text in log_entries(lines):
        about = parts_of(text)
        level = LEVELS.get(_text(about["level"]), Level.DEVELOPER)
        yield _LogFileEntry(level, _text(about["id"]), text.decode(errors="replace").rstrip("\n"))


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else ""


def _file_name(name: str, examination: Examination) -> str:
    """Return an unused name for the archive, where compressed logs are stored decompressed."""
    base = re.sub(r"\.gz$", ".gz.txt", Path(name).name)
    number = 0
    while (
        free := base if number == 0 else f"{number}-{base}"
    ) and f"log/{free}" in examination.texts:
        number += 1
    return free
