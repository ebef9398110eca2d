"""libamps_http_entitlement.so: a web service says who may log on, and what they may do."""

from __future__ import annotations

import base64
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.admin.support import ask
from tests.security.http_support import ADMIN, ANN, MODULE, REFUSED, basic, log_on, refused, served
from tests.support.raw import RawPeer
from tests.support.server import free_port, running_server
from tests.support.waiting import wait_until
from tests.support.web_service import Asked, Reply, document, everything, web_service


def test_a_service_says_who_may_log_on(tmp_path: Path) -> None:
    with served(tmp_path, basic({"ann": "good"}), level="trace") as (server, service):
        with server.connect() as peer:
            assert peer.log_on(user_id="ann", pw="good")["status"] == "success"
            peer.publish("orders", b"{}")
            peer.flush()
        assert service.paths() == ["/ann.json"] * 2
        assert "authorization" not in service.asked[0].headers
        assert service.asked[0].headers["accept"] == "application/json"
        assert refused(log_on(server, "ann", "secret-of-bob"), REFUSED)
        assert server.logs("the web service answers with status 403"), server.log()
        assert "secret-of-bob" not in server.log()


def test_what_the_document_says_is_what_a_user_may_do(tmp_path: Path) -> None:
    topics = [
        {"topic": "test", "read": True, "write": False},
        {"topic": "^secret", "read": False, "write": False},
        {"topic": "no", "read": False},
        {"topic": "n", "read": False, "write": True},
        {"topic": "^(orders|news|no)$", "read": True, "write": True},
    ]
    answer = basic({"ann": "1"}, lambda _: document(logon=True, topic=topics))
    with served(tmp_path, answer) as (server, _):
        for topic, reads, writes in (
            ("test", True, False),
            ("secrets", False, False),
            ("no", False, False),  # the first entry that is about it counts
            ("n", False, True),
            ("nn", False, False),  # a name is no expression
            ("orders", True, True),
            ("orders2", False, False),
        ):
            for command, may in (("subscribe", reads), ("publish", writes)):
                with server.connect() as peer:
                    assert peer.log_on(user_id="ann", pw="1")["status"] == "success"
                    ack = peer.ask({"c": command, "cid": "1", "t": topic, "a": "processed"}, b"{}")
                    assert ack["status"] == ("success" if may else "failure"), (command, topic)
                    assert may or ack["reason"] == "not entitled"


@pytest.mark.parametrize(
    ("fields", "status"),
    [({"logon": False}, "failure"), ({}, "failure"), ({"logon": True}, "success")],
)
def test_logon_is_a_permission(tmp_path: Path, fields: dict[str, Any], status: str) -> None:
    with served(tmp_path, lambda _: document(topic=[], **fields)) as (server, _):
        ack = log_on(server, "ann", "")
        assert ack["status"] == status
        assert ack.get("reason") == ("" if status == "success" else "not entitled")


@pytest.mark.parametrize(
    ("user", "path"),
    [
        (r"DOMAIN\ann", "/DOMAIN%5Cann.json"),
        ("a/b", "/a%2Fb.json"),
        ("a b?c#d%&", "/a%20b%3Fc%23d%25%26.json"),
        ("jürgen", "/j%C3%BCrgen.json"),
        ("..", "/...json"),
        ("{{AMPS_PASSWORD}}", "/%7B%7BAMPS_PASSWORD%7D%7D.json"),
    ],
)
def test_names_of_users_cannot_lead_elsewhere(tmp_path: Path, user: str, path: str) -> None:
    with served(tmp_path, basic({user: "pw"})) as (server, service):
        assert log_on(server, user, "pw")["status"] == "success"
        assert service.paths() == [path] * 2


def test_a_name_that_is_a_path_is_not_asked_about(tmp_path: Path) -> None:
    with web_service(lambda _: everything()) as service:
        text = MODULE.format(port=service.port, options="").replace(".json", "")
        with running_server(tmp_path, elements=text) as server:
            assert refused(log_on(server, "..", "pw"), REFUSED)
            assert refused(log_on(server, "ann\r\nX: y", "pw"), REFUSED)
            assert log_on(server, "...", "pw")["status"] == "success"
        assert service.paths() == ["/..."]


