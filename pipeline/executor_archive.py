"""An archive of the pipeline for executors, in one file that Spark distributes.

Spark imports Python from zip files (`--py-files`), but no compiled modules, which the pipeline also
has. An archive is unpacked by Spark in the working directory of an executor.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from pipeline.errors import PipelineError
from pipeline.files import new_path

DIRECTORY: Final = "amperage"
"""The directory of the unpacked archive on executors."""

_US: Final = "amperage"
_HOME: Final = Path(__file__).parents[1]
_PACKAGES: Final = (
    "actions",
    "amperage",
    "config_schema",
    "pipeline",
    "pyspark_amps",
    "pyspark_amps_journal",
    "server",
)
_NOT_SHIPPED: Final = frozenset({".c", ".pxd", ".pyx", ".pyc"})
_OF_SPARK: Final = frozenset({"numpy", "pyarrow"})
"""Large libraries that executors need for any Python code, and therefore have."""
_SUFFIXES: Final = (".tar.gz", ".tgz")
_NAME: Final = re.compile(r"[\w.-]+", re.ASCII)
_QUICK: Final = 1
"""The compression level: low, because the archive is sent once."""


def make_archive(path: Path) -> str:
    """Write the archive; see `pipeline.archive`."""
    if not path.name.endswith(_SUFFIXES):
        raise PipelineError(f"{path}: expected a name ending in {' or '.join(_SUFFIXES)}")
    try:
        ours = distribution(_US)
    except PackageNotFoundError:
        raise PipelineError(
            "Amperage is not installed in this environment, so that its dependencies are unknown;"
            " install it with pip"
        ) from None
    with (
        new_path(path) as temporary,
        tarfile.open(temporary, "w:gz", compresslevel=_QUICK) as archive,
    ):
        for source, name in _files(ours):
            archive.add(source, name, recursive=False)
    return f"{path}#{DIRECTORY}"


def _files(ours: Distribution) -> Iterator[tuple[Path, str]]:
    """Yield the files of the archive, with their names in it."""
    for package in _PACKAGES:
        for path in sorted((_HOME / package).rglob("*")):
            if path.is_file() and path.suffix not in _NOT_SHIPPED:
                yield path, str(path.relative_to(_HOME))
    for library in _libraries(ours, {_US}):
        for file in library.files or ():
            if file.parts[0] != ".." and file.suffix not in _NOT_SHIPPED:
                yield Path(str(file.locate())), str(file)


def _libraries(needing: Distribution, seen: set[str]) -> Iterator[Distribution]:
    """Yield the libraries that a distribution requires, without its extras, recursively."""
    for requirement in needing.requires or ():
        match = _NAME.match(requirement)
        name = "" if match is None else re.sub(r"[-_.]+", "-", match[0]).lower()
        if name in seen or name in _OF_SPARK or "extra ==" in requirement:
            continue
        seen.add(name)
        try:
            library = distribution(name)
        except PackageNotFoundError:  # for another system, or another Python
            continue
        yield library
        yield from _libraries(library, seen)
