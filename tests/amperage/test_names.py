"""The name that nothing else has, beside applications that have our packages' names."""

from __future__ import annotations

import inspect
import os
import pickle
import re
import subprocess
import sys
from enum import Enum
from importlib import metadata
from pathlib import Path

import pytest

import amperage
from amperage import client
from amperage.wire.header import Header
from tests.support.waiting import WAIT_SECONDS

ROOT = Path(__file__).parents[2]
PACKAGES = ("amperage", "amperage/client", "server", "config_schema", "actions", "pipeline")


def run(directory: Path, *words: str, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=directory,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_SECONDS,
    )
    return done.returncode, done.stdout, done.stderr


def test_it_has_what_the_client_has() -> None:
    assert all(getattr(amperage, name) is getattr(client, name) for name in client.__all__)
    assert set(dir(amperage)) == {*client.__all__, "__version__"}
    with pytest.raises(AttributeError, match="no attribute 'Klient'"):
        amperage.Klient  # type: ignore[attr-defined]  # noqa: B018 - what is tested


def test_public_names_belong_to_the_module_amperage() -> None:
    """By the module that it names, and by what completion offers of an object."""
    assert amperage.__version__ == metadata.version("amperage")
    made = [getattr(amperage, name) for name in client.__all__]
    assert {it.__module__ for it in made if hasattr(it, "__qualname__")} == {"amperage"}
    error = amperage.BadFilterError("subscribe", "bad filter")
    assert type(pickle.loads(pickle.dumps(error))) is client.BadFilterError


COMMANDS = {
    "acknowledge",
    "close",
    "confirmed_acknowledge",
    "confirmed_publish",
    "connect",
    "delta_publish",
    "drain",
    "flush",
    "flush_acks",
    "heartbeat",
    "is_connected",
    "name",
    "publish",
    "publish_all",
    "sow",
    "sow_and_subscribe",
    "sow_delete",
    "statistics",
    "subscribe",
    "unsubscribe",
}
STREAM = {"backlog", "batch", "done", "id", "join", "next", "unsubscribe"}
STORES = {"bookmark_store", "publish_flush", "publish_store", "server"}
URIS = ["tcp://localhost:1/amps"]


@pytest.mark.parametrize(
    ("made", "names"),
    [
        (client.Client(), COMMANDS | {"logon", "publish_columns"}),
        (client.AsyncClient(), COMMANDS | {"logon"}),
        (client.HAClient(URIS), COMMANDS | STORES | {"publish_columns"}),
        (client.AsyncHAClient(URIS), COMMANDS | STORES),
        (client.MessageStream, STREAM),
        (client.AsyncMessageStream, STREAM),
        (
            client.Message(Header(), b""),
            {"ack", "body", "bookmark", "cancel", "command", "correlation_id", "decode", "expire"}
            | {"extend", "value"}
            | {"header", "is_leased", "json", "sow_key", "sub_id", "text", "timestamp", "topic"},
        ),
    ],
)
def test_completion_offers_what_is_documented(made: object, names: set[str]) -> None:
    assert {name for name in dir(made) if not name.startswith("_")} == names


@pytest.mark.parametrize(
    "kind", [it for it in map(client.__dict__.get, client.__all__) if isinstance(it, type)]
)
def test_help_has_a_sentence_and_each_argument(kind: type) -> None:
    """Of the class; errors are made by the client alone."""
    text = inspect.getdoc(kind) or ""
    assert text, kind
    if issubclass(kind, (Exception, Enum)) or getattr(kind, "_is_protocol", False):
        return
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD and kind not in _MADE_BY_THE_CLIENT:
            assert re.search(rf"^ +{name}[:,]|^ +.*, {name}:", text, re.MULTILINE), (kind, name)


_MADE_BY_THE_CLIENT = {
    client.AsyncMessageStream,
    client.BookmarkTrail,
    client.ConnectionEvent,
    client.Message,
    client.MessageStream,
}