def test_headers_have_what_the_client_shows(tmp_path: Path) -> None:
    tokens = ["CLIENT_NAME", "CONNECTION_NAME", "CORRELATION_ID", "MESSAGE_TYPE", "PASSWORD"]
    tokens += ["REMOTE_ADDRESS", "USER_NAME"]
    options = "".join(
        f"<HTTPHeader>x-{token}: &lt;{{{{AMPS_{token}}}}}&gt;</HTTPHeader>" for token in tokens
    )
    options += "<HTTPHeader>x-tracking-id: {{CORRELATION_ID}}</HTTPHeader>"
    options += "<HTTPHeader>X-Origin: AMPS</HTTPHeader>"
    with served(tmp_path, lambda _: everything(), options) as (server, service):
        ack = log_on(server, "ann", "p\r\nw: {{AMPS_USER_NAME}}", name="c1", x="id-7")
        assert ack["status"] == "success"
        found = service.asked[0].headers
        assert found["x-password"] == "<pw: {{AMPS_USER_NAME}}>"
        assert (found["x-client_name"], found["x-user_name"]) == ("<c1>", "<ann>")
        assert (found["x-correlation_id"], found["x-tracking-id"]) == ("<id-7>", "id-7")
        assert found["x-message_type"] == "<json>"
        assert "127.0.0.1" in found["x-remote_address"]
        assert "any-tcp" in found["x-connection_name"]
        assert found["x-origin"] == "AMPS"
        assert "w" not in found


def test_an_access_token_may_be_the_password(tmp_path: Path) -> None:
    """A header of its own says it all: there is nothing to answer to a challenge."""

    def answer(asked: Asked) -> Reply:
        if asked.headers.get("authorization") == "Bearer tok.en":
            return everything(user_name="ann")
        return Reply(401, b"", {"WWW-Authenticate": 'Basic realm="x"'})

    options = (
        "<HTTPHeader>Authorization: Bearer {{AMPS_PASSWORD}}</HTTPHeader>"
        "<ServerAcceptsEmptyAuthId>true</ServerAcceptsEmptyAuthId>"
    )
    with served(tmp_path, answer, options) as (server, service):
        assert log_on(server, "", "tok.en")["status"] == "success"
        assert server.logs("authid           = 'ann'")
        assert refused(log_on(server, "", "other"), REFUSED)
        assert service.paths() == ["/.json"] * 2


def test_without_a_name_nobody_is_asked(tmp_path: Path) -> None:
    with served(tmp_path, lambda _: everything(user_name="ann")) as (server, service):
        assert refused(log_on(server, "", "tok.en"), "a user name is required")
        assert service.asked == []


def test_the_document_may_name_the_user(tmp_path: Path) -> None:
    answer = basic({"ann": "1"}, lambda _: everything(user_name="guest"))
    with served(tmp_path, answer) as (server, _):
        assert log_on(server, "ann", "1")["status"] == "success"
        assert server.logs("authid           = 'guest'")


def test_who_shows_the_same_is_asked_about_once(tmp_path: Path) -> None:
    """At one time, that is; another password is another question."""
    go = Event()

    def answer(asked: Asked) -> Reply:
        go.wait(60)
        return everything() if asked.headers["x-password"] == "good" else Reply(403)

    options = (
        "<HTTPHeader>x-password: {{AMPS_PASSWORD}}</HTTPHeader>"
        "<RequestTimeout>60000</RequestTimeout>"
    )
    with served(tmp_path, answer, options) as (server, service), ExitStack() as stack:
        peers = [stack.enter_context(server.connect()) for _ in range(120)]
        for number, peer in enumerate(peers):
            peer.send(
                {
                    "c": "logon",
                    "cid": "1",
                    "mt": "json",
                    "a": "processed",
                    "client_name": f"c{number}",
                    "user_id": "ann",
                    "pw": "bad" if number % 3 == 0 else "good",
                }
            )
        with server.connect() as other:  # who comes last is obeyed last
            assert refused(other.log_on(user_id="", pw=""), "a user name is required")
        wait_until(lambda: len(service.asked) == 2)
        go.set()
        for number, peer in enumerate(peers):
            status = "failure" if number % 3 == 0 else "success"
            assert peer.receive_header()["status"] == status
        assert len(service.asked) == 2


def test_refusals_are_remembered_for_a_moment(tmp_path: Path) -> None:
    with served(tmp_path, lambda _: Reply(403)) as (server, service):
        for _ in range(9):  # of more, the service would not be asked in any case
            assert refused(log_on(server, "ann", "bad"), REFUSED)
        assert len(service.asked) < 9


