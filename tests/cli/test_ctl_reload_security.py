"""`amps-ctl reload`: authentication and entitlement modules are replaced."""

from __future__ import annotations

import base64
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.admin.support import Admin, running_admin
from tests.cli.reload_support import edit, refused, reloaded
from tests.cli.test_ctl import ctl
from tests.security.users import MODULES, USERS, may_log_on, try_to_log_on, write_users
from tests.support.raw import RawPeer
from tests.support.server import free_port
from tests.support.waiting import WAIT_SECONDS, wait_until
from tests.transports.support import transport

LOADED: Final = MODULES.partition("<Authentication>")[0]
FOR_TRANSPORT: Final = MODULES.removeprefix(LOADED)
"""As elements of a transport: the admin interface stays open to `amps-ctl`."""
END: Final = "<ReuseAddr>true</ReuseAddr>"
BASIC: Final = '<WWWAuthenticate>Basic realm="users"</WWWAuthenticate>'
ANN: Final = "Basic " + base64.b64encode(b"ann:ann").decode()
WITHOUT_ADMIN: Final = """
<Authentication><Module>amps-default-authentication-module</Module></Authentication>
<Entitlement><Module>amps-default-entitlement-module</Module></Entitlement>
"""


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Admin]:
    write_users(tmp_path)
    with running_admin(tmp_path) as running:
        yield running


def secure(admin: Admin) -> None:
    """Have the transport authenticate and entitle its users."""
    edit(admin, "</AMPSConfig>", f"{LOADED}</AMPSConfig>")
    edit(admin, END, END + FOR_TRANSPORT)
    lines = reloaded(admin)
    assert lines[0].startswith("Modules/Module users is added (")


def logged_on(admin: Admin, user: str) -> RawPeer:
    peer = admin.server.connect()
    assert try_to_log_on(peer, user, user)["status"] == "success"
    return peer


def may_publish(peer: RawPeer, topic: str) -> bool:
    """Whether a client may publish."""
    ack = peer.ask({"c": "publish", "t": topic, "a": "processed", "cid": "p"}, b"{}")
    return bool(ack["status"] == "success")


def test_modules_replace_the_default(admin: Admin) -> None:
    with admin.server.log_on("before") as before:
        secure(admin)
        assert before.is_disconnected()
    assert may_log_on(admin.server, "ann", "ann")
    assert not may_log_on(admin.server, "ann", "bob")
    with logged_on(admin, "ann") as ann, logged_on(admin, "bob") as bob:
        assert may_publish(ann, "orders")
        assert not may_publish(bob, "orders")


def test_clients_stay_when_authentication_alone_changes(admin: Admin) -> None:
    secure(admin)
    authentication, entitlement = FOR_TRANSPORT.strip().splitlines()
    with logged_on(admin, "ann") as ann:
        edit(admin, authentication, "")
        reloaded(admin)
        assert may_publish(ann, "orders")
        assert not may_publish(ann, "others")
        edit(admin, entitlement, "")
        reloaded(admin)
        assert ann.is_disconnected()
    with admin.server.log_on("anybody") as anybody:
        assert may_publish(anybody, "others")


def test_another_file_of_users_is_used_and_watched(admin: Admin, tmp_path: Path) -> None:
    secure(admin)
    other = tmp_path / "other"
    other.mkdir()
    edit(admin, "users.toml", "other/users.toml")
    assert "other/users.toml" in refused(admin)
    write_users(other, USERS.replace("[users.bob]", "[users.robert]"))
    with logged_on(admin, "ann") as ann:
        reloaded(admin)
        assert ann.is_disconnected()
    assert may_log_on(admin.server, "robert", "bob")
    assert not may_log_on(admin.server, "bob", "bob")
    with logged_on(admin, "ann") as ann:
        write_users(tmp_path, USERS.replace("prices", "rates"))
        assert admin.server.logs("file of users users.toml reloaded")
        assert may_publish(ann, "orders")
        write_users(other)
        assert admin.server.logs("file of users other/users.toml reloaded")
        wait_until(lambda: may_log_on(admin.server, "bob", "bob"))
        assert may_publish(ann, "orders")


REMOVED: Final = re.compile(r"file of users (\S+) reloaded: .*, [1-9]\d* removed")


def without_bob(directory: Path) -> None:
    """Remove a user from a file."""
    write_users(directory, USERS.partition("[users.bob]")[0])


def test_users_of_an_added_transport_are_disconnected_when_removed(
    admin: Admin, tmp_path: Path
) -> None:
    secure(admin)
    port = free_port()
    address = f"<InetAddr>127.0.0.1:{port}</InetAddr><Protocol>amps</Protocol>"
    more = transport("more", "tcp", address + FOR_TRANSPORT)
    edit(admin, "</Transports>", f"{more}</Transports>")
    reloaded(admin)
    with RawPeer(port) as bob, logged_on(admin, "bob") as elsewhere:
        assert try_to_log_on(bob, "bob", "bob")["status"] == "success"
        without_bob(tmp_path)
        assert bob.is_disconnected()
        assert elsewhere.is_disconnected()


