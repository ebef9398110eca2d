"""TrustedAdmin: who has logged on to the admin interface need not log on to a websocket again."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from tests.admin.support import ask
from tests.support.server import RunningServer, amp_server, free_port, running_server
from tests.transports.support import WebsocketClient

PROTOCOLS = r"""
<Protocols>
  <Protocol>
    <Name>trusting</Name><Module>websocket</Module>
    <WWWAuthenticate>Basic realm="x"</WWWAuthenticate><TrustedAdmin>enabled</TrustedAdmin>
  </Protocol>
  <Protocol>
    <Name>trusting-portal</Name><Module>websocket</Module>
    <WWWAuthenticate>Basic realm="x"</WWWAuthenticate><TrustedAdmin>true</TrustedAdmin>
    <AccessControlAllowOrigin>https://portal\.example</AccessControlAllowOrigin>
    <AccessControlAllowOrigin>*</AccessControlAllowOrigin>
  </Protocol>
  <Protocol>
    <Name>distrusting</Name><Module>websocket</Module>
    <WWWAuthenticate>Basic realm="x"</WWWAuthenticate>
  </Protocol>
</Protocols>
"""

NOBODY = "<Authentication><Module>amps-default-no-authentication-module</Module></Authentication>"

ADMIN = """
<Admin>
  <InetAddr>127.0.0.1:{port}</InetAddr>
  <ExternalInetAddr>https://desk.example/amps</ExternalInetAddr>
  <WWWAuthenticate>Basic realm="x"</WWWAuthenticate>
  <Authentication>
    <Module>amps-default-authentication-module</Module>
    <Options><AllowSpoofing>true</AllowSpoofing><RequireUsername>true</RequireUsername></Options>
  </Authentication>
</Admin>
"""

TRANSPORT = """
<Transport>
  <Name>{name}</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>
  <Protocol>{name}</Protocol>{more}
</Transport>
"""


@dataclass(frozen=True)
class Portal:
    """A server whose websockets let nobody in but those of the admin interface."""

    server: RunningServer
    admin: int
    ports: dict[str, int]

    def cookie(self, user: str = "ann") -> str:
        """A cookie of the admin interface."""
        shown = "Basic " + base64.b64encode(f"{user}:pw".encode()).decode()
        reply = ask(self.admin, "/amps", authorization=shown)
        return reply.headers["set-cookie"].partition(";")[0]

    def open(self, name: str, cookie: str, origin: str = "") -> WebsocketClient:
        """A connection with a cookie, as a page of an origin makes it."""
        headers = {"Cookie": cookie} | ({"Origin": origin} if origin else {})
        url = f"ws://127.0.0.1:{self.ports[name]}/amps/json"
        return WebsocketClient(url, additional_headers=headers)

    def status(self, name: str, cookie: str, origin: str = "") -> int:
        """The status of a handshake."""
        try:
            with self.open(name, cookie, origin):
                return 101
        except InvalidStatus as refused:
            return refused.response.status_code


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Portal]:
    admin = free_port()
    ports = {name: free_port() for name in ("trusting", "trusting-portal", "distrusting")}
    transports = "".join(
        TRANSPORT.format(name=name, port=port, more=NOBODY) for name, port in ports.items()
    )
    elements = PROTOCOLS + ADMIN.format(port=admin)
    directory = tmp_path_factory.mktemp("portal")
    with running_server(directory, transports=transports, elements=elements) as server:
        yield Portal(server, admin, ports)


def test_the_cookie_logs_on_as_whom_it_stands_for(portal: Portal) -> None:
    """Whatever name a logon gives; the transport's own module is not asked."""
    with portal.open("trusting", portal.cookie("ann")) as client:
        ack = client.ask(
            {"c": "logon", "cid": "1", "a": "processed", "user_id": "bob", "client_name": "page"}
        )
        assert ack["status"] == "success"
        assert client.subscribe("t")["status"] == "success"
    assert portal.server.logs("authid           = 'ann'")


@pytest.mark.parametrize(
    ("name", "origin", "status"),
    [
        ("trusting", "", 101),
        ("trusting", "http://127.0.0.1:{admin}", 101),
        ("trusting", "https://desk.example", 101),
        ("trusting", "http://127.0.0.1:{other}", 401),
        ("trusting", "http://127.0.0.1", 401),
        ("trusting", "http://elsewhere.example:{admin}", 401),
        ("trusting", "https://portal.example", 401),
        ("trusting", "null", 401),
        ("trusting", "http://[", 401),
        ("trusting-portal", "https://portal.example", 101),
        ("trusting-portal", "https://evil.example", 401),
        ("trusting-portal", "http://127.0.0.1:{admin}", 101),
        ("distrusting", "http://127.0.0.1:{admin}", 401),
    ],
)
def test_only_some_pages_may_use_it(portal: Portal, name: str, origin: str, status: int) -> None:
    """Browsers send the cookie for pages of other ports, too: these are not trusted."""
    page = origin.format(admin=portal.admin, other=portal.admin + 1)
    assert portal.status(name, portal.cookie(), page) == status


@pytest.mark.parametrize("cookie", ["", "amps_session=guessed", "amps_session=", "other=1"])
def test_what_is_no_good_cookie_does_not_count(portal: Portal, cookie: str) -> None:
    assert portal.status("trusting", cookie) == 401


def test_a_cookie_ends_with_a_reset(portal: Portal) -> None:
    cookie = portal.cookie("cid")
    assert portal.status("trusting", f"a=b; {cookie}; c=d") == 101
    path = "/amps/administrator/authorization/authentication/reset"
    assert ask(portal.admin, path, Cookie=cookie).status == 200
    assert portal.status("trusting", cookie) == 401


def test_where_nobody_logs_on_it_is_said_to_have_no_effect(tmp_path: Path) -> None:
    (tmp_path / "config.xml").write_text(
        f"<AMPSConfig><Name>x</Name>{PROTOCOLS}<Admin><InetAddr>127.0.0.1:0</InetAddr></Admin>"
        "</AMPSConfig>"
    )
    said = amp_server("--verify-config", "config.xml", cwd=tmp_path)
    text = said.stdout + said.stderr
    assert text.count("Protocol/TrustedAdmin: has no effect: the admin interface has no logon") == 2