def test_an_application_keeps_its_own_client_and_server(tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text("WHO = 'the application'")
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "__init__.py").write_text("WHO = 'the application'")
    (tmp_path / "app.py").write_text(
        "import sys; sys.path.append(sys.argv[1])\n"
        "import client\n"
        "from amperage import *\n"
        "import server\n"
        "print(client.WHO, server.WHO, HAClient.__name__, Client())\n"
    )
    code, said, complained = run(tmp_path, "app.py", str(ROOT))
    assert (code, complained) == (0, "")
    assert said.startswith("the application the application HAClient <Client client-")


def test_a_type_checker_knows_the_client_beside_modules_of_an_application(tmp_path: Path) -> None:
    for name in ("client", "server", "actions", "wire"):
        (tmp_path / f"{name}.py").write_text("WHO = 'the application'")
    (tmp_path / "app.py").write_text(
        "import amperage\n"
        "from amperage import Client\n"
        "reveal_type(Client('a').publish('orders', b''))\n"
        "Client('a').publsh('orders', b'')\n"
        "amperage.Klient\n"
    )
    _, said, _ = run(tmp_path, "-m", "mypy", "--strict", "app.py")
    assert 'Revealed type is "int"' in said or 'Revealed type is "None"' in said
    assert '"Client" has no attribute "publsh"' in said
    assert 'Module has no attribute "Klient"' in said


def test_a_command_says_who_has_the_name_of_its_package(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("")
    start = "import sys; from amperage.scripts import spark; sys.exit(spark())"
    code, said, complained = run(ROOT / "docs", "-c", start, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert (code, said) == (1, "")
    assert complained == (
        f"{tmp_path / 'server.py'} has the name of Amperage's package server and comes before it:"
        " rename it, or take its directory off PYTHONPATH\n"
    )


def test_types_are_shipped_with_every_package() -> None:
    """What a wheel is made of has the markers of PEP 561."""
    text = (
        "from setuptools import Distribution\n"
        "made = Distribution()\n"
        "made.parse_config_files(['pyproject.toml'])\n"
        "build = made.get_command_obj('build_py')\n"
        "build.ensure_finalized()\n"
        "build.manifest_files = {}\n"
        "for name in made.packages: print(*build.find_data_files(name, name.replace('.', '/')))\n"
    )
    code, said, complained = run(ROOT, "-c", text)
    assert code == 0, complained
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(said.split())


@pytest.mark.parametrize("name", ["amps", "amps-journal"])
def test_a_format_that_spark_finds_says_who_has_the_name_of_its_package(
    tmp_path: Path, name: str
) -> None:
    """An error when Spark imports it would take everybody's formats away."""
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "__init__.py").write_text("")
    program = USE.format(name=name, package=f"pyspark_{name.replace('-', '_')}")
    code, said, complained = run(tmp_path, "-c", program, PYTHONPATH=str(ROOT))
    assert (code, said) == (0, ""), complained
    assert f"format {name}: {tmp_path}" in complained
    assert "has the name of Amperage's package pipeline and comes before it" in complained


def test_a_format_that_spark_finds_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ImportError('there is no Arrow')")
    program = USE.format(name="amps", package="pyspark_amps")
    code, said, complained = run(tmp_path, "-c", program, PYTHONPATH=str(ROOT))
    assert (code, said) == (0, ""), complained
    assert "format amps: there is no Arrow; it takes PySpark 4.3 or newer" in complained
    assert "pip install 'amperage[pipeline]'" in complained


USE = """
import sys
from {package} import DefaultSource
assert DefaultSource.name() == "{name}"
for use in ("schema", "reader", "streamReader"):
    try:
        getattr(DefaultSource({{}}), use)(*[None] * (use != "schema"))
    except Exception as error:
        print(error, file=sys.stderr)
    else:
        print("no error")
"""
