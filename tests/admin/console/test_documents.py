"""What the console asks for besides statistics: the graph, expressions, actions, the log."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.admin.support import Admin, running_admin
from tests.support.waiting import WAIT_SECONDS, wait_until

ELEMENTS = """
<SOW>
  <Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key><Durability>transient</Durability></Topic>
  <View>
    <Name>totals</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
    <Projection><Field>/id</Field><Field>COUNT(/id) AS /n</Field></Projection>
    <Grouping><Field>/id</Field></Grouping>
  </View>
</SOW>
<Actions>
  <Action>
    <On><Module>amps-action-on-schedule</Module><Options><Every>1h</Every></Options></On>
    <Do>
      <Module>amps-action-do-delete-sow</Module>
      <Options>
        <MessageType>json</MessageType><Topic>orders</Topic><Filter>/id = 1</Filter>
      </Options>
    </Do>
  </Action>
  <Action>
    <On><Module>amps-action-on-admin</Module><Options><Path>fail</Path></Options></On>
    <If>
      <Module>amps-action-if-condition</Module>
      <Options><Condition>{{really}} = 1</Condition></Options>
    </If>
    <Do>
      <Module>amps-action-do-execute-system</Module>
      <Options><Command>exit 3</Command></Options>
    </Do>
  </Action>
</Actions>
"""


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    with running_admin(tmp_path_factory.mktemp("console"), elements=ELEMENTS) as running:
        yield running


def test_the_graph_says_what_does_something_for_what(admin: Admin) -> None:
    found = admin.tree("/console/graph.json")
    names = [(node["kind"], node["name"], node["message_type"]) for node in found["nodes"]]
    assert ("SOW topic", "orders", "json") in names
    assert ("view", "totals", "json") in names
    edges = {
        (names[edge["source"]][0], edge["label"], names[edge["target"]][1])
        for edge in found["edges"]
    }
    assert ("SOW topic", "fed by", "totals") in edges
    assert ("action", "acted on by", "orders") in edges


@pytest.mark.parametrize(
    ("kind", "text", "position"),
    [
        ("filter", "/a > 1 AND /b LIKE '^x'", None),
        ("filter", "/a > ", 5),
        ("filter", "/a = 'x", 5),
        ("filter", "NO_SUCH(/a) = 1", 0),
        ("order_by", "/a DESC, /b", None),
        ("order_by", "/a SIDEWAYS", 3),
        ("projection", "SUM(/a) AS /total", None),
        ("projection", "SUM(/a", 6),
        ("select", "-/,+/a", None),
    ],
)
def test_expressions_are_checked_as_commands_check_them(
    admin: Admin, kind: str, text: str, position: int | None
) -> None:
    found = admin.tree(f"/console/check.json?{urlencode({'kind': kind, 'text': text})}")
    assert found["ok"] is (position is None), found
    if position is not None:
        assert found["position"] == position
        assert found["message"]


@pytest.mark.parametrize(
    ("query", "status"),
    [("kind=poem&text=x", 400), ("text=x", 400), ("kind=filter", 200)],
)
def test_what_cannot_be_checked_is_refused(admin: Admin, query: str, status: int) -> None:
    assert admin.ask(f"/console/check.json?{query}").status == status


def test_actions_tell_when_they_ran_and_what_came_of_it(admin: Admin) -> None:
    def on_admin() -> Any:
        return next(
            action
            for action in admin.tree("/console/actions.json")["actions"]
            if action["triggers"]
            == [{"module": "amps-action-on-admin", "options": [["Path", "fail"]]}]
        )

    before = on_admin()["runs"]
    assert admin.ask("/amps/administrator/actions/fail?really=0").status == 200
    wait_until(lambda: on_admin()["runs"] == before + 1)
    assert on_admin()["last"]["ended_by"] == "amps-action-if-condition"
    assert on_admin()["last"]["failure"] == ""
    admin.ask("/amps/administrator/actions/fail?really=1")
    wait_until(lambda: on_admin()["runs"] == before + 2)
    assert on_admin()["failures"] == 1
    assert "3" in on_admin()["last_failure"]["failure"]


def test_actions_tell_when_they_run_next(admin: Admin) -> None:
    actions = admin.tree("/console/actions.json")["actions"]
    modules = [each["triggers"][0]["module"] for each in actions]
    scheduled = actions[modules.index("amps-action-on-schedule")]
    assert scheduled["runs"] == 0
    assert scheduled["last"] is None
    assert scheduled["next_run"] > 1.7e9


def follow(admin: Admin, last: int | None = None) -> socket.socket:
    known = "" if last is None else f"Last-Event-ID: {last}\r\n"
    connection = socket.create_connection(("127.0.0.1", admin.port), WAIT_SECONDS)
    connection.sendall(
        f"GET /console/log HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{known}\r\n".encode()
    )
    return connection


def entries_until(connection: socket.socket, text: str) -> list[Any]:
    """What comes up to the entry that has a text in it."""
    stream = connection.makefile("rb")
    found: list[Any] = []
    for line in stream:
        if line.startswith(b"data: "):
            found += json.loads(line.removeprefix(b"data: "))
            if any(text in entry["text"] for entry in found):
                return found
    raise AssertionError(f"the server closed the connection before {text!r}")


def test_the_log_is_told_from_what_is_kept_on(admin: Admin) -> None:
    with follow(admin) as connection:
        found = entries_until(connection, "00-0015")
        assert [entry["number"] for entry in found] == list(range(1, len(found) + 1))
        assert {"level", "text", "number"} == set(found[0])
        with admin.server.log_on("somebody-new"):
            later = entries_until(connection, "somebody-new")
    assert later[0]["number"] > found[-1]["number"]
    with follow(admin, later[-1]["number"]) as connection, admin.server.log_on("another"):
        again = entries_until(connection, "another")
    assert again[0]["number"] == later[-1]["number"] + 1


def test_an_entry_with_line_ends_and_markup_stays_one_entry(admin: Admin) -> None:
    with (
        follow(admin) as connection,
        admin.server.log_on("<script>\nalert(1)"),
    ):
        found = entries_until(connection, "<script>")
    assert any("alert(1)" in entry["text"] for entry in found)


def test_whoever_may_not_see_the_console_sees_none_of_it(tmp_path: Path) -> None:
    refuse = (
        "<Entitlement><Module>amps-default-no-entitlement-module</Module></Entitlement>"
        "<AnonymousPaths>^/amps</AnonymousPaths>"
    )
    with running_admin(tmp_path, refuse) as admin:
        for path in ("graph.json", "check.json?kind=filter&text=1", "actions.json", "log"):
            assert admin.ask(f"/console/{path}").status == 403, path


def test_the_log_is_not_for_pages_of_other_sites(admin: Admin) -> None:
    """Nor is the tree, where nobody has to log on."""
    assert admin.ask("/console/log", origin="http://evil.example").status == 403
    assert admin.ask("/amps.json", origin="http://evil.example").status == 403
    assert admin.ask("/amps.json", origin="http://localhost:3000").status == 200
