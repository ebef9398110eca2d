"""Bring the libraries of the console into the tree, from their npm packages.

    python scripts/vendor_console.py

For maintainers: the files are in the repository, so nothing is fetched when Amperage is installed.
To move to another version, change it here with the integrity that `npm view NAME@VERSION
dist.integrity` prints, and run this. It needs `npm`.

The files are those of the packages but for one thing: browsers find no module by a bare name, so
what a module imports is named by its path.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
CONSOLE: Final = ROOT / "server/admin/console/static/vendor"
TESTS: Final = ROOT / "tests/admin/console/vendor"


class Package(NamedTuple):
    """A package that is used.

    Attributes:
        name: as npm knows it.
        version: likewise.
        integrity: of its archive, as npm says it.
        licence: which it is.
        use: what for, in a few words.
        files: what is taken from it, and how that is called here.
        into: where it goes.
    """

    name: str
    version: str
    integrity: str
    licence: str
    use: str
    files: Mapping[str, str]
    into: Path = CONSOLE


PACKAGES: Final = (
    Package(
        "preact",
        "11.2.0",
        "sha512-/HfHI/7N84e6GrWBJ3J280z3mLaRJiDcSvj/A+y/4AbLnND/1UlGHe1sR6oYuTGwId0nP7dqDU9OnLxMPZ7xBg==",
        "MIT",
        "components: what is shown follows from what is known",
        {"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "preact-hooks.js"},
    ),
    Package(
        "htm",
        "3.1.1",
        "sha512-983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ==",
        "Apache-2.0",
        "lets components be written as markup, in plain JavaScript",
        {"dist/htm.module.js": "htm.js"},
    ),
    Package(
        "uplot",
        "1.6.32",
        "sha512-KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        "MIT",
        "lines over time",
        {"dist/uPlot.esm.js": "uplot.js", "dist/uPlot.min.css": "uplot.css"},
    ),
    Package(
        "axe-core",
        "4.14.1",
        "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
        "MPL-2.0",
        "rules of accessibility, for tests only",
        {"axe.min.js": "axe.js"},
        TESTS,
    ),
)

_PATHS: Final = {'from"preact"': 'from"./preact.js"'}


def main() -> None:
    """Fetch all packages, and write their files."""
    for into in dict.fromkeys(package.into for package in PACKAGES):
        into.mkdir(parents=True, exist_ok=True)
        for old in into.iterdir():
            old.unlink()
        (into / "README.md").write_text(_readme([one for one in PACKAGES if one.into == into]))
    for package in PACKAGES:
        _bring(package)


def _bring(package: Package) -> None:
    with tempfile.TemporaryDirectory() as directory:
        named = f"{package.name}@{package.version}"
        subprocess.run(["npm", "pack", "--silent", named], cwd=directory, check=True)
        (archive,) = Path(directory).iterdir()
        digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if package.integrity != f"sha512-{digest}":
            sys.exit(f"{named} is not what it was: its integrity is sha512-{digest}")
        with tarfile.open(archive) as files:
            licence = _text(files, "LICENSE")
            (package.into / f"LICENSE.{package.name}").write_text(licence)
            for path, name in package.files.items():
                (package.into / name).write_text(_without_bare_names(_text(files, path)))


def _text(files: tarfile.TarFile, path: str) -> str:
    found = files.extractfile(f"package/{path}")
    if found is None:
        sys.exit(f"{path} is no file")
    return found.read().decode()


def _without_bare_names(source: str) -> str:
    lines = [line for line in source.split("\n") if not line.startswith("//# sourceMappingURL")]
    source = "\n".join(lines)
    for name, path in _PATHS.items():
        source = source.replace(name, path)
    return source


def _readme(packages: list[Package]) -> str:
    rows = [
        f"| {one.name} | {one.version} | {one.licence} | {', '.join(one.files.values())} | "
        f"{one.use} |\n"
        for one in packages
    ]
    return (
        "Libraries of others, written by `scripts/vendor_console.py`; not to be edited.\n\n"
        "| package | version | licence | files | what for |\n|---|---|---|---|---|\n"
        + "".join(rows)
    )


if __name__ == "__main__":
    main()
