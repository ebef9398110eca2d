"""Makes the blocking client's commands and stream from those of the asyncio client.

    python scripts/make_blocking_client.py

Both clients mean the same by a command, and only the asyncio client awaits. So one is the source of
the other: everything that differs is in `REPLACEMENTS`, in the connections and in the shells
(`aio_shell.py`, `blocking_shell.py`). `tests/client/test_blocking_source.py` compares the modules
with what this script makes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
CLIENT: Final = ROOT / "amperage" / "client"
SOURCES: Final = {
    "blocking_connect.py": "aio_connect.py",
    "blocking_commands.py": "aio_commands.py",
    "blocking_stream.py": "aio_stream.py",
}
"""The modules that are made, and the module that each is made from."""

REPLACEMENTS: Final = (
    (r"an `async with`", "a `with`"),
    (r"\b(?:async|await) ", ""),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"StopAsyncIteration", "StopIteration"),
    (r"Awaitable\[None\]", "None"),
    (r"import AsyncIterator, Awaitable, Callable", "import Callable, Iterator"),
    (r"Async(Commands|Shell)", r"Blocking\1"),
    (r"connect_async", "connect"),
    (r"Async(DeliveryListener|MessageListener|MessageWorker|RefusalListener|StateListener)", r"\1"),
    (r"Async(Client|HAClient|Iterator|MessageStream|StreamOwner)", r"\1"),
    (r"amperage\.client\.aio\.", "amperage.client.blocking."),
    (r"amperage\.client\.ha_aio\b", "amperage.client.ha"),
    (r"amperage\.client\.aio_", "amperage.client.blocking_"),
    (r"([Aa]|Connects a)n asyncio client", r"\1 blocking client"),
    (r"The source of `blocking_(\w+)`", r"Made from `aio_\1`"),
    (r"after its logon\.", "after its logon. They can be called in any thread."),
    (r"an asynchronous iterator", "an iterator"),
    (r"an asynchronous context manager", "a context manager"),
    (r"Several tasks can", "Several threads can"),
)
"""Patterns in the source, and what stands for them in the blocking form."""


def blocking_source(name: str) -> str:
    """Return a blocking module, as it is made from its source.

    Args:
        name: the file name of the module.
    """
    text = (CLIENT / SOURCES[name]).read_text()
    for pattern, replacement in REPLACEMENTS:
        text = re.sub(pattern, replacement, text)
    return _formatted(text)


def _formatted(text: str) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    for command in (("check", "--select=I", "--fix-only", "--quiet"), ("format",)):
        made = subprocess.run(
            [ruff, *command, "--stdin-filename", CLIENT / "blocking_commands.py", "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        text = made.stdout
    return text


if __name__ == "__main__":
    for file in SOURCES:
        (CLIENT / file).write_text(blocking_source(file))
