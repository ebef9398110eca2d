"""Writes `docs/pipeline_journals.ipynb`: the walkthrough of that page as a Jupyter notebook.

Run it after the page has changed: `make pages`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "pipeline_journals.md"
NOTEBOOK: Final = PAGE.with_suffix(".ipynb")

BEGINNING: Final = """\
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

shutil.copy("../sample_configs/pipeline.xml", directory := tempfile.mkdtemp())
os.chdir(directory)
with open("server.log", "w") as log:
    command = [Path(sys.executable).with_name("ampServer"), "pipeline.xml"]
    instance = subprocess.Popen(command, stdout=log, stderr=log)
connection = None
while connection is None:
    time.sleep(0.1)
    assert instance.poll() is None, Path("server.log").read_text()
    with suppress(OSError):
        connection = socket.create_connection(("localhost", 9007))
connection.close()
"""
"""Starts the server where nothing else is."""

END: Final = """\
spark.stop()
instance.terminate()
instance.wait()
os.chdir("/")
shutil.rmtree(directory)
"""

_INTRODUCTION: Final = """\
This is [pipeline_journals.md](pipeline_journals.md) as a notebook, made by `make pages`. Run it
from this folder with the Python that Amperage is installed in, with its extra `pipeline` \
and `duckdb`.
Nothing else may listen on port 9007. The first cell starts a server in a directory of its own, the
last one stops it and removes everything.
"""

_BLOCK: Final = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```\n", re.MULTILINE | re.DOTALL)
_COMMENT: Final = re.compile(r"^<!-- .*? -->\n", re.MULTILINE)


def notebook() -> str:
    """The notebook, without outputs."""
    cells = [_cell(number, kind, text) for number, (kind, text) in enumerate(_cells())]
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    whole = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _cells() -> Iterator[tuple[str, str]]:
    """The kinds and texts of the cells: code is Python, and what it prints is left out."""
    page = _COMMENT.sub("", PAGE.read_text("utf-8"))
    title, _, page = page.partition("\n")
    yield "markdown", f"{title}\n\n{_INTRODUCTION}"
    yield "code", BEGINNING
    waiting, behind = "", 0
    for found in _BLOCK.finditer(page):
        waiting += page[behind : found.start()]
        behind = found.end()
        if found["language"] == "python":
            if waiting.strip():
                yield "markdown", waiting.strip() + "\n"
            waiting = ""
            yield "code", found["text"]
        elif found["language"] != "text":
            waiting += found[0]
    yield "markdown", (waiting + page[behind:]).strip() + "\n"
    yield "code", END


def _cell(number: int, kind: str, text: str) -> dict[str, Any]:
    lines = text.rstrip("\n").splitlines(keepends=True)
    cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": lines}
    return cell | {"execution_count": None, "outputs": []} if kind == "code" else cell


if __name__ == "__main__":
    NOTEBOOK.write_text(notebook(), "utf-8")
