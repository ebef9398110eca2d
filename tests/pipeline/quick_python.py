"""Forks Spark's Python processes from one that has imported what they need.

    python -m tests.pipeline.quick_python DESCRIPTOR

Spark starts a Python for each stream, and a daemon for each kind of work, whose forks import
everything anew. These imports were more than half of all that tests with Spark computed. Instead,
`at_start.sitecustomize` sends the module, environment, directory and open files of such a process
to the socket DESCRIPTOR of this program, which forks and runs the module.

Tests that are about what a process of Spark's can import do without.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests.pipeline.at_start.sitecustomize import QUICK_PYTHON, connect_early

_ROOT: Final = Path(__file__).parents[2]

MODULES: Final = (
    "pyspark.worker",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
    "pipeline.formats",
    "pandas",
    "pyarrow.pandas_compat",
)
"""Modules that are imported."""

PACKAGES: Final = (
    "pyspark.sql.worker",
    "pyspark.sql.streaming",
    "pipeline.amps",
    "pipeline.expressions",
    "pipeline.journal",
    "pipeline.views",
)
"""All modules of these are imported, but for those that Spark runs as programs."""

PROGRAMS: Final = ("_runner", "_worker")
"""How the names of those end."""

_SETTINGS: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "PYTHONHASHSEED": "0",
}
"""Keep libraries from starting threads, which forks would lack; Spark gives workers this seed."""


@contextmanager
def quick_python() -> Iterator[str]:
    """Start the program; yield the name of its socket, which can be connected to at once."""
    name = f"amperage-python-{uuid.uuid4()}"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0{name}")
        listening.listen(1000)
        running = subprocess.Popen(
            [sys.executable, "-m", __name__, str(listening.fileno())],
            cwd=_ROOT,
            env={key: text for key, text in os.environ.items() if key != QUICK_PYTHON} | _SETTINGS,
            stdin=subprocess.PIPE,
            pass_fds=(listening.fileno(),),
        )
    with running:
        try:
            yield name
        finally:
            running.kill()


def main(descriptor: str) -> None:
    """Import everything, then fork for every process that connects, until standard input ends."""
    for name in _names():
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing waits for forks
    with socket.socket(fileno=int(descriptor)) as listening:
        while 0 not in select.select([0, listening.fileno()], [], [])[0]:
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _become(connection)
            connection.close()


def _names() -> Iterator[str]:
    yield from MODULES
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        for found in pkgutil.walk_packages(path, f"{package}."):
            if not found.name.endswith(PROGRAMS):
                yield found.name


def _become(connection: socket.socket) -> None:
    """Run what a process was started for, with its files; never return."""
    status = 1
    try:
        given, files = _receive(connection)
        _end_with(connection)
        for place, file in enumerate(files[:3]):
            os.dup2(file, place)
            os.close(file)
        os.environ.clear()
        os.environ.update(given["environment"])
        os.chdir(given["directory"])
        time.tzset()
        words = [given["module"], *given["arguments"]]
        Path("/proc/self/comm").write_text(words[-1])  # `tests.pipeline.killing` looks for it
        if len(files) > 3:
            early = socket.socket(fileno=files[3])
            connect_early(early, os.environ["PYTHON_WORKER_FACTORY_SOCK_PATH"])
        sys.argv[:] = words
        sys.path[:] = given["path"]
        runpy.run_module(given["module"], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):  # nothing is there any more that takes it
            sys.stdout.flush()
            sys.stderr.flush()
            connection.send(bytes([status & 0xFF]))
        os._exit(status & 0xFF)


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    length, files, _, _ = socket.recv_fds(connection, 10, 4)
    text = b""
    while len(text) < int(length):
        text += connection.recv(int(length) - len(text))
    return json.loads(text), files


def _end_with(connection: socket.socket) -> None:
    """Have this process get a signal when the one that connected is gone.

    Spark knows only that one, and ends it with a signal; then its connection is closed.
    """
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETSIG, signal.SIGTERM)
    flags = fcntl.fcntl(connection, fcntl.F_GETFL)
    fcntl.fcntl(connection, fcntl.F_SETFL, flags | os.O_ASYNC)
    os.register_at_fork(after_in_child=connection.close)


if __name__ == "__main__":
    main(*sys.argv[1:])
