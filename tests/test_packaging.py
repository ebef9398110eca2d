"""What is shipped: sources that can be built, packages that bring their pages, a server of its own.

The tree is copied first, without anything that is made from it, as a fresh checkout is: what an
earlier build has left behind would hide what is missing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.support.server import COMMAND

ROOT = Path(__file__).parents[1]
MADE = (".*", "*.egg-info", "build", "dist", "__pycache__", "*.so", "*.c")
SHIPPED_FOLDERS = ("benchmarks", "docs", "man", "sample_configs", "server", "tests")


def run(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=os.environ | environment,
    )


def build(kind: str, source: Path) -> Path:
    """Have the build backend make a distribution, as pip does."""
    out = source / "out"
    code = f"from setuptools import build_meta; build_meta.build_{kind}({str(out)!r})"
    made = run(sys.executable, "-c", code, cwd=source)
    assert made.returncode == 0, made.stderr
    return next(out.iterdir())


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh checkout."""
    path = tmp_path_factory.mktemp("checkout") / "amperage"
    shutil.copytree(ROOT, path, ignore=shutil.ignore_patterns(*MADE))
    return path


@pytest.fixture(scope="module")
def source_archive(checkout: Path) -> Path:
    """Its source distribution, built in a copy of it."""
    return build("sdist", Path(shutil.copytree(checkout, checkout.with_name("copy"))))


def test_the_source_distribution_has_what_a_checkout_has(
    checkout: Path, source_archive: Path
) -> None:
    """Sources of compiled modules, pages, samples and tests; nothing that is made from them."""
    with tarfile.open(source_archive) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for folder in SHIPPED_FOLDERS:
        files = {path for path in (checkout / folder).rglob("*") if path.is_file()}
        assert {str(path.relative_to(checkout)) for path in files} - names == set()
    assert {"Makefile", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md"} <= names
    assert not [name for name in names if name.startswith("server/") and name.endswith(".c")]


def test_a_wheel_is_built_from_the_source_distribution(
    source_archive: Path, tmp_path: Path
) -> None:
    """It brings the manual pages, the documentation and the samples, and no generated C."""
    assert run("tar", "-xf", str(source_archive), cwd=tmp_path).returncode == 0
    with zipfile.ZipFile(build("wheel", next(tmp_path.iterdir()))) as wheel:
        names = wheel.namelist()
    shared = {name.partition(".data/data/share/")[2] for name in names}
    for path in (ROOT / "man").iterdir():
        assert f"man/man{path.suffix[1:]}/{path.name}" in shared
    for folder in ("docs", "sample_configs"):
        for path in (ROOT / folder).rglob("*.*"):
            assert f"amperage/{path.relative_to(ROOT)}" in shared
    assert [name for name in names if re.search(r"json_fields.*\.so$", name)]
    assert not [name for name in names if name.endswith((".c", ".pyx", ".pxd"))]


@pytest.fixture
def without_spark(tmp_path: Path) -> dict[str, str]:
    """An environment in which the libraries of the pipeline seem not to be installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["pipeline"]
    libraries = [re.split(r"\W", requirement, maxsplit=1)[0] for requirement in extra]
    assert "pyspark" in libraries
    for library in libraries:
        (tmp_path / f"{library}.py").write_text(
            f"raise ModuleNotFoundError(\"No module named '{library}'\", name='{library}')\n"
        )
    return {"PYTHONPATH": f"{tmp_path}:{ROOT}"}


def test_server_tools_and_client_do_without_spark(
    tmp_path: Path, without_spark: dict[str, str]
) -> None:
    """No module of theirs, wherever it is used, needs what only the pipeline needs."""
    code = (
        "import pkgutil, importlib, actions, client, config_schema, server\n"
        "for package in (actions, client, config_schema, server):\n"
        "    for module in pkgutil.walk_packages(package.__path__, f'{package.__name__}.'):\n"
        "        importlib.import_module(module.name)\n"
    )
    done = run(sys.executable, "-c", code, cwd=tmp_path, **without_spark)
    assert (done.returncode, done.stderr) == (0, "")
    version = run(*COMMAND, "--version", cwd=tmp_path, **without_spark)
    assert version.returncode == 0


@pytest.mark.parametrize("arguments", [("--help",), ("stats", "journal")])
def test_the_pipeline_says_what_to_install(
    tmp_path: Path, without_spark: dict[str, str], arguments: tuple[str, ...]
) -> None:
    """One line, also for who only asks for help."""
    done = run(sys.executable, "-m", "pipeline.cli", *arguments, cwd=tmp_path, **without_spark)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        r"amps-pipeline: Spark is not installed \(no module \w+\); "
        r"in a checkout of Amperage: pip install '\.\[pipeline\]', or make install\n",
        done.stderr,
    )


@pytest.mark.parametrize("goal", ["run", "test"])
def test_make_says_that_python_is_too_old(tmp_path: Path, goal: str) -> None:
    """Before anything is made, and how to name another."""
    old = tmp_path / "python-old"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2 && exit\nexit 1\n')
    old.chmod(0o755)
    for name in ("Makefile", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "server").mkdir()
    done = run("make", goal, f"PYTHON={old}", cwd=tmp_path)
    assert done.returncode != 0
    assert f"needs Python 3.11 or newer, and {old} is Python 3.9.2." in done.stderr
    assert f"make {goal} PYTHON=python3.12" in done.stderr
    assert not (tmp_path / ".venv").exists()
