"""Kills the Python processes in which Spark runs its tasks."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from amperage.client import Client
from tests.pipeline.topics import uri
from tests.support.server import RunningServer


def task_processes() -> list[int]:
    """The workers of tasks, forked by the Python daemons of a Spark that this process started.

    What plans or commits a write runs in processes of the driver, which Spark does not try again.
    """
    parents = {}
    daemons = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            start, _, rest = (entry / "stat").read_text().rpartition(")")
        except OSError:
            continue  # it has just ended
        parents[int(entry.name)] = int(rest.split()[1])
        if start.endswith("(pyspark.worker"):  # as `quick_python` names them
            daemons.add(int(entry.name))
    workers = [pid for pid in daemons if parents.get(pid) in daemons]
    return [pid for pid in workers if _descends_from_us(pid, parents)]


def _descends_from_us(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == os.getpid():
            return True
    return False


class Killer:
    """Kills tasks whenever a topic has got so many messages.

    Attributes:
        kills: how often.
    """

    def __init__(self, server: RunningServer, topic: str, at: list[int]) -> None:
        self.kills = 0
        self._at = at
        self._client = Client("killer")
        self._client.connect(uri(server))
        self._client.logon()
        self._stream = self._client.subscribe(topic, filter="1=1")
        self._thread = threading.Thread(target=self._watch)
        self._is_over = False
        self._thread.start()

    def _watch(self) -> None:
        seen = 0
        for count in self._at:
            while seen < count:
                seen += len(self._stream.batch(60))
            for pid in task_processes():
                with suppress(ProcessLookupError):  # it has ended meanwhile
                    os.kill(pid, signal.SIGKILL)
            self.kills += 1

    def join(self) -> None:
        """Wait until all is done."""
        self._thread.join(60)
        self._client.close()


@contextmanager
def killing(server: RunningServer, topic: str, at: list[int]) -> Iterator[Killer]:
    """Kill all tasks each time that a topic has got so many messages."""
    killer = Killer(server, topic, at)
    try:
        yield killer
    finally:
        killer.join()