def test_a_slow_service_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    go = Event()

    def answer(asked: Asked) -> Reply:
        if asked.path != "/quick.json":
            go.wait(60)
        return everything()

    options = "<RequestTimeout>60000</RequestTimeout>"
    port = free_port()
    transport = (
        f"<Transport><Name>open</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>"
        "<Protocol>amps</Protocol>"
        "<Authentication><Module>amps-default-authentication-module</Module></Authentication>"
        "<Entitlement><Module>amps-default-entitlement-module</Module></Entitlement></Transport>"
    )
    with (
        served(tmp_path, answer, options, transports=transport) as (server, service),
        ExitStack() as stack,
    ):
        quick = stack.enter_context(server.connect())
        assert quick.log_on("quick", user_id="quick", pw="x")["status"] == "success"
        slow = [stack.enter_context(server.connect()) for _ in range(250)]
        for number, peer in enumerate(slow):
            header = {"c": "logon", "cid": "1", "mt": "json", "a": "processed", "pw": "x"}
            peer.send(header | {"client_name": f"s{number}", "user_id": f"u{number}"})
        wait_until(lambda: len(service.asked) > 50)
        for _ in range(3):
            quick.flush()
        with RawPeer(port) as other:
            assert other.log_on("other")["status"] == "success"
            other.flush()
        go.set()
        for peer in slow:
            assert peer.receive_header()["status"] == "success"


def test_what_was_said_first_counts_until_a_user_has_gone(tmp_path: Path) -> None:
    said = [False]
    answer = basic({"ann": "1"}, lambda _: everything(topic=[{"topic": "t", "read": said[0]}]))
    with served(tmp_path, answer) as (server, _):
        with server.connect() as first, server.connect() as second:
            first.log_on("first", user_id="ann", pw="1")
            said[0] = True
            second.log_on("second", user_id="ann", pw="1")
            assert second.subscribe("t", "1")["status"] == "failure"
        assert server.logs("disconnected. Reason: connection closed", 2)
        with server.connect() as third:
            third.log_on("third", user_id="ann", pw="1")
            assert third.subscribe("t", "1")["status"] == "success"


def test_permissions_may_end_before_their_user_goes(tmp_path: Path) -> None:
    said = [False]
    answer = basic(
        {"ann": "1", "bob": "2"}, lambda _: everything(topic=[{"topic": "t", "read": said[0]}])
    )
    options = "<EntitlementTimeout>1ms</EntitlementTimeout>"
    with served(tmp_path, answer, options) as (server, _), ExitStack() as stack:
        first, same, bob, second = (stack.enter_context(server.connect()) for _ in range(4))
        first.log_on("first", user_id="ann", pw="1")
        same.log_on("same", user_id="ann", pw="1")
        bob.log_on("bob", user_id="bob", pw="2")
        first.flush()  # the same document ends nothing
        said[0] = True
        assert second.log_on("second", user_id="ann", pw="1")["status"] == "success"
        assert first.is_disconnected()
        assert same.is_disconnected()
        assert second.subscribe("t", "1")["status"] == "success"
        bob.flush()
        assert server.logs("info: 25-0032 the permissions of user ann have changed")


def test_who_is_reset_has_to_come_again(tmp_path: Path) -> None:
    said = [False]
    port = free_port()
    answer = basic({"ann": "1"}, lambda _: everything(topic=[{"topic": "t", "read": said[0]}]))
    with (
        served(tmp_path, answer, elements=ADMIN.format(port=port)) as (server, service),
        server.connect() as first,
        server.connect() as second,
    ):
        first.log_on("first", user_id="ann", pw="1")
        said[0] = True
        path = "/amps/administrator/authorization/authentication/reset"
        assert ask(port, path, authorization=ANN).status == 200
        path = "/amps/administrator/authorization/entitlement/reset"
        assert ask(port, path, authorization=ANN).status == 200
        assert first.is_disconnected()
        assert second.log_on("second", user_id="ann", pw="1")["status"] == "success"
        assert second.subscribe("t", "1")["status"] == "success"
        assert service.asked


