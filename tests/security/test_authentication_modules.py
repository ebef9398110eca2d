"""Authentication modules in Python: they may wait, ask back, and fail."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.admin.support import ask
from tests.support.raw import RawPeer
from tests.support.server import RunningServer, free_port, running_server, why_no_start
from tests.support.waiting import wait_until

LIBRARY: Final = '''
import asyncio
from pathlib import Path

from server.security.authentication import Admission, Challenge

class Door:
    """What it does is the password."""

    async def authenticate(self, credentials, previous):
        user, password = credentials.user, credentials.password
        if password == "slow":
            while not Path("open").exists():
                await asyncio.sleep(0.01)
        elif password == "ask":
            return Admission(False, "", "once more", challenge=Challenge(user + "!", "what?"))
        elif password == "answer":
            told = previous is not None and previous.challenge.password == "what?"
            return Admission(told, user, "told" if told else "not asked", token="proof")
        elif password == "raise":
            raise LookupError("no such directory")
        elif password == "odd":
            return True
        elif password == "exit":
            raise SystemExit(3)
        elif password == "truthy":
            return Admission("false", "admin", "")
        elif password == "number":
            return Admission(True, 5, "")
        elif password == "header":
            return Admission(True, "a\\r\\nb", "")
        elif password == "words":
            return Admission(False, "", "", challenge="nonsense")
        elif password == "half":
            return Admission(False, "", "not \\ud800")
        elif password == "both":
            return Admission(True, user, "", challenge=Challenge(user, "7 + 4"))
        elif password != "good":
            return Admission(False, "", f"not for {user} from {credentials.origin.transport}")
        return Admission(True, user, "")

def create_authentication(name, options):
    if "Bad" in options:
        raise ValueError("Bad is not good")
    return Door()
'''

MODULES: Final = """
<Modules><Module><Name>door</Name><Library>./door.py</Library></Module></Modules>
<Authentication><Module>door</Module></Authentication>
<Replication/>
"""

WEBSOCKET: Final = """
<Transport>
  <Name>any-ws</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>
  <Protocol>websocket</Protocol>
</Transport>
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    (tmp_path / "door.py").write_text(LIBRARY)
    elements = MODULES.replace("<Replication/>", "")
    with running_server(tmp_path, elements=elements) as running:
        yield running


def log_on(peer: RawPeer, user: str, password: str) -> dict[str, object]:
    return peer.ask(logon(user, password))


def logon(user: str, password: str) -> dict[str, str]:
    return {
        "c": "logon",
        "cid": "1",
        "mt": "json",
        "a": "processed",
        "user_id": user,
        "pw": password,
        "client_name": f"{user}'s program",
    }


def test_a_module_decides(server: RunningServer) -> None:
    with server.connect() as peer:
        assert log_on(peer, "ann", "good")["status"] == "success"
        assert server.logs("authid           = 'ann'")
    with server.connect() as peer:
        ack = log_on(peer, "bob", "bad")
        assert (ack["status"], ack["reason"]) == ("failure", "auth failure")
        assert ack["detail"] == "not for bob from any-tcp"
        assert peer.is_disconnected()


def test_whoever_waits_for_a_decision_keeps_nobody_waiting(
    server: RunningServer, tmp_path: Path
) -> None:
    """What a client sends behind its logon waits; others are served, and log on, meanwhile."""
    with ExitStack() as stack:
        waiting = [stack.enter_context(server.connect()) for _ in range(20)]
        for number, peer in enumerate(waiting):
            peer.send(logon(f"w{number}", "slow"))
            peer.send({"c": "subscribe", "cid": "2", "t": "news", "a": "processed"})
        quick = stack.enter_context(server.connect())
        assert log_on(quick, "quick", "good")["status"] == "success"
        for _ in range(3):
            quick.flush()
        gone = stack.enter_context(server.connect())
        gone.send(logon("gone", "slow"))
        gone.socket.close()
        (tmp_path / "open").touch()
        for peer in waiting:
            assert [peer.receive_header()["status"] for _ in range(2)] == ["success"] * 2
        quick.publish("news", b"{}")
        for peer in waiting:
            assert peer.receive()[1] == b"{}"


