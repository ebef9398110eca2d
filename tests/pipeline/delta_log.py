"""Reads Delta tables as the protocol of their logs says, without the library that writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq


def current(table: Path) -> list[Path]:
    """The files that count, as the protocol of Delta's log describes it."""
    there: dict[str, Path] = {}
    for entry in sorted((table / "_delta_log").glob("*.json")):
        for line in entry.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                path = unquote(action["add"]["path"])
                there[path] = table / path
            elif "remove" in action:
                del there[unquote(action["remove"]["path"])]
    return list(there.values())


def rows(table: Path, column: str) -> list[Any]:
    """The values of a column, in order; those that are NULL last."""
    files = [pq.ParquetFile(path).read([column])[column] for path in current(table)]
    found = [one for file in files for one in file.to_pylist()]
    return sorted(found, key=lambda one: (one is None, one))
