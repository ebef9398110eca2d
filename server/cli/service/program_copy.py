"""Copies the running program to a directory of its own, from which a service is started.

The copy is a virtual environment made by hand: a link to the interpreter, the packages that the
server needs as they are installed here (Spark is not among them), and the commands. Nothing is
downloaded. It is made beside its place and then renamed, so that an interrupted copy is never in
use: its remains are removed by the next one, or by `remove_copy`.
"""

from __future__ import annotations

import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Final

_DISTRIBUTION: Final = "amperage"
_HOME: Final = Path(__file__).resolve().parents[3]
"""The directory that contains our packages."""
_PACKAGES: Final = ("amperage", "server", "config_schema", "actions", "pipeline")
_EXCLUDED_EXTRAS: Final = frozenset(
    {"pipeline", "spark", "delta", "docs", "dev", "mutants", "packages"}
)
"""Extras that no service needs."""

_MANUAL: Final = re.compile(r".*/share/man/man\d/[^/]+\.\d")
"""Matches a manual page among the files of a distribution."""
_SCRIPTS: Final = ("install-amps-daemon.sh", "uninstall-amps-daemon.sh")

_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA: Final = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_NOT_NEEDED: Final = shutil.ignore_patterns("__pycache__", "*.c", "*.pyx", "*.pxd")

_LOCATION_FILES: Final = frozenset({"direct_url.json", "RECORD"})
"""Metadata files of a distribution about its place of installation."""

MARK: Final = "installed-by-amps-service"
"""A file that marks a directory as a copy, which may be replaced and removed."""

_SCRIPT: Final = """#!{python}
import sys

from {module} import {function}

sys.exit({function}())
"""


class ProgramCopyError(Exception):
    """The installation cannot be copied. The text has the reason."""


def copy_installation(target: Path, *, known_as: Path) -> None:
    """Copy the running program, or replace an earlier copy.

    Args:
        target: directory of the copy.
        known_as: its path when it is used, if that differs.

    Raises:
        ProgramCopyError: something else is there, or a package is not installed. The target is left
            as it was, as after any other error.
        OSError: a file cannot be read or written.
    """
    if target.exists() and not is_copy(target) and (not target.is_dir() or any(target.iterdir())):
        raise ProgramCopyError(
            f"{target} exists, and is not a copy of Amperage: nothing was changed"
        )
    new, old = _neighbour_paths(target)
    for left in (new, old):
        _clear(left)
    new.mkdir(parents=True)
    try:
        (new / MARK).write_text("")
        packages = _make_environment(new)
        for distribution in _needed_distributions():
            _copy_distribution(distribution, packages)
        _copy_packages(packages)
        _copy_manual(new / "share" / "man")
        _write_commands(new / "bin", known_as / "bin" / "python")
        if target.exists():
            target.rename(old)
        new.rename(target)
    except BaseException:
        if old.exists() and not target.exists():
            old.rename(target)
        with suppress(OSError):  # nothing more can be done about it, and the first error counts
            _remove(new)
        raise
    with suppress(OSError):  # the next copy tries again
        _remove(old)


def remove_copy(target: Path) -> bool:
    """Remove a copy, and the remains of interrupted ones beside it.

    Returns:
        True if there was any of these.

    Raises:
        OSError: a file cannot be removed.
    """
    copies = [path for path in (target, *_neighbour_paths(target)) if is_copy(path)]
    for path in copies:
        _remove(path)
    return bool(copies)


def _remove(path: Path) -> None:
    """Remove a copy if it exists, its mark last: after an error the rest is still a copy.

    Raises:
        OSError: a file cannot be removed.
    """
    if not path.exists():
        return
    try:
        for entry in path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != MARK:
                entry.unlink()
        (path / MARK).unlink(missing_ok=True)
        path.rmdir()
    except OSError as error:  # it may name a file without its directory
        raise OSError(error.errno, error.strerror, str(path)) from error


def _neighbour_paths(target: Path) -> tuple[Path, Path]:
    """Return the paths of a new copy, and of the replaced copy meanwhile."""
    return target.with_name(f"{target.name}.new"), target.with_name(f"{target.name}.old")


