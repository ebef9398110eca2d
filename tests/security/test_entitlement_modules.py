"""Entitlement modules in Python: they may wait, are asked once per user, and fail."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.admin.support import ask
from tests.documentation.fences import fences, python_files
from tests.security.entitled import SECURITY
from tests.support.raw import RawPeer
from tests.support.server import RunningServer, free_port, running_server, why_no_start
from tests.support.waiting import wait_until

LIBRARY: Final = '''
import asyncio
from pathlib import Path

from server.security.authentication import Admission

ALL = [{"topic": ".*", "read": True, "write": True}]

class Book:
    """What a user may do is said by their name."""

    async def permissions(self, user):
        with open("asked", "a") as asked:
            asked.write(f"{user}\\n")
        if user == "slow":
            while not Path("open").exists():
                await asyncio.sleep(0.01)
        elif user == "raise":
            raise LookupError("no such directory")
        elif user == "exit":
            raise SystemExit(3)
        elif user == "nothing":
            return None
        elif user == "text":
            return '{"logon": true}'
        elif user == "unknown":
            return {"logon": True, "topics": ALL}
        elif user == "filter":
            return {"logon": True, "topic": [{"topic": "t", "read": "/a >"}]}
        elif user == "refused":
            return {"topic": ALL}
        elif user == "reader":
            return {"logon": True, "topic": [{"topic": "^news", "read": True}]}
        elif Path("closed").exists():
            return {"logon": False}
        return {"logon": True, "topic": ALL, "user_name": "somebody else"}

    def forget(self, user):
        if Path("open").exists():
            raise KeyError(user)
        with open("asked", "a") as asked:
            asked.write(f"forget {user}\\n")

def create_entitlement(name, options):
    if "Bad" in options:
        raise ValueError("Bad is not good")
    return Book()

class Door:
    async def authenticate(self, credentials, previous):
        return Admission(credentials.password == "good", credentials.user, "")

def create_authentication(name, options):
    return Door()
'''

MODULES: Final = "<Modules><Module><Name>book</Name><Library>./book.py</Library></Module></Modules>"
ENTITLEMENT: Final = "<Entitlement><Module>book</Module></Entitlement>"
NAMES: Final = SECURITY.partition("<Entitlement>")[0]
RESET: Final = "/amps/administrator/authorization/entitlement/reset"


@contextmanager
def book_server(directory: Path, elements: str = "") -> Iterator[RunningServer]:
    (directory / "book.py").write_text(LIBRARY)
    with running_server(directory, elements=MODULES + NAMES + ENTITLEMENT + elements) as running:
        yield running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with book_server(tmp_path) as running:
        yield running


def asked(directory: Path) -> list[str]:
    return (directory / "asked").read_text().splitlines()


def answer_of(peer: RawPeer, command: str, topic: str) -> object:
    ack = peer.ask({"c": command, "cid": topic, "t": topic, "a": "processed"}, b"{}")
    return ack.get("reason") or ack["status"]


def test_a_module_says_what_a_user_may_do(server: RunningServer) -> None:
    with server.log_on(user_id="reader") as peer:
        assert answer_of(peer, "subscribe", "news-1") == "success"
        assert answer_of(peer, "publish", "news-1") == "not entitled"
        assert answer_of(peer, "subscribe", "orders") == "not entitled"
    with server.connect() as peer:
        ack = peer.log_on(user_id="refused")
        assert (ack["status"], ack["reason"]) == ("failure", "not entitled")
        assert peer.is_disconnected()


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ("raise", r"book\.py:\d+: LookupError: no such directory"),
        ("exit", "SystemExit: 3"),
        ("nothing", "expected a permission document, not NoneType"),
        ("text", "expected a permission document, not str"),
        ("unknown", "permission document: 'topics' is not known"),
        ("filter", "permission document: topic, entry 1: read"),
    ],
)
def test_whoever_has_no_document_that_can_be_used_may_do_nothing(
    server: RunningServer, tmp_path: Path, user: str, said: str
) -> None:
    """It is asked for again with the next logon."""
    for count in (1, 2):
        with server.connect() as peer:
            ack = peer.log_on(user_id=user)
            assert (ack["status"], ack["reason"]) == ("failure", "not entitled")
            assert peer.is_disconnected()
        assert asked(tmp_path) == [user] * count
    pattern = f"25-0040 .*module book .*user '{user}': .*{said}"
    wait_until(lambda: re.search(pattern, server.log()) is not None)
    with server.log_on(user_id="ann") as peer:
        assert answer_of(peer, "publish", "t") == "success"


def test_a_user_is_asked_for_once(server: RunningServer, tmp_path: Path) -> None:
    """However many of their connections come at a time, and nobody else waits meanwhile."""
    with ExitStack() as stack:
        peers = [stack.enter_context(server.connect()) for _ in range(100)]
        logon = {"c": "logon", "cid": "1", "mt": "json", "a": "processed", "user_id": "slow"}
        for number, peer in enumerate(peers):
            peer.send(logon | {"client_name": f"slow-{number}"})
        with server.log_on(user_id="ann") as quick:
            assert answer_of(quick, "publish", "t") == "success"
        (tmp_path / "open").touch()
        assert [peer.receive_header()["status"] for peer in peers] == ["success"] * 100
        with server.log_on(user_id="slow"):
            assert asked(tmp_path) == ["slow", "ann"]


def test_a_reset_has_users_asked_for_again(tmp_path: Path) -> None:
    port = free_port()
    admin = (
        f"<Admin><InetAddr>127.0.0.1:{port}</InetAddr>"
        "<Entitlement><Module>amps-default-entitlement-module</Module></Entitlement></Admin>"
    )
    with book_server(tmp_path, admin) as server:
        with server.log_on(user_id="ann") as peer:
            (tmp_path / "closed").touch()
            with server.log_on("another", user_id="ann"):
                assert asked(tmp_path) == ["ann"]
            assert ask(port, RESET).status == 200
            assert peer.is_disconnected()
        with server.connect() as peer:
            assert peer.log_on(user_id="ann")["reason"] == "not entitled"
        assert asked(tmp_path) == ["ann", "forget None", "ann"]
        (tmp_path / "open").touch()
        assert ask(port, RESET).status == 200
        assert server.logs("25-0041")
        assert server.logs("KeyError: None")


def test_an_answer_that_was_forgotten_before_it_came_counts_for_nobody(tmp_path: Path) -> None:
    port = free_port()
    admin = (
        f"<Admin><InetAddr>127.0.0.1:{port}</InetAddr>"
        "<Entitlement><Module>amps-default-entitlement-module</Module></Entitlement></Admin>"
    )
    with book_server(tmp_path, admin) as server, server.connect() as peer:
        logon = {"c": "logon", "cid": "1", "mt": "json", "a": "processed", "user_id": "slow"}
        peer.send(logon)
        wait_until(lambda: (tmp_path / "asked").exists() and asked(tmp_path) == ["slow"])
        assert ask(port, RESET).status == 200
        (tmp_path / "open").touch()
        assert peer.receive_header()["status"] == "success"
        assert asked(tmp_path) == ["slow", "forget None", "slow"]


def test_one_library_may_be_for_both(tmp_path: Path) -> None:
    (tmp_path / "book.py").write_text(LIBRARY)
    both = "<Authentication><Module>book</Module></Authentication>" + ENTITLEMENT
    with running_server(tmp_path, elements=MODULES + both) as server:
        with server.connect() as peer:
            assert peer.log_on(user_id="reader", pw="bad")["reason"] == "auth failure"
        with server.log_on(user_id="reader", pw="good") as peer:
            assert answer_of(peer, "publish", "news-1") == "not entitled"


@pytest.mark.parametrize(
    ("library", "options", "said"),
    [
        (LIBRARY, "<Bad/>", "book: Bad is not good"),
        ("create_entitlement = lambda name, options: 7", "", "int, which lacks permissions"),
        ("def create_entitlement(name, options): return options['x']", "", "KeyError"),
        ("create_authentication = 1", "", "create_entitlement"),
    ],
)
def test_a_module_that_cannot_be_made_ends_the_start(
    tmp_path: Path, library: str, options: str, said: str
) -> None:
    (tmp_path / "book.py").write_text(library)
    use = ENTITLEMENT.replace("</Module>", f"</Module><Options>{options}</Options>")
    assert re.search(rf"config\.xml:\d+: .*{said}", why_no_start(tmp_path, MODULES + use))


def test_the_example_of_the_documentation_works(tmp_path: Path) -> None:
    """The module in docs/security.md does what it says."""
    page = "docs/security.md"
    (tmp_path / "desks.py").write_text(python_files(page)["desks.py"])
    (example,) = (fence.text for fence in fences("xml", page=page) if "desks.py" in fence.text)
    with running_server(tmp_path, elements=NAMES + example) as server:
        with server.log_on(user_id="ann") as peer:
            assert answer_of(peer, "subscribe", "orders") == "success"
            assert answer_of(peer, "subscribe", "prices-1") == "success"
            assert answer_of(peer, "publish", "prices-1") == "not entitled"
            assert answer_of(peer, "subscribe", "prices") == "not entitled"
        with server.connect() as peer:
            assert peer.log_on(user_id="eve")["reason"] == "not entitled"
