"""Checks of the minidumps of an instance; the newest one goes into the archive."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from config_schema.spec import InstanceSpec
from server.admin.diagnosis.findings import CheckVerdict
from server.cli.doctor.findings import Examination
from server.cli.minidumps.reader import MAX_MINIDUMP_SIZE
from server.process.minidump import name_prefix
from server.util.safe_open import open_regular

AREA: Final = "minidumps"
_RECENT_SECONDS: Final = 24 * 3600


def examine(spec: InstanceSpec, requested: Path | None, examination: Examination) -> None:
    """Check the minidumps.

    Args:
        spec: the instance.
        requested: the minidump that this command has just requested; it is no sign of trouble.
        examination: collects the findings.
    """
    if spec.mini_dump_directory is None:
        examination.add_attention(
            AREA,
            "directory",
            "disabled",
            "the state of a hung server could not be examined",
            "remove MiniDumpDirectory, or name a directory",
        )
        return
    directory = Path(spec.mini_dump_directory)
    pattern = f"{name_prefix(spec.name)}[0-9]*T*Z-*.txt"
    dumps = sorted(directory.glob(pattern), key=lambda path: path.stat().st_mtime)
    others = [path for path in dumps if requested is None or path.name != requested.name]
    now = time.time()
    recent = [path for path in others if now - path.stat().st_mtime < _RECENT_SECONDS]
    examination.add_finding(
        AREA,
        str(directory),
        f"{len(others)} there, {len(recent)} of the last 24 hours",
        CheckVerdict.WARNING if recent else CheckVerdict.OK,
        "they were written on request or because the server was stuck",
        "amps-report-minidump shows what they say; remove those that are not needed any more",
    )
    if others:
        attach(others[-1], examination)


def attach(path: Path, examination: Examination) -> None:
    """Put a minidump into the archive.

    Raises:
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        text = file.read(MAX_MINIDUMP_SIZE).decode(errors="backslashreplace")
    examination.texts[f"minidump/{path.name}"] = text
