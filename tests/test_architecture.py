"""docs/architecture.md tells the truth: what it names is there, and its walks are what happens."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.as_written import running_as_written, started
from tests.support.server import CONFIGURATION, free_port
from tests.support.waiting import WAIT_SECONDS
from tests.support.walks import PAGE, ROOT, TRACE, walks

WALKS: Final = walks()
PARTS: Final = """
<SOW>
  <Topic>
    <Name>records</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>records.sow</FileName>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>safe</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""

TRACED: Final = "tests.support.walks"


def definitions(module: Path) -> set[str]:
    """The qualified names of the classes and functions of a module."""

    def walk(node: ast.AST, prefix: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield prefix + child.name
                yield from walk(child, f"{prefix}{child.name}.")

    return set(walk(ast.parse(module.read_text()), ""))


def module_of(name: str) -> tuple[Path, str]:
    """The file of the module that a name begins with, and the rest of the name."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        path = ROOT.joinpath(*parts[:length])
        for module in (path.with_suffix(".py"), path / "__init__.py"):
            if module.is_file():
                return module, ".".join(parts[length:])
    raise AssertionError(f"{name}: there is no such module")


def elsewhere(qualified: str) -> list[str]:
    """The modules that have a class or function of this name."""
    return [
        str(module.relative_to(ROOT))
        for folder in ("actions", "amperage", "config_schema", "pipeline", "server")
        for module in sorted((ROOT / folder).rglob("*.py"))
        if qualified in definitions(module)
    ]


@pytest.mark.parametrize("heading", WALKS)
def test_the_functions_of_a_walk_exist(heading: str) -> None:
    for name in WALKS[heading]:
        module, qualified = module_of(name)
        assert qualified in definitions(module), f"{name}: now in {elsewhere(qualified)}"


def test_the_walks_are_drawn() -> None:
    assert len(WALKS) == 3
    assert all(len(walk) > 10 for walk in WALKS.values())


def test_the_modules_in_the_text_exist() -> None:
    found = [*ROOT.glob("*.py"), *ROOT.glob("[!.]*/**/*.py")]  # not the libraries in .venv
    files = {path.as_posix() for path in found}
    named = set(re.findall(r"`([\w/]+\.py)`", PAGE.read_text()))
    assert len(named) > 30
    assert [path for path in named if not any(file.endswith(f"/{path}") for file in files)] == []


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The functions of the walks that a server has called, in their order.

    It prints what a configuration means, runs it, and has clients that do what the walks are about.
    Calls within compiled modules cannot be seen, so that it runs everything as it is written.
    """
    directory = tmp_path_factory.mktemp("walked")
    port = free_port()
    text = CONFIGURATION.format(port=port, elements=PARTS, transports="", level="info")
    (directory / "config.xml").write_text(text)
    shown = directory / "shown.txt"
    show = started(directory, shown, "--graph", "config.xml", module=TRACED)
    assert show.wait(4 * WAIT_SECONDS) == 0, shown.read_text()
    with running_as_written(directory, text, port, TRACED) as server:
        subscriber, publisher = server.log_on("subscriber"), server.log_on("publisher")
        subscriber.subscribe("orders", "1", filter="/qty > 3")
        for body in (b'{"qty": 4}', b'{"qty": 5}'):  # the second has a header that is known
            publisher.publish("orders", body)
            assert subscriber.receive()[1] == body
        for number in range(1, 4):
            publisher.publish("safe", b"{}", cid=str(number), s=number, a="persisted")
            assert publisher.receive_header()["s"] == number
    return (directory / TRACE).read_text().split()


@pytest.mark.parametrize("heading", WALKS)
def test_a_walk_is_what_happens(heading: str, walked: list[str]) -> None:
    calls = iter(walked)
    for name in WALKS[heading]:
        assert name in calls, f"{name} is not called after what stands before it"
