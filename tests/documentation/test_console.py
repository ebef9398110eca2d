"""What the pages say to type prints what they say it prints.

The commands of a page that starts servers find what it has started; those of all others share one
server, which runs `server.xml`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.documentation.fences import ROOT, fences, python_files
from tests.documentation.sessions import RUNS_ON, Ports, Session, Typed, typed

HERE: Final = Path(__file__).parent
COMMANDS: Final = [command for fence in fences("console") for command in typed(fence)]
PAGES: Final = list(dict.fromkeys(command.fence.page for command in COMMANDS))


def commands_of(page: str) -> list[Typed]:
    return [command for command in COMMANDS if command.fence.page == page]


def starts_servers(page: str) -> bool:
    found = (RUNS_ON.search(command.command) for command in commands_of(page))
    return any(match["server"] for match in found if match)


def provide(session: Session, folder: str) -> None:
    """Put into a session what a page, or all of them, take to be there."""
    session.provide(ROOT / "sample_configs", "sample_configs")
    if (HERE / "files" / folder).is_dir():
        session.provide(HERE / "files" / folder, ".")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """The session in which the pages are followed that start no server."""
    with Session(tmp_path_factory.mktemp("shared"), Ports()) as session:
        provide(session, "all")
        session.run(Typed(COMMANDS[0].fence, "ampServer server.xml", ()))
        yield session


@pytest.mark.parametrize("page", [page for page in PAGES if not starts_servers(page)])
def test_the_commands_of_a_page_do_what_it_says(page: str, shared: Session) -> None:
    follow(page, shared)


@pytest.mark.parametrize("page", [page for page in PAGES if starts_servers(page)])
def test_the_servers_of_a_page_do_what_it_says(page: str, tmp_path: Path) -> None:
    with Session(tmp_path, Ports()) as session:
        session.seem_installed()
        follow(page, session)


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/howto-")])
def test_how_to_pages_start_the_server_that_they_use(page: str) -> None:
    """A reader begins there, and has nothing running."""
    talks = [one for one in commands_of(page) if "localhost:" in one.command]
    assert starts_servers(page) or not talks


def follow(page: str, session: Session) -> None:
    """Type all commands of a page."""
    provide(session, "all")
    provide(session, Path(page).stem)
    session.write(python_files(page))
    with session.page():
        for command in commands_of(page):
            session.run(command)
