"""The client can be taken out: it needs `amperage.wire` of the server, and nothing else of ours."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.support.server import running_server

_ROOT = Path(__file__).parents[2]

_SESSION = """
import sys

directory, libraries, uri = sys.argv[1:]
sys.path += [directory, libraries]

import importlib
import pkgutil

from amperage import client
import amperage.wire

for package in (client, amperage.wire):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)

with client.Client("apart") as connection:
    connection.connect(uri)
    connection.logon()
    with connection.subscribe("orders", filter="/qty > 3") as orders:
        connection.publish("orders", b'{"id": 1, "qty": 2}')
        connection.publish("orders", b'{"id": 2, "qty": 5}')
        print(next(orders).text)
"""


def _not_to_copy(directory: str, names: list[str]) -> set[str]:
    """Besides bytecode, the compiled forms of modules in Python: they are one library."""
    left = {Path(name).stem for name in names if name.endswith(".py")}
    compiled = {name for name in names if name.endswith(".so") and name.partition(".")[0] in left}
    return compiled | {"__pycache__"}.intersection(names)


def test_a_copy_of_the_client_and_of_the_wire_publishes_and_subscribes(tmp_path: Path) -> None:
    apart = tmp_path / "apart"
    for package in ("client", "amperage/wire"):
        shutil.copytree(_ROOT / package, apart / package, ignore=_not_to_copy)
    (apart / "server" / "__init__.py").touch()
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
            timeout=60,
        )
    assert done.stderr == ""
    assert done.stdout == '{"id": 2, "qty": 5}\n'
