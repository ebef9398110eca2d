"""Connects a Python process of Spark's with Java before it imports anything.

A stream is planned in a process of its own, which first imports PySpark and Arrow. Spark gives it
ten seconds to connect, whatever its settings are. Imports take longer where the machine is busy
with other things as well, and the stream fails: "Python worker failed to connect back."

Python imports this module at its start where the module's directory is in PYTHONPATH. The process
finds itself connected when it comes to that.
"""

from __future__ import annotations

import os
import socket
from typing import Any

_PATH = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH")
"""Where Java listens."""


class _Connected(socket.socket):
    """A socket that takes over the connection there is."""

    def connect(self, address: Any) -> None:
        if address != _PATH:
            super().connect(address)
            return
        os.dup2(_early.fileno(), self.fileno())
        _early.close()


if _PATH is not None:
    _early = socket.socket(socket.AF_UNIX)
    _early.connect(_PATH)
    socket.socket = _Connected  # type: ignore[misc]  # what libraries will find