def test_the_admin_interface_asks_the_same_service(tmp_path: Path) -> None:
    port = free_port()
    paths = [
        {"topic": "^/amps/instance", "read": True, "write": False},
        {"topic": "^/amps$", "read": True},
        {"topic": ".*", "read": False, "write": False},
    ]
    answer = basic({"ann": "1"}, lambda _: document(admin=paths))
    with served(tmp_path, answer, elements=ADMIN.format(port=port)):
        assert ask(port, "/amps/instance/name").status == 401
        reply = ask(port, "/amps/instance/name", authorization=ANN)
        assert reply.status == 200
        assert ask(port, "/amps/administrator", authorization=ANN).status == 403
        cookie = reply.headers["set-cookie"].partition(";")[0]
        assert ask(port, "/amps/instance/name", cookie=cookie).status == 200
        assert ask(port, "/amps/administrator", cookie=cookie).status == 403
        other = "Basic " + base64.b64encode(b"ann:2").decode()
        assert ask(port, "/amps/instance/name", authorization=other).status == 401


RESET = """
<Actions><Action>
  <On><Module>amps-action-on-admin</Module><Options><Path>reset</Path></Options></On>
  <Do><Module>amps-action-do-reset-entitlement</Module></Do>
</Action></Actions>
"""


def test_a_cookie_stands_for_what_is_known_still(tmp_path: Path) -> None:
    port = free_port()
    answer = basic({"ann": "1", "bob": "2"})
    elements = ADMIN.format(port=port) + RESET
    with served(tmp_path, answer, elements=elements):
        path = "/amps/instance/name"
        cookie = ask(port, path, authorization=ANN).headers["set-cookie"].partition(";")[0]
        assert ask(port, path, cookie=cookie).status == 200
        bob = "Basic " + base64.b64encode(b"bob:2").decode()
        assert ask(port, "/amps/administrator/actions/reset", authorization=bob).status == 200
        wait_until(lambda: ask(port, path, cookie=cookie).status == 401)
        assert ask(port, path, cookie=cookie, authorization=ANN).status == 200
        assert ask(port, path, cookie=cookie).status == 200


def test_the_same_credentials_are_not_checked_for_everything_that_a_page_asks(
    tmp_path: Path,
) -> None:
    port = free_port()
    answer = basic({"ann": "1"})
    with served(tmp_path, answer, elements=ADMIN.format(port=port)) as (_, service):
        for _ in range(20):
            assert ask(port, "/amps/instance/name", authorization=ANN).status == 200
        assert len(service.asked) < 20
        other = "Basic " + base64.b64encode(b"ann:2").decode()
        assert ask(port, "/amps/instance/name", authorization=other).status == 401


STORE = "<CredentialStore>s</CredentialStore>"


@pytest.mark.parametrize(
    ("here", "there", "same", "allowed"),
    [("", "", False, True), (STORE, STORE, True, True), ("", STORE, False, False)],
)
def test_stores_are_shared_by_their_names(
    tmp_path: Path, here: str, there: str, same: bool, allowed: bool
) -> None:
    """With the same store, what was said first of a user counts; without, each transport's own."""

    def answer(asked: Asked) -> Reply:
        return everything(topic=[{"topic": asked.path.split("/")[1], "read": True}])

    port = free_port()
    with web_service(answer) as service:
        uri = f"<ResourceURI>http://127.0.0.1:{service.port}/b/{{{{USER_NAME}}}}</ResourceURI>"
        transport = (
            f"<Transport><Name>b</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>"
            "<Protocol>amps</Protocol>"
            f"<Authentication><Module>web</Module><Options>{uri}{here}</Options></Authentication>"
            f"<Entitlement><Module>web</Module><Options>{uri}{there}</Options></Entitlement>"
            "</Transport>"
        )
        text = MODULE.format(port=service.port, options=here).replace("/{{USER", "/a/{{USER")
        with (
            running_server(tmp_path, elements=text, transports=transport) as server,
            server.connect() as first,
            RawPeer(port) as second,
        ):
            assert first.log_on("first", user_id="ann", pw="1")["status"] == "success"
            ack = second.log_on("second", user_id="ann", pw="1")
            if not allowed:
                assert ack["reason"] == "not entitled"
                assert server.logs("warning: 25-0033 user ann has no permissions")
                return
            assert ack["status"] == "success"
            expected = "a" if same else "b"
            for topic in ("a", "b"):
                may = second.subscribe(topic, topic)["status"] == "success"
                assert may == (topic == expected)
