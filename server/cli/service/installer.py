"""Installs and removes the files by which the init system of a machine runs the server.

    /opt/amps                     a copy of the program
    /opt/etc/amps/config.xml      the configuration, which is the administrator's
    /var/lib/amps                 where relative paths of the configuration begin
    amps.service, amps@.service   units for systemd: of that one, and of any /opt/etc/amps/NAME.xml
    /etc/init.d/amps              where there is no systemd
    /usr/share/man                links to the manual pages

Earlier versions of our own files are replaced; configurations and data are never touched.

Source: AMPS User Guide, Running AMPS as a Linux Service.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Final

from server.cli.service.program_copy import ProgramCopyError, copy_installation, remove_copy

PREFIX: Final = Path("/opt/amps")
CONFIGURATION: Final = Path("/opt/etc/amps")
STATE: Final = Path("/var/lib/amps")
_UNITS: Final = Path("/usr/lib/systemd/system")
_ENABLED: Final = Path("/etc/systemd/system/multi-user.target.wants/amps.service")
"""The link that starts the service with the machine; it may outlive its target."""
_INIT_SCRIPT: Final = Path("/etc/init.d/amps")
_MANUAL: Final = Path("/usr/share/man")
_COMMAND_SECONDS: Final = 120
_STOP_SECONDS: Final = 330
"""Must exceed the 300 seconds that the units and the script give a server to stop."""


class ServiceError(Exception):
    """An installation or removal failed. The text has the step and the reason."""


class StepKind(StrEnum):
    """Kinds of messages: a completed step, a possible problem, a task that is left to do."""

    DONE = "done"
    WARNING = "warning"
    TO_DO = "to_do"


@dataclass(frozen=True, slots=True)
class InstallStep:
    """A message about the progress.

    Attributes:
        text: the message.
        kind: its kind.
    """

    text: str
    kind: StepKind = StepKind.DONE

    def __str__(self) -> str:
        return f"warning: {self.text}" if self.kind is StepKind.WARNING else self.text


@dataclass(frozen=True, slots=True)
class InstallTarget:
    """The target of an installation.

    Attributes:
        root: directory that stands for `/`: another one while an image of a machine is made.
        user: the user that the service runs as.
        init: `systemd` or `sysv`.
    """

    root: Path
    user: str
    init: str

    @property
    def is_running(self) -> bool:
        """True for the machine itself, False for an image of one."""
        return self.root == Path("/")

    def target_path(self, path: Path) -> Path:
        """Return the current location of a path of the target."""
        return self.root / path.relative_to("/")


def working_directory(configuration: Path) -> Path | None:
    """Return the directory at which a configuration's relative paths begin in the service.

    None if the service does not run it.

    Args:
        configuration: its file, absolute.
    """
    if configuration.parent != CONFIGURATION or configuration.suffix != ".xml":
        return None
    return STATE if configuration.stem == "config" else STATE / configuration.stem


def detect_init(root: Path) -> str:
    """Return the init system of a machine."""
    return "systemd" if (root / "usr/lib/systemd").is_dir() else "sysv"


def install(target: InstallTarget) -> Iterator[InstallStep]:
    """Install or renew the service, and yield the completed steps.

    Raises:
        ServiceError: something is in the way, or a step failed.
    """
    _require_root(target)
    try:
        copy_installation(target.target_path(PREFIX), known_as=PREFIX)
        yield InstallStep(f"{PREFIX}: the program")
        if target.user != "root" and (hidden := _hidden_interpreter()):
            yield InstallStep(
                f"{hidden}, so that user {target.user} may not run it", StepKind.WARNING
            )
        for directory in (CONFIGURATION, STATE):
            target.target_path(directory).mkdir(parents=True, exist_ok=True)
        if target.is_running:
            yield from _require_user(target.user)
            user = pwd.getpwnam(target.user)
            os.chown(STATE, user.pw_uid, user.pw_gid)
        _link_manual(target)
        for path, text in _files(target):
            _write(target.target_path(path), text, executable=path == _INIT_SCRIPT)
            yield InstallStep(f"{path}: how to start it")
    except ProgramCopyError as error:
        raise ServiceError(str(error)) from None
    except OSError as error:
        raise ServiceError(_error_text(error)) from None
    if target.is_running:
        _register(target.init)
    if not (target.target_path(CONFIGURATION) / "config.xml").exists():
        missing = f"{CONFIGURATION}/config.xml is missing"
        yield InstallStep(f"{missing}: put the instance's configuration there", StepKind.TO_DO)


def uninstall(target: InstallTarget) -> Iterator[InstallStep]:
    """Remove everything that `install` has made, except configurations, data and the user.

    An interrupted installation is removed as far as it got.

    Raises:
        ServiceError: something cannot be removed.
    """
    _require_root(target)
    if target.is_running:
        _unregister(target.init)
    try:
        for path in (*_unit_paths(), _ENABLED, _INIT_SCRIPT):
            if target.target_path(path).exists() or target.target_path(path).is_symlink():
                target.target_path(path).unlink()
                yield InstallStep(f"{path}: removed")
        for link in _manual_links(target):
            link.unlink()
        program = target.target_path(PREFIX)
        if remove_copy(program):
            yield InstallStep(f"{PREFIX}: removed")
        if program.exists():
            yield InstallStep(f"{PREFIX}: left, since it is no copy of Amperage")
    except OSError as error:
        raise ServiceError(_error_text(error)) from None
    if target.is_running and target.init == "systemd":
        _reload()
    for path in (CONFIGURATION, STATE):
        if target.target_path(path).exists():
            yield InstallStep(f"{path}: left")


def _require_root(target: InstallTarget) -> None:
    """Check that the root directory exists, so that no tree is made under a mistyped name.

    Raises:
        ServiceError: it does not.
    """
    if not target.root.is_dir():
        why = "is no directory" if target.root.exists() else "does not exist"
        raise ServiceError(f"{target.root} {why}: expected the image of a machine")


def _hidden_interpreter() -> str | None:
    """Return why other users cannot run the copy's interpreter; None if they can."""
    interpreter = Path(sys.executable).resolve()
    for directory in interpreter.parents:
        if not directory.stat().st_mode & stat.S_IXOTH:
            return f"the interpreter {interpreter} is in {directory}, which is closed to others"
    return None