def _clear(left: Path) -> None:
    """Remove the remains of an interrupted copy."""
    if not left.exists():
        return
    if not is_copy(left) and (not left.is_dir() or any(left.iterdir())):
        raise ProgramCopyError(f"{left} exists, and is not a copy of Amperage: nothing was changed")
    _remove(left)


def is_copy(directory: Path) -> bool:
    """Return True if a directory is a copy that was made here."""
    return (directory / MARK).exists()


def _make_environment(environment: Path) -> Path:
    """Create an empty virtual environment, and return its directory of packages."""
    interpreter = Path(sys.executable).resolve()  # the base interpreter, outside of any environment
    packages = (
        environment / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    )
    for directory in (packages, environment / "bin"):
        directory.mkdir(parents=True)
    (environment / "pyvenv.cfg").write_text(
        f"home = {interpreter.parent}\ninclude-system-site-packages = false\n"
        f"version = {sys.version.split()[0]}\n"
    )
    (environment / "bin" / "python").symlink_to(interpreter)
    return packages


def _needed_distributions() -> Iterator[metadata.Distribution]:
    """Yield the installed distributions that the server needs, except itself."""
    pending, seen = [_DISTRIBUTION], {_DISTRIBUTION}
    while pending:
        name = pending.pop()
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # a requirement of other systems or extras
        if name != _DISTRIBUTION:
            yield distribution
        for text in distribution.requires or ():
            extra = _EXTRA.search(text)
            is_own = name == _DISTRIBUTION
            if extra is not None and (not is_own or extra[1] in _EXCLUDED_EXTRAS):
                continue
            match = _REQUIREMENT.match(text)
            required = "" if match is None else re.sub(r"[-_.]+", "-", match[0]).lower()
            if required and required not in seen:
                seen.add(required)
                pending.append(required)


def _copy_distribution(distribution: metadata.Distribution, packages: Path) -> None:
    if distribution.files is None:
        raise ProgramCopyError(f"package {distribution.name} does not say which files it has")
    for file in distribution.files:
        if ".." in file.parts or "__pycache__" in file.parts:
            continue  # commands, which a server does not need
        source, copy = Path(str(distribution.locate_file(file))), packages / file
        if source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)


def _copy_packages(packages: Path) -> None:
    """Copy our own packages from where they are in use, which may be a checkout."""
    for name in _PACKAGES:
        source = _HOME / name
        if source.is_dir():
            shutil.copytree(source, packages / name, ignore=_NOT_NEEDED)
    distribution = metadata.distribution(_DISTRIBUTION)
    if distribution.files is not None:
        for file in distribution.files:
            if file.parts[0].endswith(".dist-info") and file.name not in _LOCATION_FILES:
                copy = packages / file
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(str(distribution.locate_file(file)), copy)
    for share in _shared():
        shutil.copytree(share, packages.parents[2] / "share" / share.name, dirs_exist_ok=True)


def _shared() -> Iterator[Path]:
    """Yield the directory of documentation and samples, if it is installed."""
    share = Path(sysconfig.get_path("data")) / "share" / _DISTRIBUTION
    if share.is_dir():
        yield share


def _copy_manual(target: Path) -> None:
    """Copy the manual pages; a checkout, like a copy, has them in a directory of its own."""
    files = metadata.distribution(_DISTRIBUTION).files or ()
    installed = [Path(str(file.locate())) for file in files if _MANUAL.fullmatch(file.as_posix())]
    data = Path(sysconfig.get_path("data"))
    pages = data.glob("share/man/*/*") if is_copy(data) else (_HOME / "man").glob("*.[0-9]")
    for page in installed or sorted(pages):
        section = target / f"man{page.suffix[1:]}"
        section.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, section / page.name)


def _write_commands(directory: Path, python: Path) -> None:
    for entry in metadata.distribution(_DISTRIBUTION).entry_points.select(group="console_scripts"):
        command = directory / entry.name
        command.write_text(_SCRIPT.format(python=python, module=entry.module, function=entry.attr))
        command.chmod(0o755)
    scripts = Path(sysconfig.get_path("scripts"))
    for name in _SCRIPTS:
        source = scripts / name
        shutil.copyfile(source if source.exists() else _HOME / "scripts" / name, directory / name)
        (directory / name).chmod(0o755)
