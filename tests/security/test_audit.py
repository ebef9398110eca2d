"""The audit trail: who has logged on, what was refused, who has had what done."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from websockets.exceptions import InvalidStatus

from tests.admin.support import ask
from tests.support.raw import RawPeer
from tests.support.server import RunningServer, free_port, running_server
from tests.transports.support import WebsocketClient, transport

NAMED: Final = """
<Authentication>
  <Module>amps-default-authentication-module</Module>
  <Options><AllowSpoofing>true</AllowSpoofing><RequireUsername>true</RequireUsername></Options>
</Authentication>
"""
ACCESS: Final = """
<Entitlement>
  <Module>access</Module>
  <Options><DeniedTopics>^secret|^/amps/administrator/minidump</DeniedTopics></Options>
</Entitlement>
"""
NOBODY: Final = """
<Authentication><Module>amps-default-no-authentication-module</Module></Authentication>
"""

ELEMENTS: Final = """
<Modules><Module>
  <Name>access</Name><Library>libamps_simple_access_entitlement.so</Library>
</Module></Modules>
{named}{access}
<Protocols><Protocol>
  <Name>basic</Name><Module>websocket</Module>
  <WWWAuthenticate>Basic realm="x"</WWWAuthenticate>
</Protocol></Protocols>
<Admin>
  <InetAddr>127.0.0.1:{admin}</InetAddr>
  <WWWAuthenticate>Basic realm="x"</WWWAuthenticate>
</Admin>
<SOW><Topic>
  <Name>/AMPS/Audit</Name><MessageType>json</MessageType>
  <Key>/Audit/event</Key><FileName>audit.sow</FileName>
</Topic></SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>/AMPS/Audit</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<Actions><Action>
  <On><Module>amps-action-on-admin</Module><Options><Path>again</Path></Options></On>
  <Do><Module>amps-action-do-rotate-logs</Module></Do>
  <Do><Module>amps-action-do-nothing</Module></Do>
