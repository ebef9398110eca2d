"""`amperage-client`: pure Python from the same sources, installed without a compiler."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.support.server import running_server
from tests.support.waiting import WAIT_SECONDS

_ROOT = Path(__file__).parents[2]
_MADE = shutil.ignore_patterns("__pycache__", "*.so", "*.c", "build", "*.egg-info")

_SESSION = """
import sys

directory, libraries, uri = sys.argv[1:]
sys.path += [directory, libraries]

import importlib
import pkgutil

import amperage
from amperage.client.block_client import BlockClient

for module in pkgutil.walk_packages(amperage.__path__, "amperage."):
    assert importlib.import_module(module.name).__file__.startswith(directory), module
assert not {"server", "config_schema"} & set(sys.modules)

with BlockClient("apart") as connection:
    connection.connect(uri)
    connection.logon()
    with connection.subscribe("orders", filter="/qty > 3") as orders:
        for number in range(1000):
            connection.publish("orders", b'{"id": 1, "qty": %d}' % number)
        texts = [next(orders).text for _ in range(996)]
        print(texts[0], texts[-1])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what it takes of a checkout."""
    root = tmp_path_factory.mktemp("checkout")
    for folder in ("amperage", "packaging"):
        shutil.copytree(_ROOT / folder, root / folder, ignore=_MADE)
    (root / "config_schema").mkdir()
    shutil.copy(_ROOT / "config_schema" / "version.py", root / "config_schema")
    code = "from setuptools import build_meta; build_meta.build_wheel('.')"
    where = root / "packaging" / "client"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=where, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    [made] = where.glob("*.whl")
    return made


def test_it_is_for_every_python_and_has_the_client_alone(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    modules = {name for name in names if name.endswith(".py")}
    assert {name.partition("/")[0] for name in modules} == {"amperage"}
    assert {str(path.relative_to(_ROOT)) for path in (_ROOT / "amperage/client").glob("*.py")} < {
        *modules
    }
    assert "amperage/py.typed" in names
    assert not [name for name in names if name.endswith((".so", ".pyx", ".c"))]


def test_it_publishes_and_subscribes(wheel: Path, tmp_path: Path) -> None:
    apart = tmp_path / "apart"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(apart)
    # Without `site`, an installation of the project in this environment is out of reach.
    python = (sys.executable, "-I", "-S", "-c", _SESSION)
    with running_server(tmp_path) as server:
        uri = f"tcp://127.0.0.1:{server.port}/amps/json"
        libraries = sysconfig.get_path("purelib")
        done = subprocess.run(
            [*python, str(apart), libraries, uri],
            check=False,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
        )
    assert done.stderr == ""
    assert done.stdout == '{"id": 1, "qty": 4} {"id": 1, "qty": 999}\n'