def _unit_paths() -> Sequence[Path]:
    return (_UNITS / "amps.service", _UNITS / "amps@.service")


def _link_manual(target: InstallTarget) -> None:
    """Link the manual pages of the program to where `man` finds them."""
    for link in _manual_links(target):
        link.unlink()  # the page may be gone
    manual = target.target_path(PREFIX / "share" / "man")
    for page in manual.glob("man?/*"):
        path = page.relative_to(manual)
        link = target.target_path(_MANUAL / path)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(PREFIX / "share" / "man" / path)


def _manual_links(target: InstallTarget) -> list[Path]:
    """Return the links to manual pages of the program."""
    links = [path for path in target.target_path(_MANUAL).glob("man?/*") if path.is_symlink()]
    return [path for path in links if path.readlink().is_relative_to(PREFIX)]


def _files(target: InstallTarget) -> Iterator[tuple[Path, str]]:
    paths = _unit_paths() if target.init == "systemd" else (_INIT_SCRIPT,)
    for path in paths:
        name = "amps.init" if path == _INIT_SCRIPT else path.name
        text = (resources.files(__package__) / name).read_text()
        for placeholder, meaning in (
            ("@PREFIX@", PREFIX),
            ("@CONFIGURATION@", CONFIGURATION),
            ("@USER@", target.user),
        ):
            text = text.replace(placeholder, str(meaning))
        yield path, text


def _write(path: Path, text: str, *, executable: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.chmod(0o755 if executable else 0o644)
    new.replace(path)


def _require_user(name: str) -> Iterator[InstallStep]:
    try:
        pwd.getpwnam(name)
    except KeyError:
        shell = shutil.which("nologin") or "/bin/false"
        _run("useradd", "--system", "--user-group", "--home-dir", STATE, "--shell", shell, name)
        yield InstallStep(f"user {name}: added")


def _error_text(error: OSError) -> str:
    """Return an error as text: the file and the reason."""
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):  # from copying a tree
        source, target, why = error.args[0][0]
        return f"{source} cannot be copied to {target}: {why}"
    why = error.strerror or str(error)
    return why if error.filename is None else f"{error.filename}: {why}"


def _is_booted() -> bool:
    """Return True if systemd runs this machine, by the same test as sd_booted(3)."""
    return Path("/run/systemd/system").is_dir()


def _reload() -> None:
    if _is_booted():
        _run("systemctl", "daemon-reload")


def _register(init: str) -> None:
    if init == "systemd":
        _reload()
        _run("systemctl", "enable", "amps.service")
    elif shutil.which("update-rc.d"):
        _run("update-rc.d", "amps", "defaults")
    elif shutil.which("chkconfig"):
        _run("chkconfig", "--add", "amps")


def _unregister(init: str) -> None:
    if init == "systemd":
        unit, template = _unit_paths()
        if template.exists() and _is_booted():
            _run("systemctl", "stop", "amps@*.service", seconds=_STOP_SECONDS)
        if unit.exists() and _is_booted():
            _run("systemctl", "stop", unit.name, seconds=_STOP_SECONDS)
        for installed in filter(Path.exists, (unit, template)):
            _run("systemctl", "disable", installed.name)  # of the template, with all instances
        return
    if _INIT_SCRIPT.exists():
        _run(str(_INIT_SCRIPT), "stop", seconds=_STOP_SECONDS)
        if shutil.which("update-rc.d"):
            _run("update-rc.d", "amps", "remove")
        elif shutil.which("chkconfig"):
            _run("chkconfig", "--del", "amps")


def _run(*words: str | os.PathLike[str], seconds: int = _COMMAND_SECONDS) -> None:
    try:
        ran = subprocess.run(  # noqa: S603 - words of this module
            words, capture_output=True, text=True, timeout=seconds, check=False
        )
    except OSError as error:
        raise ServiceError(_error_text(error)) from None
    except subprocess.TimeoutExpired:
        command_line = " ".join(map(str, words))
        raise ServiceError(f"{command_line}: has not ended after {seconds} seconds") from None
    if ran.returncode:
        raise ServiceError(
            f"{' '.join(map(str, words))}: {ran.stderr.strip() or ran.stdout.strip()}"
        )