</Action></Actions>
"""


class Watched:
    """A server, and somebody who reads its audit trail."""

    def __init__(self, server: RunningServer, reader: RawPeer, **ports: int) -> None:
        self.server = server
        self.reader = reader
        self.ports = ports

    def next(self, event: str, **expected: object) -> dict[str, Any]:
        """The next event of a kind that is about somebody."""
        while True:
            body = json.loads(self.reader.receive()[1])["Audit"]
            if body["event"] == event and expected.items() <= body.items():
                return dict(body)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    ports = {name: free_port() for name in ("admin", "nobody", "basic", "closed", "second")}
    transports = "".join(
        transport(name, "tcp", f"<InetAddr>127.0.0.1:{ports[name]}</InetAddr>{elements}")
        for name, elements in (
            ("nobody", NOBODY),
            ("basic", f"<Protocol>basic</Protocol>{NOBODY}"),
            ("second", ""),
            (
                "closed",
                "<Entitlement><Module>amps-default-no-entitlement-module</Module></Entitlement>",
            ),
        )
    )
    elements = ELEMENTS.format(named=NAMED, access=ACCESS, **ports)
    directory = tmp_path_factory.mktemp("audit")
    with (
        running_server(directory, transports=transports, elements=elements) as server,
        server.log_on("reader", user_id="auditor") as reader,
    ):
        assert reader.subscribe("/AMPS/Audit", "a")["status"] == "success"
        yield Watched(server, reader, **ports)


def log_on(port: int, name: str, user: str, password: str = "hidden-pw") -> dict[str, Any]:
    with RawPeer(port) as peer:
        header = {"c": "logon", "cid": "1", "mt": "json", "a": "processed", "client_name": name}
        return peer.ask(header | {"user_id": user, "pw": password})


def test_logons_are_told(watched: Watched) -> None:
    assert log_on(watched.server.port, "desk", "ann")["status"] == "success"
    event = watched.next("logon", auth_id="ann")
    assert re.fullmatch(r"127\.0\.0\.1:\d+", event.pop("client_address"))
    assert re.fullmatch(r"\d{8}T\d{6}\.\d+Z", event.pop("timestamp"))
    assert event == {
        "event": "logon",
        "auth_id": "ann",
        "client_name": "desk",
        "transport": "any-tcp",
        "module": "amps-default-authentication-module",
        "action": None,
        "resource": None,
        "reason": "authentication disabled",
    }
    assert watched.server.logs("25-0080 User 'ann' has logged on from 127.0.0.1:")


@pytest.mark.parametrize(
    ("port", "user", "module", "reason"),
    [
        ("nobody", "eve", "amps-default-no-authentication-module", "no user may log on"),
        ("closed", "mallory", "amps-default-authentication-module", ""),
    ],
)
def test_logons_that_are_refused_are_told(
    watched: Watched, port: str, user: str, module: str, reason: str
) -> None:
    """By the authentication module, and by the entitlement module."""
    assert log_on(watched.ports[port], "burglar", user)["status"] == "failure"
    event = watched.next("logon_refused", auth_id=user)
    assert (event["transport"], event["client_name"]) == (port, "burglar")
    assert event["module"] == module
    assert (event["reason"] or "").startswith(reason)
    assert watched.server.logs(f"25-0081 Logon denied for user '{user}' from 127.0.0.1:")


def test_a_handshake_that_is_refused_is_told(watched: Watched) -> None:
    shown = base64.b64encode(b"web-user:hidden-pw").decode()
    url = f"ws://127.0.0.1:{watched.ports['basic']}/amps/json"
    headers = {"Authorization": f"Basic {shown}"}
    with (
        pytest.raises(InvalidStatus),
        WebsocketClient(url, additional_headers=headers),
    ):
        pass
    event = watched.next("logon_refused", auth_id="web-user")
    assert event["transport"] == "basic"
    assert event["reason"].startswith("no user may log on")


@pytest.mark.parametrize(
    ("command", "action", "resource"),
    [
        ({"c": "subscribe", "t": "secret"}, "read from", "secret"),
        ({"c": "sow", "t": "secret", "query_id": "q"}, "read from", "secret"),
        ({"c": "publish", "t": "secrets"}, "write to", "secrets"),
        ({"c": "sow_delete", "t": "secret", "filter": "1=1"}, "write to", "secret"),
    ],
)
def test_what_is_not_entitled_is_told_with_the_rule(
    watched: Watched, command: dict[str, Any], action: str, resource: str
) -> None:
    user = f"{command['c']} user"
    with watched.server.log_on("curious", user_id=user) as peer:
        assert peer.ask(command | {"cid": "1", "a": "processed"})["status"] == "failure"
    event = watched.next("refused", auth_id=user)
    assert (event["action"], event["resource"]) == (action, resource)
    assert event["client_name"] == "curious"
    assert event["reason"].startswith("DeniedTopics ^secret")
    said = f" to {action} {resource}: DeniedTopics ^secret"
    assert watched.server.logs(said)


def basic(user: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:hidden-pw".encode()).decode()


def test_what_happens_at_the_admin_interface_is_told(watched: Watched) -> None:
    """A logon is told once, whatever number of requests brings the credentials."""
    admin = watched.ports["admin"]
    for _ in range(3):
        assert ask(admin, "/amps/instance/name", Authorization=basic("boss")).status == 200
    event = watched.next("logon", auth_id="boss")
    assert event["transport"] == "amps-admin"
    assert ask(admin, "/amps", Authorization=basic("")).status == 401
    event = watched.next("logon_refused", transport="amps-admin")
    assert event["reason"] == "a user name is required"
    assert ask(admin, "/amps/administrator/minidump", Authorization=basic("boss")).status == 403
    event = watched.next("refused", auth_id="boss")
    assert event["resource"] == "/amps/administrator/minidump"
    assert event["reason"].startswith("DeniedTopics ")
    path = "/amps/administrator/transports/second/disable"
    assert ask(admin, path, Authorization=basic("boss")).status == 200
    event = watched.next("action", auth_id="boss")
    assert event["action"] == path
    assert watched.server.logs(f"25-0083 {path} executed, requested by user boss from 127.0.0.1:")
    assert watched.server.log().count("25-0080 User 'boss'") == 1


def test_what_actions_do_is_told(watched: Watched) -> None:
    """That of a step which an operator might have taken as well, with what has set it off."""
    path = "/amps/administrator/actions/again"
    assert ask(watched.ports["admin"], path, Authorization=basic("boss")).status == 200
    assert watched.next("action", auth_id="boss")["action"] == path
    event = watched.next("action", auth_id=None)
    assert event["action"] == "amps-action-do-rotate-logs"
    assert event["resource"]
    assert "25-0083 amps-action-do-nothing" not in watched.server.log()


def test_whoever_tries_again_and_again_fills_neither_log_nor_trail(watched: Watched) -> None:
    """Others are seen all the same."""
    with watched.server.log_on("flood", user_id="flooder") as peer:
        for _ in range(30):
            peer.ask({"c": "subscribe", "t": "secret", "cid": "1", "a": "processed"})
    with watched.server.log_on("other", user_id="other") as peer:
        peer.ask({"c": "subscribe", "t": "secret", "cid": "1", "a": "processed"})
    for _ in range(10):
        watched.next("refused", auth_id="flooder")
    assert watched.next("refused")["auth_id"] == "other"
    assert watched.server.logs("25-0082 Permission denied for user 'flooder'", times=10)


def test_whoever_tries_to_log_on_again_and_again_does_not_fill_the_log(watched: Watched) -> None:
    """Neither as client nor at the admin interface, under whatever names."""
    for number in range(20):
        log_on(watched.ports["nobody"], "", f"guess {number}")
        shown = base64.b64encode(b"x").decode()  # which is no name and password
        ask(watched.ports["admin"], "/amps/instance/name", Authorization=f"Basic {shown}")
    for entry in ("19-0008 ", " logon command refused: "):
        assert watched.server.logs(entry)
        assert watched.server.log().count(entry) < 20


def test_clients_cannot_write_the_trail(watched: Watched) -> None:
    with watched.server.log_on("forger", user_id="forger") as peer:
        publish = {"c": "publish", "t": "/AMPS/Audit", "cid": "1", "a": "processed"}
        peer.send(publish, b'{"Audit":{"event":"logon"}}')
        assert peer.receive_header()["status"] == "failure"


def test_the_trail_is_kept_where_a_topic_is_configured(watched: Watched) -> None:
    """As records, and in the transaction log."""
    log_on(watched.server.port, "kept", "kept-user")
    watched.next("logon", auth_id="kept-user")
    with watched.server.log_on("historian", user_id="historian") as peer:
        peer.send({"c": "subscribe", "cid": "1", "sub_id": "1", "t": "/AMPS/Audit", "bm": "0"})
        first = json.loads(peer.receive()[1])["Audit"]
        assert (first["event"], first["auth_id"]) == ("logon", "auditor")
    with watched.server.log_on("librarian", user_id="librarian") as peer:
        query = {"c": "sow", "cid": "2", "query_id": "2", "t": "/AMPS/Audit"}
        peer.send(query | {"filter": "/Audit/event = 'logon' AND /Audit/auth_id = 'librarian'"})
        assert peer.receive()[0]["c"] == "group_begin"
        header, body = peer.receive()
        assert header["c"] == "sow"
        assert b'"client_name":"librarian"' in body


def test_what_a_client_calls_itself_cannot_make_up_entries(watched: Watched) -> None:
    """A line of the log that begins in the middle of a name is none."""
    log_on(watched.ports["nobody"], "x", "eve\n2026-01-01T00:00:00 info: 25-0080 User 'root'")
    watched.next("logon_refused", client_name="x")
    assert not re.search(r"^2026-01-01T00:00:00", watched.server.log(), re.MULTILINE)


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path) as server:
        yield server


@pytest.mark.parametrize(
    ("topic", "is_meant"),
    [(".*", False), ("^/A", False), ("Audit$", False), ("^/AMPS/", True), ("/AMPS/A.*", True)],
)
def test_an_expression_means_the_trail_if_it_names_it(
    plain: RunningServer, topic: str, is_meant: bool
) -> None:
    """Programs written for AMPS, which has no such topic, meet no unknown messages."""
    with plain.log_on("reader") as reader, plain.log_on("writer") as writer:
        reader.subscribe("mark", "1")
        reader.send({"c": "subscribe", "cid": "2", "sub_id": "2", "t": topic, "a": "processed"})
        while reader.receive()[0].get("cid") != "2":
            pass  # the subscription is an event that it may hear of
        with plain.log_on("other"):
            pass
        writer.send({"c": "publish", "t": "mark"}, b"{}")
        heard = set()
        while "mark" not in heard:
            heard.add(reader.receive()[0].get("t"))
    assert ("/AMPS/Audit" in heard) is is_meant


@pytest.mark.parametrize("message_type", ["xml", "fix", "nvfix", "bson", "msgpack"])
def test_the_trail_is_there_in_other_types(plain: RunningServer, message_type: str) -> None:
    with plain.log_on("reader", message_type) as reader:
        reader.subscribe("/AMPS/Audit", "1")
        with plain.log_on("other", message_type):
            body = reader.receive()[1]
    assert b"other" in body
