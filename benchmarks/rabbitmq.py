"""RabbitMQ as a peer: an ordinary process with ports and directories of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.harness import Server, free_port, running

_PROGRAM: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Where packages put it; what they have on PATH changes the user first."""


@contextmanager
def rabbitmq() -> Iterator[Server | None]:
    """RabbitMQ as it comes, with one durable queue at a time; None if it is not installed."""
    epmd = shutil.which("epmd")
    if epmd is None or not _PROGRAM.exists():
        print("rabbitmq-server is not installed: measured without it")
        yield None
        return
    port, names = free_port(), str(free_port())
    with tempfile.TemporaryDirectory(dir=".") as name:
        directory = Path(name).absolute()
        environment = os.environ | {
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": names,
            "HOME": str(directory),
            "RABBITMQ_CONFIG_FILE": str(directory / "none"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_NODENAME": "benchmark@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the server, in one process
        }
        with (
            running([epmd, "-address", "127.0.0.1", "-port", names], int(names)),
            running([str(_PROGRAM)], port, environment) as pid,
        ):
            yield Server("RabbitMQ", "amqp", port, pid)
