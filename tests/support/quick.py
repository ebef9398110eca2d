"""Commands of the product as processes that start in a hundredth of a second.

Most of a command's start is Python reading modules: a third of a second of a processor, and two
seconds for one that verifies a configuration. Here a process that has read them stands by. A small
launcher takes the place of the command: it has its command line, standard streams, directory and
environment, and the process that stands by forks another one, which runs the same `main` with them.
The launcher ends as that process does; if the launcher is killed, so is that process.

That installed commands start by themselves is proved by tests/test_packaging.py in long runs.
"""

from __future__ import annotations

import atexit
import marshal
import multiprocessing
import os
import pkgutil
import selectors
import shlex
import signal
import socket
import sys
import tempfile
import tomllib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, Final

from server import cli
from tests.support.forked import context
from tests.support.waiting import wait_until

ROOT: Final = Path(__file__).parents[2]
LAUNCHER: Final = Path(__file__).with_name("launcher.py")
_FORK: Final = multiprocessing.get_context("fork")


def quick_command(target: str) -> list[str]:
    """Return the words that run `target`, before its arguments.

    Args:
        target: a module or package, as for `python -m`, or a module, a colon and a function.
    """
    return [sys.executable, "-I", "-S", str(LAUNCHER), str(_standby()), target]


def write_commands(directory: Path) -> None:
    """Write all commands of the product into a directory, for `PATH`."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for name, target in scripts.items():
        path = directory / name
        path.unlink(missing_ok=True)
        path.write_text(f'#!/bin/sh\nexec {shlex.join(quick_command(target))} "$@"\n')
        path.chmod(0o755)


@cache
def _standby() -> Path:
    """Start the process that stands by, and return where it listens."""
    path = Path(tempfile.mkdtemp(prefix="quick-")) / "socket"
    process = context().Process(target=_stand_by, args=(path,))
    process.start()

    def end() -> None:
        process.terminate()
        path.unlink(missing_ok=True)
        path.parent.rmdir()

    atexit.register(end)
    wait_until(path.exists)
    return path


@dataclass
class _Running:
    """A process that runs for a launcher.

    Attributes:
        process: the process.
        pid: its id.
        launcher: the connection to the launcher.
        has_launcher: whether that has not been killed.
        has_ended: whether the process has ended.
    """

    process: ForkProcess
    pid: int
    launcher: socket.socket
    has_launcher: bool = True
    has_ended: bool = False


def _stand_by(path: Path) -> None:
    for found in pkgutil.iter_modules(cli.__path__, f"{cli.__name__}."):
        import_module(found.name)
    listener = socket.socket(socket.AF_UNIX)
    bound = path.with_name("bound")
    listener.bind(str(bound))
    listener.listen(128)
    bound.rename(path)  # whoever finds it may connect
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    parent = multiprocessing.parent_process()
    assert parent is not None
    selector.register(parent.sentinel, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj == parent.sentinel:
                return
            if key.fileobj is listener:
                _begin(listener.accept()[0], selector)
            elif key.data.has_ended:  # which another event of these has told
                pass
            elif key.fileobj is key.data.launcher:
                _kill(key.data, selector)
            else:
                _end(key.data, selector)


def _begin(launcher: socket.socket, selector: selectors.BaseSelector) -> None:
    head, streams, _, _ = socket.recv_fds(launcher, 4, 3)
    size = int.from_bytes(head, "big")
    request = launcher.recv(size, socket.MSG_WAITALL)
    if len(request) < size:  # the launcher was killed
        process = None
    else:
        process = _FORK.Process(target=_run, args=(*marshal.loads(request), streams))
        process.start()
    for stream in streams:
        os.close(stream)
    if process is None:
        launcher.close()
        return
    assert process.pid is not None
    running = _Running(process, process.pid, launcher)
    selector.register(launcher, selectors.EVENT_READ, running)
    selector.register(process.sentinel, selectors.EVENT_READ, running)
    with suppress(OSError):
        launcher.sendall(process.pid.to_bytes(4, "big"))


def _kill(running: _Running, selector: selectors.BaseSelector) -> None:
    """Kill a process, and what it has started, as its launcher was."""
    selector.unregister(running.launcher)
    running.has_launcher = False
    with suppress(ProcessLookupError):  # it has not come to be the leader of its group
        os.killpg(running.pid, signal.SIGKILL)
    running.process.kill()


def _end(running: _Running, selector: selectors.BaseSelector) -> None:
    running.has_ended = True
    selector.unregister(running.process.sentinel)
    running.process.join()
    code = running.process.exitcode
    assert code is not None
    if running.has_launcher:
        selector.unregister(running.launcher)
        with suppress(OSError):
            running.launcher.sendall(code.to_bytes(4, "big", signed=True))
    running.launcher.close()
    running.process.close()


def _run(
    target: str,
    arguments: list[str],
    directory: str,
    environment: dict[str, str],
    streams: list[int],
) -> None:
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process
    text_streams: tuple[Any, ...] = (sys.stdout, sys.stderr)
    for text_stream in text_streams:
        text_stream.reconfigure(write_through="PYTHONUNBUFFERED" in environment)
    sys.argv = [target, *arguments]
    sys.exit(_main_of(target)())


def _main_of(target: str) -> Callable[[], int]:
    name, _, function = target.partition(":")
    module = import_module(name)
    if hasattr(module, "__path__"):
        module = import_module(f"{name}.__main__")
    main: Callable[[], int] = getattr(module, function or "main")
    return main
