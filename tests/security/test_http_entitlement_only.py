"""EntitlementOnly: somebody else authenticates, and the web service says what users may do."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Final

import pytest

from tests.admin.support import ask
from tests.support.server import free_port, running_server
from tests.support.waiting import wait_until
from tests.support.web_service import Asked, Reply, document, everything, web_service

ONLY: Final = """
<Modules>
  <Module>
    <Name>web</Name><Library>libamps_http_entitlement.so</Library>
    <Options><EntitlementOnly/></Options>
  </Module>
</Modules>
<Authentication>
  <Module>amps-default-authentication-module</Module>
  <Options><AllowSpoofing>true</AllowSpoofing></Options>
</Authentication>
<Entitlement>
  <Module>web</Module>
  <Options>
    <ResourceURI>http://127.0.0.1:{port}/users/{{{{USER_NAME}}}}</ResourceURI>
    <HTTPHeader>x-user: {{{{AMPS_USER_NAME}}}}-{{{{AMPS_PASSWORD}}}}</HTTPHeader>
    {options}
  </Options>
</Entitlement>
"""


def test_the_service_is_asked_once_about_a_user(tmp_path: Path) -> None:
    def answer(asked: Asked) -> Reply:
        return everything(user_name="root") if asked.path == "/users/ann" else document()

    with web_service(answer) as service:
        elements = ONLY.format(port=service.port, options="")
        with running_server(tmp_path, elements=elements) as server:
            for _ in range(3):
                with server.connect() as peer:
                    assert peer.log_on(user_id="ann", pw="s3cret")["status"] == "success"
                    assert peer.subscribe("t", "1")["status"] == "success"
            with server.connect() as peer:
                assert peer.log_on(user_id="bob")["reason"] == "not entitled"
            with server.connect() as peer:
                assert peer.log_on()["reason"] == "not entitled"
            assert server.logs("authid           = 'ann'")
        assert service.paths() == ["/users/ann", "/users/bob"]
        assert service.asked[0].headers["x-user"] == "ann-"


def test_the_service_may_be_asked_about_nobody_in_particular(tmp_path: Path) -> None:
    options = "<ServerAcceptsEmptyAuthId>true</ServerAcceptsEmptyAuthId>"
    with web_service(lambda _: everything()) as service:
        elements = ONLY.format(port=service.port, options=options)
        with running_server(tmp_path, elements=elements) as server:
            server.log_on()
        assert service.paths() == ["/users/"]


def test_a_reset_asks_anew(tmp_path: Path) -> None:
    answers = [everything(topic=[]), everything()]
    port = free_port()
    admin = (
        f"<Admin><InetAddr>127.0.0.1:{port}</InetAddr><Entitlement>"
        "<Module>amps-default-entitlement-module</Module></Entitlement></Admin>"
    )
    with web_service(lambda _: answers.pop(0)) as service:
        elements = ONLY.format(port=service.port, options="") + admin
        with running_server(tmp_path, elements=elements) as server, server.connect() as first:
            first.log_on(user_id="ann")
            assert first.subscribe("t", "1")["status"] == "failure"
            assert ask(port, "/amps/administrator/authorization/entitlement/reset").status == 200
            assert first.is_disconnected()
            with server.connect() as second:
                assert second.log_on(user_id="ann")["status"] == "success"
                assert second.subscribe("t", "1")["status"] == "success"


@pytest.mark.parametrize("reply", [Reply(403), Reply(500), Reply(200, b"no")])
def test_without_an_answer_nothing_is_allowed(tmp_path: Path, reply: Reply) -> None:
    with web_service(lambda _: reply) as service:
        elements = ONLY.format(port=service.port, options="")
        with running_server(tmp_path, elements=elements) as server:
            with server.connect() as peer:
                assert peer.log_on(user_id="ann")["reason"] == "not entitled"
            assert server.logs("web service ")


def test_who_comes_at_a_time_is_asked_about_once(tmp_path: Path) -> None:
    go = Event()

    def answer(_: Asked) -> Reply:
        go.wait(60)
        return everything()

    with web_service(answer) as service:
        options = "<RequestTimeout>60000</RequestTimeout>"
        elements = ONLY.format(port=service.port, options=options)
        with running_server(tmp_path, elements=elements) as server, ExitStack() as stack:
            peers = [stack.enter_context(server.connect()) for _ in range(50)]
            for number, peer in enumerate(peers):
                header = {"c": "logon", "cid": "1", "mt": "json", "a": "processed"}
                peer.send(header | {"client_name": f"c{number}", "user_id": "ann"})
            wait_until(lambda: len(service.asked) == 1)
            go.set()
            for peer in peers:
                assert peer.receive_header()["status"] == "success"
        assert len(service.asked) == 1
