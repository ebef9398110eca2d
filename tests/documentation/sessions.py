"""A page's console blocks, typed one after the other, as somebody does who follows the page.

Commands run in a directory of their own with copies of the sample configurations, whose ports are
exchanged for free ones: what is typed is adapted likewise, and what is printed is adapted back.

A command ends before the next one is typed, but those that run until somebody stops them (RUNS_ON):
of a server it is waited for that it serves, of a subscription that the server has it. What they are
expected to print has to come before the page ends.

What is printed has to be what the page says, line by line:

- `…` stands for anything within a line, and alone on a line for any lines.
- Moments, durations and rates are always others.
- `<!-- values vary -->` before a block: so are all numbers in it.
- A command of which nothing is shown may print what it likes, but has to succeed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from tests.documentation.fences import ROOT, Fence
from tests.support.quick import write_commands
from tests.support.server import free_port
from tests.support.waiting import WAIT_SECONDS, wait_until

BIN: Final = Path(sys.executable).parent
RUNS_ON: Final = re.compile(
    r"(?P<server>make run|ampServer (?!.*--))|spark (subscribe|sow_and_subscribe)|curl -sN"
)
_SERVES: Final = "initialization completed"
_OF_MAKE: Final = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES"}
_SUBSCRIBED: Final = " entered: subscription id "

_PORT: Final = re.compile(r"(?<=[:>=])(8085|5433|9[01]\d\d)\b")
_VARYING: Final = (
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)|\d{8}T[\d.]+Z?"), "MOMENT"),
    (re.compile(r"\b\d\d:\d\d:\d\d\.\d+\b|\b[\d.]+ ?(ms|seconds)\b"), "DURATION"),
    (re.compile(r"\([\d.]+/s\)"), "RATE"),
)
_NUMBER: Final = re.compile(r"\d+(\.\d+)?")
_ANYTHING: Final = re.compile(" ?…")


@dataclass(frozen=True)
class Typed:
    """A command, and what the page shows that it prints."""

    fence: Fence
    command: str
    shown: tuple[str, ...]


def typed(fence: Fence) -> Iterator[Typed]:
    """The commands of a block, each after its prompt."""
    command: list[str] = []
    shown: list[str] = []
    for line in fence.text.splitlines():
        if line.startswith("$ "):
            if command:
                yield Typed(fence, "\n".join(command), tuple(shown))
            command, shown = [line[2:]], []
        elif not command:
            raise AssertionError(f"{fence}: no prompt")
        elif _goes_on(command):
            command.append(line.removeprefix("> "))
        else:
            shown.append(line)
    yield Typed(fence, "\n".join(command), tuple(shown))


def _goes_on(command: list[str]) -> bool:
    """Whether the shell waits for more: behind a backslash, and within a document."""
    document = re.search(r"<<'?(\w+)'?$", command[0])
    if document:
        return len(command) == 1 or command[-1] != document[1]
    return command[-1].endswith("\\")


class Ports:
    """Free ports in place of those that the pages name."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}

    def adapted(self, text: str) -> str:
        """A text of the page, for this machine."""
        return _PORT.sub(lambda found: self._free(found[1]), text)

    def restored(self, text: str) -> str:
        """What is printed here, as the page would have it."""
        for port, given in self._given.items():
            text = re.sub(rf"\b{given}\b", port, text)
        return text

    def _free(self, port: str) -> str:
        if port not in self._given:
            self._given[port] = str(free_port())
        return self._given[port]