def test_files_that_no_transport_uses_are_read_no_more(admin: Admin, tmp_path: Path) -> None:
    secure(admin)
    for name in ("planned", "refused", "replaced"):
        (tmp_path / name).mkdir()
        write_users(tmp_path / name)
    edit(admin, "users.toml", "replaced/users.toml")
    reloaded(admin)
    edit(admin, "replaced/users.toml", "planned/users.toml")
    assert ctl(admin, "reload", "--dry-run").returncode == 0
    edit(admin, "planned/users.toml", "refused/users.toml")
    edit(admin, "</Transports>", f"{unusable()}</Transports>")
    refused(admin)
    edit(admin, unusable(), "")
    edit(admin, "refused/users.toml", "users.toml")
    reloaded(admin)
    for name in ("planned", "refused", "replaced"):
        without_bob(tmp_path / name)
    assert may_log_on(admin.server, "bob", "bob")
    without_bob(tmp_path)
    assert admin.server.waits_for(lambda log: REMOVED.search(log) is not None)
    assert REMOVED.findall(admin.server.log()) == ["users.toml"]


def unusable() -> str:
    """A transport whose address this machine does not have."""
    address = "<InetAddr>192.0.2.1:9</InetAddr><Protocol>amps</Protocol>"
    return transport("unusable", "tcp", address)


FUNCTIONS: Final = """
<Modules><Module>
  <Name>ours</Name><Library>./ours.py</Library><Options><Key>one</Key></Options>
</Module></Modules>
<UserDefinedFunctions><Function>
  <Name>TWICE</Name><Module>ours</Module><Symbol>twice</Symbol><ParameterCount>1</ParameterCount>
</Function></UserDefinedFunctions>
"""
LIBRARY: Final = """
def twice(number):
    return number * 2

class Door:
    async def authenticate(self, credentials, previous):
        raise LookupError("not used")

def create_authentication(name, options):
    return Door()
"""


def test_a_module_that_is_used_for_more_than_security_needs_a_restart(tmp_path: Path) -> None:
    (tmp_path / "ours.py").write_text(LIBRARY)
    with running_admin(tmp_path, elements=FUNCTIONS) as admin:
        edit(admin, END, f"{END}<Authentication><Module>ours</Module></Authentication>")
        reloaded(admin)
        edit(admin, "<Key>one</Key>", "<Key>two</Key>")
        said = refused(admin)
        assert "Modules/Module ours: " in said
        assert "modules are loaded at the start" in said


def test_a_module_that_came_with_a_reload_makes_the_keys_of_a_topic_of_the_next(
    admin: Admin, tmp_path: Path
) -> None:
    keys = (
        "class Keys:\n    def key(self, body, given):\n        return 'k'\n"
        "def create_key_generator(topic, message_type, options):\n    return Keys()\n"
    )
    (tmp_path / "ours.py").write_text(LIBRARY + keys)
    modules = FUNCTIONS.partition("<UserDefinedFunctions>")[0]
    edit(admin, "</AMPSConfig>", f"{modules}</AMPSConfig>")
    edit(admin, END, f"{END}<Authentication><Module>ours</Module></Authentication>")
    reloaded(admin)
    topic = (
        "<SOW><Topic><Name>made</Name><MessageType>json</MessageType>"
        "<KeyGenerator><Module>ours</Module></KeyGenerator>"
        "<Durability>transient</Durability></Topic></SOW>"
    )
    edit(admin, "</AMPSConfig>", f"{topic}</AMPSConfig>")
    reloaded(admin)
    admin.comes("/amps/instance/sow/made!json/valid_keys", "0")


def test_streams_of_the_admin_interface_end_with_its_entitlement(tmp_path: Path) -> None:
    """Whoever may still read them starts them again."""
    operator = '\n[roles.operator]\nadmin = [{ topic = "^/amps", read = true, write = true }]\n'
    write_users(tmp_path, USERS.replace('["trader"]', '["trader", "operator"]') + operator)
    second = LOADED[LOADED.index("  <Module>") : LOADED.index("</Modules>")]
    rights = second.replace("users</Name>", "rights</Name>")
    modules = MODULES.replace("</Modules>", f"{rights}</Modules>")
    modules = modules.replace("<Entitlement><Module>users", "<Entitlement><Module>rights")
    (tmp_path / "other").mkdir()
    write_users(tmp_path / "other", USERS)
    password = tmp_path / "password"
    password.write_text("ann")
    head = "GET /amps/instance/name?watch HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
    with (
        running_admin(tmp_path, BASIC, elements=modules) as admin,
        socket.create_connection(("127.0.0.1", admin.port), WAIT_SECONDS) as connection,
    ):
        connection.sendall(f"{head}Authorization: {ANN}\r\n\r\n".encode())
        stream = connection.makefile("rb")
        assert any(line.startswith(b"event: node") for line in stream)
        edit(admin, rights, rights.replace("users.toml", "other/users.toml"))
        done = ctl(admin, "reload", "--user", "ann", "--password-file", str(password))
        assert done.returncode == 0, done.stderr
        assert b"event: gone" not in stream.read()


def test_what_is_decided_at_the_start_is_refused(admin: Admin) -> None:
    port = free_port()
    web = transport(
        "web", "tcp", f"<InetAddr>127.0.0.1:{port}</InetAddr><Protocol>websocket</Protocol>"
    )
    edit(admin, "</Transports>", f"{web}</Transports>")
    reloaded(admin)
    edit(admin, "</AMPSConfig>", f"{MODULES}</AMPSConfig>")
    said = refused(admin)
    assert "Authentication/Module (" in said
    assert "it decides which web pages may connect" in said
    edit(admin, web, "")
    assert "the admin interface begins or ceases to check users" in refused(admin)
    with admin.server.log_on("anybody") as anybody:
        assert may_publish(anybody, "orders")