def test_a_module_may_ask_back(server: RunningServer) -> None:
    with server.connect() as peer:
        ack = log_on(peer, "ann", "ask")
        assert (ack["status"], ack["user_id"], ack["pw"]) == ("retry", "ann!", "what?")
        ack = log_on(peer, "ann", "answer")
        assert (ack["status"], ack["pw"]) == ("success", "proof")
        peer.flush()
    with server.connect() as peer:
        assert log_on(peer, "ann", "answer")["detail"] == "not asked"


def test_until_it_is_answered_nothing_else_is_obeyed(server: RunningServer) -> None:
    with server.connect() as peer:
        assert log_on(peer, "ann", "ask")["status"] == "retry"
        ack = peer.subscribe("t", "1")
        assert (ack["status"], ack["reason"]) == ("failure", "auth failure")
        assert peer.is_disconnected()


@pytest.mark.parametrize(
    ("password", "said"),
    [
        ("raise", r"door\.py:\d+: LookupError: no such directory"),
        ("odd", "expected an Admission, not bool"),
        ("exit", "SystemExit: 3"),
        ("truthy", "granted: expected True or False, not str"),
        ("number", "user: expected a text, not int"),
        ("header", "user: expected a name without control characters"),
        ("words", "challenge: expected a Challenge, not str"),
        ("half", "reason: expected Unicode text, not half of a surrogate pair"),
        ("both", "expected either granted or a challenge, not both"),
    ],
)
def test_a_module_that_fails_lets_nobody_in(
    server: RunningServer, password: str, said: str
) -> None:
    with server.connect() as peer:
        ack = log_on(peer, "ann", password)
        assert (ack["status"], ack["reason"]) == ("failure", "auth failure")
        assert ack["detail"] == "the credentials cannot be checked at the moment"
        assert peer.is_disconnected()
    pattern = f"25-0003 .*module door .*{said}"
    wait_until(lambda: re.search(pattern, server.log()) is not None)
    with server.connect() as peer:
        assert log_on(peer, "bob", "good")["status"] == "success"


def test_passwords_are_in_no_log(tmp_path: Path) -> None:
    (tmp_path / "door.py").write_text(LIBRARY)
    elements = MODULES.replace("<Replication/>", "")
    with running_server(tmp_path, elements=elements, level="trace") as server:
        with server.connect() as peer:
            log_on(peer, "ann", "s3cret-password")
            assert peer.is_disconnected()
        assert "s3cret-password" not in server.log()


def test_the_admin_interface_asks_the_same_module(tmp_path: Path) -> None:
    (tmp_path / "door.py").write_text(LIBRARY)
    port = free_port()
    section = (
        f"<Admin><InetAddr>127.0.0.1:{port}</InetAddr>"
        '<WWWAuthenticate>Basic realm="x"</WWWAuthenticate></Admin>'
    )
    elements = MODULES.replace("<Replication/>", section)
    with running_server(tmp_path, elements=elements):
        assert ask(port, "/amps.json").status == 401
        assert ask(port, "/amps.json", authorization="Basic YW5uOmdvb2Q=").status == 200
        assert ask(port, "/amps.json", authorization="Basic YW5uOmJhZA==").status == 401


@pytest.mark.parametrize(
    ("library", "options", "said"),
    [
        (LIBRARY, "<Bad/>", "door: Bad is not good"),
        ("create_authentication = lambda name, options: 7", "", "int, which lacks authenticate"),
        ("def create_authentication(name, options): return options['x']", "", "KeyError"),
    ],
)
def test_a_module_that_cannot_be_made_ends_the_start(
    tmp_path: Path, library: str, options: str, said: str
) -> None:
    (tmp_path / "door.py").write_text(library)
    elements = MODULES.replace("<Replication/>", "").replace(
        "</Module></Authentication>", f"</Module><Options>{options}</Options></Authentication>"
    )
    assert re.search(rf"config\.xml:\d+: .*{said}", why_no_start(tmp_path, elements))
