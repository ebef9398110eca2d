"""After a reload of any element, all that shows the configuration shows the new one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.admin.support import Admin, running_admin
from tests.cli.reload_support import configuration, edit, reloaded
from tests.cli.test_ctl import ctl
from tests.cli.topic_elements import conflated, queue, recorded, topic, view
from tests.sql.support import TRANSPORT, SqlServer
from tests.support.server import free_port
from tests.support.waiting import wait_until
from tests.transports.support import transport

SQL_PORT: Final = free_port()
ELEMENTS: Final = f"""
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>in-.*</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<SOW>{topic("plain")}</SOW>
<Modules></Modules>
<Actions></Actions>
"""
INET: Final = f"<InetAddr>127.0.0.1:{free_port()}</InetAddr><Protocol>amps</Protocol>"
ACTION: Final = """
<Action>
  <On><Module>amps-action-on-schedule</Module><Options><Every>17h</Every></Options></On>
  <Do><Module>amps-action-do-echo-message</Module>
    <Options><Message>shown-echo</Message></Options></Do>
</Action>
"""
TARGET: Final = """
<Target><Protocol>file</Protocol><FileName>shown.log</FileName><Level>error</Level></Target>
"""
SQL_NAMES: Final = "SELECT string_agg(relname, ' ') FROM pg_catalog.pg_class"
GRAPH: Final = "/console/graph.json"


@dataclass(frozen=True)
class Case:
    """An element that a reload adds and removes.

    Attributes:
        section: where it is.
        element: its text.
        text: the text by which it is known.
        paths: the paths of the admin interface that show it, besides the configuration.
        in_sql: whether it is in the catalogue of SQL.
        is_removable: whether a reload removes it.
    """

    section: str
    element: str
    text: str
    paths: tuple[str, ...]
    in_sql: bool = False
    is_removable: bool = True


CASES: Final = {
    "topic": Case(
        "SOW",
        topic("shown"),
        "shown",
        ("/amps/instance/sow.json", "/amps/administrator/sow.json", GRAPH),
        in_sql=True,
    ),
    "container": Case(
        "SOW",
        topic("shown", "<Pattern>^shown-</Pattern><Durability>transient</Durability>"),
        "shown",
        ("/amps/instance/sow.json", GRAPH),
        in_sql=True,
    ),
    "view": Case(
        "SOW", view("shown", "plain"), "shown", ("/amps/instance/views.json", GRAPH), in_sql=True
    ),
    "conflated topic": Case(
        "SOW",
        conflated("shown", "plain"),
        "shown",
        ("/amps/instance/conflated_topics.json", GRAPH),
        in_sql=True,
    ),
    "queue": Case(
        "SOW",
        queue("shown", "in-x"),
        "shown",
        ("/amps/instance/queues.json", "/amps/administrator/queues.json", GRAPH),
        in_sql=True,
    ),
    "recorded topic": Case(
        "TransactionLog", recorded("lasting"), "lasting", (), is_removable=False
    ),
    "transport": Case(
        "Transports",
        transport("shown", "tcp", INET),
        "shown",
        ("/amps/instance/transports.json", "/amps/administrator/transports.json", GRAPH),
    ),
    "action": Case("Actions", ACTION, "17h", ("/console/actions.json",)),
    "log target": Case(
        "Logging", TARGET, "shown.log", ("/amps/administrator/logging/targets.json", GRAPH)
    ),
}


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    directory: Path = tmp_path_factory.mktemp("server")
    sql = TRANSPORT.format(port=SQL_PORT, type="tcp", elements="")
    with running_admin(directory, elements=ELEMENTS, transports=sql) as running:
        yield running


def shows(admin: Admin, case: Case, path: str, *, wanted: bool) -> None:
    """Wait until a path shows an element, or does not; some show the last sample."""
    wait_until(
        lambda: (case.text in admin.ask(path).text) == wanted,
        lambda: f"{path}: {admin.ask(path).text}",
    )


def check(admin: Admin, case: Case, *, wanted: bool) -> None:
    """Check all that shows the configuration."""
    for path in ("/amps/instance/config.xml", *case.paths):
        shows(admin, case, path, wanted=wanted)
    assert ctl(admin, "reload", "--dry-run").stdout == "There are no differences.\n"
    if case.in_sql:
        with SqlServer(admin.server, SQL_PORT).connect() as connection:
            row = connection.execute(SQL_NAMES).fetchone()
            assert row is not None
            assert (case.text in row[0].split()) == wanted, row


@pytest.mark.parametrize("name", CASES)
def test_an_element_is_shown_from_the_reload_on(admin: Admin, name: str) -> None:
    case = CASES[name]
    edit(admin, f"</{case.section}>", f"{case.element}</{case.section}>")
    reloaded(admin)
    check(admin, case, wanted=True)
    if case.is_removable:
        edit(admin, case.element, "")
        reloaded(admin)
        check(admin, case, wanted=False)


def test_included_files_are_watched_and_backed_up_from_the_reload_on(tmp_path: Path) -> None:
    part = tmp_path / "part.xml"
    part.write_text("<MessageMemoryLimit>20MB</MessageMemoryLimit>")
    with running_admin(
        tmp_path, "<BackupDirectory>backups</BackupDirectory>", elements=ELEMENTS
    ) as admin:
        edit(admin, "</AMPSConfig>", "<Include>part.xml</Include></AMPSConfig>")
        reloaded(admin)
        part.write_text("<MessageMemoryLimit>30MB</MessageMemoryLimit>")
        assert admin.server.logs("part.xml has been modified")
        assert admin.ask("/amps/administrator/backup").status == 200
        wait_until(lambda: any(tmp_path.glob("backups/*/**/part.xml")), admin.server.log)
        edit(admin, "<Include>part.xml</Include>", "")
        reloaded(admin)
        text = configuration(admin.server).read_text()
        assert "part.xml" not in text


def test_the_console_shows_the_transport_for_queries_of_the_moment(tmp_path: Path) -> None:
    ports = [free_port() for _ in range(2)]
    web = transport(
        "web", "tcp", f"<InetAddr>127.0.0.1:{ports[0]}</InetAddr><Protocol>websocket</Protocol>"
    )
    with running_admin(
        tmp_path, "<SQLTransport>web</SQLTransport>", elements=ELEMENTS, transports=web
    ) as admin:
        for port in ports:
            edit(admin, str(ports[0]), str(port)) if port != ports[0] else None
            reloaded(admin)
            assert admin.ask("/console/session.json").json["queries"].endswith(f":{port}")
            assert f":{port}" in admin.ask("/").headers["content-security-policy"]
