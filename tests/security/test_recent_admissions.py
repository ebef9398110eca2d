"""Who shows a password with each request to the admin interface is not checked each time."""

from __future__ import annotations

import base64
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.admin.support import Admin, running_admin

LIBRARY: Final = """
from server.security.authentication import Admission

class Door:
    async def authenticate(self, credentials, previous):
        with open("asked", "a") as asked:
            asked.write(f"{credentials.user}:{credentials.password}\\n")
        return Admission(credentials.password == "good", credentials.user, "")

class Book:
    async def permissions(self, user):
        return {"admin": [{"topic": "/amps/host", "read": "/limited = 1"},
                          {"topic": "^/amps/administrator/clients", "read": False},
                          {"topic": "^/amps", "read": user != "nobody"}]}

def create_authentication(name, options):
    return Door()

def create_entitlement(name, options):
    return Book()
"""

ELEMENTS: Final = (
    "<Modules><Module><Name>door</Name><Library>./door.py</Library></Module></Modules>"
)
SECTION: Final = """
<WWWAuthenticate>Basic realm="x"</WWWAuthenticate>
<Authentication><Module>door</Module></Authentication>
<Entitlement><Module>door</Module></Entitlement>
"""


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Admin]:
    (tmp_path / "door.py").write_text(LIBRARY)
    with running_admin(tmp_path, SECTION, ELEMENTS) as running:
        yield running


def basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def statuses(admin: Admin, user: str, password: str, times: int = 3) -> list[int]:
    shown = basic(user, password)
    return [admin.ask("/amps", Authorization=shown).status for _ in range(times)]


def asked(directory: Path, text: str) -> int:
    return (directory / "asked").read_text().splitlines().count(text)


def test_what_has_been_accepted_counts_for_a_while(admin: Admin, tmp_path: Path) -> None:
    assert statuses(admin, "ann", "good") == [200] * 3
    assert statuses(admin, "bob", "good") == [200] * 3
    assert (asked(tmp_path, "ann:good"), asked(tmp_path, "bob:good")) == (1, 1)


def test_what_is_refused_is_asked_again(admin: Admin, tmp_path: Path) -> None:
    assert statuses(admin, "ann", "good") == [200] * 3
    assert statuses(admin, "ann", "bad") == [401] * 3
    assert asked(tmp_path, "ann:bad") == 3


@pytest.mark.parametrize("what", ["authentication", "entitlement"])
def test_a_reset_has_everybody_asked_for_again(admin: Admin, tmp_path: Path, what: str) -> None:
    assert statuses(admin, "ann", "good") == [200] * 3
    reset = f"/amps/administrator/authorization/{what}/reset"
    assert admin.ask(reset, Authorization=basic("ann", "good")).status == 200
    assert statuses(admin, "ann", "good") == [200] * 3
    assert asked(tmp_path, "ann:good") == 2


def test_who_came_while_nobody_was_asked_for_logs_on_again(admin: Admin) -> None:
    for how, state in ((signal.SIGUSR1, "off"), (signal.SIGUSR2, "on")):
        admin.server.process.send_signal(how)
        assert admin.server.logs(f"authentication switched {state}", 1)
        assert statuses(admin, "ann", "bad", 1) == [200 if state == "off" else 401]


def test_permissions_are_asked_for_all_the_same(admin: Admin) -> None:
    """By path, for what is shown and for what is done."""
    assert statuses(admin, "nobody", "good") == [403] * 3
    shown = basic("ann", "good")
    clients = admin.ask("/amps/administrator/clients/1/disconnect", Authorization=shown)
    assert clients.status == 403
    assert admin.ask("/amps/host", Authorization=shown).status == 403, "it has no fields"
    assert admin.ask("/amps/instance/name", Authorization=shown).status == 200