class RunsOn:
    """A command that runs until it is stopped, and writes to a file meanwhile."""

    def __init__(self, what: Typed, process: subprocess.Popen[bytes], output: Path) -> None:
        self.what = what
        self.process = process
        self._output = output

    def printed(self) -> str:
        """What it has printed so far."""
        return self._output.read_text("utf-8", "replace")

    def stop(self) -> None:
        """Stop it, and whatever it has started."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Session:
    """A directory in which the commands of a page are run.

    Args:
        directory: an empty one.
        ports: which ports stand for which.
    """

    def __init__(self, directory: Path, ports: Ports) -> None:
        self.directory = directory
        commands = directory / ".commands"
        commands.mkdir()
        write_commands(commands)
        self._ports = ports
        self._running: list[RunsOn] = []
        self._environment = _outside_make() | {
            "PATH": f"{commands}:{BIN}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "USER": "user",
            "LOGNAME": "user",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for running in reversed(self._running):
            running.stop()

    def provide(self, source: Path, name: str) -> None:
        """Put a copy of a file or directory into this one, with ports of this machine."""
        target = self.directory / name
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copy(source, target)
        for path in target.rglob("*.xml") if target.is_dir() else [target]:
            path.write_text(self._ports.adapted(path.read_text()))
        for path in target.rglob("users.toml"):
            path.chmod(0o600)  # as amps-users makes it; a checkout has modes of its own

    def seem_installed(self) -> None:
        """Make this a checkout in which everything is installed, as `make` sees it."""
        recipes = (ROOT / "Makefile").read_text()
        (built_from,) = re.findall(r"^BUILT_FROM := (.*)$", recipes, re.MULTILINE)
        files = [name for name in built_from.split() if (ROOT / name).is_file()]
        self.write(dict.fromkeys(files, ""))
        self.write({"Makefile": recipes})
        for package in ("amperage", "server"):
            (self.directory / package).mkdir()
        (self.directory / ".venv").mkdir()
        binaries = self.directory / ".venv" / "bin"
        binaries.mkdir()
        for path in BIN.iterdir():
            (binaries / path.name).symlink_to(path)
        write_commands(binaries)
        (self.directory / ".venv" / ".server").touch()

    def write(self, files: Mapping[str, str]) -> None:
        """Write files that a page has the text of."""
        for name, text in files.items():
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._ports.adapted(text))

    def run(self, what: Typed) -> None:
        """Type a command, and compare what it prints."""
        if runs_on := RUNS_ON.search(what.command):
            self._start(what, is_server=runs_on["server"] is not None)
            return
        done = subprocess.run(
            ["bash", "-c", self._ports.adapted(what.command)],
            cwd=self.directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=WAIT_SECONDS,
            check=False,
        )
        printed = self._ports.restored(done.stdout.decode())
        if what.shown:
            assert matches(what, printed), complaint(what, printed)
        else:
            assert done.returncode == 0, complaint(what, printed)

    @contextmanager
    def page(self) -> Iterator[None]:
        """While a page is followed; in the end what runs on has to have printed what is shown."""
        before = len(self._running)
        try:
            yield
            for running in self._running[before:]:
                self._await_shown(running)
        finally:
            for running in reversed(self._running[before:]):
                running.stop()
            del self._running[before:]

    def _start(self, what: Typed, *, is_server: bool) -> None:
        output = self.directory / f"output-{len(self._running)}"
        with output.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", self._ports.adapted(what.command)],
                cwd=self.directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        subscriptions = self._logged(_SUBSCRIBED)
        running = RunsOn(what, process, output)
        self._running.append(running)
        if is_server:
            wait_until(
                lambda: _SERVES in running.printed(), lambda: complaint(what, running.printed())
            )
            self._await_shown(running)
        elif "spark" in what.command:
            wait_until(
                lambda: self._logged(_SUBSCRIBED) > subscriptions,
                lambda: complaint(what, running.printed()),
            )

    def _logged(self, text: str) -> int:
        return sum(running.printed().count(text) for running in self._running)

    def _await_shown(self, running: RunsOn) -> None:
        what = running.what
        wait_until(
            lambda: matches(what, self._ports.restored(running.printed()), beginning=True),
            lambda: complaint(what, self._ports.restored(running.printed())),
        )


def _outside_make() -> dict[str, str]:
    """The environment without what make tells a make that it starts, which says where it is."""
    return {name: value for name, value in os.environ.items() if name not in _OF_MAKE}


def matches(what: Typed, printed: str, *, beginning: bool = False) -> bool:
    """Whether what is printed is what the page shows.

    Args:
        what: the command.
        printed: by it.
        beginning: more may follow.
    """
    lines = [_any_lines(line) or f"{_pattern(what, line)}\n" for line in what.shown]
    text = _same(what, printed if printed.endswith("\n") else f"{printed}\n")
    pattern = re.compile("".join(lines))
    return bool(pattern.match(text) if beginning else pattern.fullmatch(text))


def _any_lines(line: str) -> str:
    return r"(?:.*\n)*?" if line.startswith("…") else ""


def _pattern(what: Typed, line: str) -> str:
    return ".*".join(re.escape(_same(what, part)) for part in _ANYTHING.split(line))


def _same(what: Typed, text: str) -> str:
    """A text with one word for everything that is different each time."""
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return _NUMBER.sub("NUMBER", text) if what.fence.note("values vary") is not None else text


def complaint(what: Typed, printed: str) -> str:
    """What a page says beside what is true."""
    shown = "\n".join(what.shown)
    return f"{what.fence}: $ {what.command}\nis shown to print:\n{shown}\nand prints:\n{printed}"
