"""Kerberos: tickets in requests to the admin interface, and in those that open websockets."""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
from collections.abc import Iterator
from typing import Final

import pytest
import websockets

from tests.admin.support import Admin, ask, running_admin
from tests.security.kerberos.support import ELEMENTS, Ticket, refused
from tests.support.realm import Environment, Realm, needs_kdc
from tests.support.server import RunningServer, environment
from tests.support.waiting import WAIT_SECONDS

pytestmark = needs_kdc


def test_negotiate_in_the_admin_interface(
    server: RunningServer, ports: dict[str, int], ann: dict[str, str]
) -> None:
    first = ask(ports["admin"], "/amps.json")
    assert (first.status, first.headers["www-authenticate"]) == (401, "Negotiate")
    ticket = Ticket(ann, form="spnego")
    reply = ask(ports["admin"], "/amps.json", authorization=f"Negotiate {ticket.token}")
    assert reply.status == 200
    scheme, _, proof = reply.headers["www-authenticate"].partition(" ")
    assert scheme == "Negotiate"
    assert ticket.proves(proof)
    cookie = reply.headers["set-cookie"].partition(";")[0]
    assert ask(ports["admin"], "/amps.json", cookie=cookie).status == 200
    again = ask(ports["admin"], "/amps.json", authorization=f"Negotiate {ticket.token}")
    assert (again.status, again.headers["www-authenticate"]) == (401, "Negotiate")


@pytest.mark.parametrize(
    "shown",
    [
        "Negotiate",
        "Negotiate !",
        "Negotiate YWJj",
        "Basic YW5uOmFubi1zM2NyZXQ=",
        "NTLM TlRMTVNTUAAB",
    ],
)
def test_what_is_refused_over_http(
    server: RunningServer, ports: dict[str, int], shown: str
) -> None:
    assert ask(ports["admin"], "/amps.json", authorization=shown).status == 401
    with pytest.raises(websockets.InvalidStatus) as raised:
        asyncio.run(_open(ports["browsers"], shown))
    response = raised.value.response
    assert (response.status_code, response.headers["WWW-Authenticate"]) == (401, "Negotiate")


def test_negotiate_in_a_websocket_handshake(
    server: RunningServer, ports: dict[str, int], ann: dict[str, str]
) -> None:
    ticket = Ticket(ann, form="spnego")
    proof = asyncio.run(_open(ports["browsers"], f"Negotiate {ticket.token}"))
    assert ticket.proves(proof.removeprefix("Negotiate "))


def test_tickets_may_be_large(server: RunningServer, ports: dict[str, int]) -> None:
    """That of a user who is in very many groups has 48,000 bytes; this one reaches the module."""
    shown = "Negotiate " + base64.b64encode(b"\x60" + bytes(47_999)).decode()
    assert ask(ports["admin"], "/amps.json", authorization=shown).status == 401
    with pytest.raises(websockets.InvalidStatus) as raised:
        asyncio.run(_open(ports["browsers"], shown))
    assert raised.value.response.status_code == 401
    assert refused(server, shown.removeprefix("Negotiate ")) == "the credentials are not accepted"
    with pytest.raises((websockets.InvalidHandshake, ConnectionError)):
        asyncio.run(_open(ports["browsers"], shown + 20_000 * "A"))
    assert server.logs("the opening handshake has more than 73,728 bytes")


PAGES: Final = """
<Authentication>
  <Module>realm</Module>
  <Options>
    <Kerberos.SPN>HTTP/localhost</Kerberos.SPN><Kerberos.Keytab>{keytab}</Kerberos.Keytab>
  </Options>
</Authentication>
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, realm: Realm) -> Iterator[Admin]:
    """An admin interface for programs that ask for the service HTTP, as browsers do."""
    directory = tmp_path_factory.mktemp("pages")
    keytab = realm.make_keytab("HTTP/localhost", directory / "http.keytab")
    loaded = ELEMENTS[: ELEMENTS.index("<Authentication>")]
    with running_admin(
        directory,
        PAGES.format(keytab=keytab),
        loaded,
        prepare=Environment(realm.variables),
    ) as running:
        yield running


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl_logs_on_with_a_ticket(pages: Admin, ann: dict[str, str]) -> None:
    url = f"http://localhost:{pages.port}/amps.json"
    command = ["curl", "-s", "--negotiate", "-u", ":", "-w", "%{http_code}", "-o", "/dev/null", url]
    for variables, code in ((ann, "200"), ({"KRB5CCNAME": "FILE:/nowhere"}, "401")):
        told = environment(**(ann | variables))
        ended = subprocess.run(
            command, check=False, env=told, capture_output=True, text=True, timeout=WAIT_SECONDS
        )
        assert ended.stdout == code


async def _open(port: int, shown: str) -> str:
    """Open a websocket, and give what its response says of who the server is."""
    async with websockets.connect(
        f"ws://127.0.0.1:{port}/amps/json", additional_headers={"Authorization": shown}
    ) as connection:
        assert connection.response is not None
        await connection.send('{"c":"flush","cid":"1","a":"completed"}')
        assert '"completed"' in str(await connection.recv())
        return connection.response.headers["WWW-Authenticate"]
