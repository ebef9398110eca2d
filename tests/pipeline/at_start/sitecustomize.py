"""Connects a Python process of Spark's with Java before it imports anything, or has it forked.

A stream is planned in a process of its own, which first imports PySpark and Arrow. Spark gives it
ten seconds to connect, whatever its settings are. Imports take longer where the machine is busy
with other things as well, and the stream fails: "Python worker failed to connect back."

Python imports this module at its start where the module's directory is in PYTHONPATH. The process
finds itself connected when it comes to that.

Those imports are also most of what such a process computes. Where `tests.pipeline.quick_python`
runs, the process hands over to a fork of it, which has imported everything.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any, Final

QUICK_PYTHON: Final = "AMPERAGE_QUICK_PYTHON"
"""The variable with the name of the socket of `tests.pipeline.quick_python`, if that runs."""

_PATH = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH")
"""Where Java listens."""


def connect_early(early: socket.socket, path: str) -> None:
    """Have the socket that is connected to Java take over a connection that there is."""

    class Connected(socket.socket):
        def connect(self, address: Any) -> None:
            if address != path:
                super().connect(address)
                return
            os.dup2(early.fileno(), self.fileno())
            early.close()

    socket.socket = Connected  # type: ignore[misc]  # what libraries will find


def _hand_over(name: str, early: socket.socket | None) -> None:
    """Run the module of this process in a fork of `quick_python`, and exit when that does."""
    import json

    module, *words = sys.orig_argv[sys.orig_argv.index("-m") + 1 :]
    given = {
        "module": module,
        "arguments": words,
        "environment": dict(os.environ),
        "directory": os.getcwd(),
        "path": [os.getcwd(), *sys.path],  # as `python -m` has it
    }
    files = [0, 1, 2] + ([] if early is None else [early.fileno()])
    with socket.socket(socket.AF_UNIX) as fork:
        fork.connect(f"\0{name}")
        text = json.dumps(given).encode()
        socket.send_fds(fork, [b"%10d" % len(text)], files)
        fork.sendall(text)
        for file in files:
            os.close(file)  # so that Java sees the end of the fork
        status = fork.recv(1)  # a signal to this process ends the fork, as it closes the connection
    os._exit(status[0] if status else 1)


_early = None
if _PATH is not None:
    _early = socket.socket(socket.AF_UNIX)
    _early.connect(_PATH)
if QUICK_PYTHON in os.environ and any(word.startswith("pyspark.") for word in sys.orig_argv):
    _hand_over(os.environ[QUICK_PYTHON], _early)
elif _early is not None and _PATH is not None:
    connect_early(_early, _PATH)
