"""Kerberos with a real KDC: logons, links, websockets, the admin interface, and our client."""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
import websockets

from client import AsyncClient, Client, CredentialsError, KerberosAuthenticator
from tests.admin.support import Admin, ask, running_admin
from tests.support.realm import REALM, SPN, Environment, Realm, needs_kdc, running_realm
from tests.support.replication_peer import HELLO, Listening, ReplicationPeer
from tests.support.server import ROOT, RunningServer, environment, free_port, running_server
from tests.support.waiting import WAIT_SECONDS

pytestmark = needs_kdc

ELEMENTS: Final = """
<Modules>
  <Module><Name>realm</Name><Library>libamps_multi_authentication.so</Library></Module>
</Modules>
<Authentication>
  <Module>realm</Module>
  <Options>
    <Kerberos.SPN>{spn}</Kerberos.SPN><Kerberos.Keytab>{keytab}</Kerberos.Keytab>{more}
  </Options>
</Authentication>
<Admin><InetAddr>127.0.0.1:{admin}</InetAddr></Admin>
<Protocols>
  <Protocol>
    <Name>negotiating</Name><Module>websocket</Module>
    <WWWAuthenticate>Negotiate</WWWAuthenticate>
  </Protocol>
</Protocols>
"""

TRANSPORT: Final = """
<Transport>
  <Name>browsers</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>
  <Protocol>negotiating</Protocol>
</Transport>
"""

TOKEN: Final = """
import base64, ctypes, sys
from client import gssapi
from client.gssapi import byref, c_void_p

if sys.argv[2] == "spnego":
    gssapi.KERBEROS = gssapi.SPNEGO
context = gssapi.initiate(sys.argv[1], None)
print(base64.b64encode(context.step(b"")).decode(), flush=True)
for line in sys.stdin:
    context.step(base64.b64decode(line))
    print(context.is_complete, flush=True)
"""
"""Makes a token in a process of its own, as whoever its environment names."""


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    users = {"ann": "ann-s3cret", "bob": "bob-s3cret", "ann/admin": "admin-s3cret"}
    with running_realm(tmp_path_factory.mktemp("realm"), **users) as running:
        yield running


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {"admin": free_port(), "browsers": free_port()}


@contextmanager
def server_for(
    path: Path, realm: Realm, ports: dict[str, int], keytab: Path | None = None, more: str = ""
) -> Iterator[RunningServer]:
    elements = ELEMENTS.format(
        spn=SPN, keytab=keytab or realm.keytab, more=more, admin=ports["admin"]
    )
    with running_server(
        path,
        elements=elements,
        transports=TRANSPORT.format(port=ports["browsers"]),
        level="trace",
        prepare=Environment(realm.variables),
    ) as server:
        yield server


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, realm: Realm, ports: dict[str, int]
) -> Iterator[RunningServer]:
    with server_for(tmp_path_factory.mktemp("server"), realm, ports) as running:
        yield running


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory, realm: Realm) -> dict[str, str]:
    """The environment of a program of ann's."""
    return realm.kinit("ann", "ann-s3cret", tmp_path_factory.mktemp("ann") / "cache")


class Ticket:
    """A token, and whoever has made it."""

    def __init__(self, variables: dict[str, str], spn: str = SPN, form: str = "kerberos") -> None:
        self._maker = subprocess.Popen(
            [sys.executable, "-c", TOKEN, spn, form],
            cwd=ROOT,
            env=environment(**variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._maker.stdout is not None
        self.token = self._maker.stdout.readline().strip()
        assert self.token

    def proves(self, answer: str) -> bool:
        """Whether the server's token proves to its maker who the server is."""
        out, _ = self._maker.communicate(answer + "\n", WAIT_SECONDS)
        return out == "True\n"

    def drop(self) -> str:
        """The token; nothing is to be proved."""
        self._maker.communicate("", WAIT_SECONDS)
        return self.token


def token(variables: dict[str, str], spn: str = SPN, form: str = "kerberos") -> str:
    return Ticket(variables, spn, form).drop()


def refused(server: RunningServer, shown: str, user: str = "") -> str:
    with server.connect() as peer:
        ack = peer.log_on(user_id=user, pw=shown)
        assert (ack["status"], ack["reason"]) == ("failure", "auth failure")
        assert peer.is_disconnected()
        return str(ack["detail"])


@pytest.mark.parametrize("form", ["kerberos", "spnego"])
def test_a_logon_with_a_ticket(server: RunningServer, ann: dict[str, str], form: str) -> None:
    """The ack has what proves to the client who the server is."""
    ticket = Ticket(ann, form=form)
    with server.connect() as peer:
        ack = peer.log_on(user_id="", pw=ticket.token)
        assert ack["status"] == "success"
        assert ticket.proves(ack["pw"])
        peer.flush()
    assert server.logs("authid           = 'ann'")


def test_a_user_is_who_the_ticket_says(server: RunningServer, ann: dict[str, str]) -> None:
    """Whatever name comes along with it."""
    with server.connect() as peer:
        assert peer.log_on("claims", user_id="bob", pw=token(ann))["status"] == "success"
    assert "authid           = 'bob'" not in server.log()


def test_names_that_are_not_local_stay_whole(
    server: RunningServer, realm: Realm, tmp_path: Path
) -> None:
    admin = realm.kinit("ann/admin", "admin-s3cret", tmp_path / "cache")
    with server.connect() as peer:
        assert peer.log_on(user_id="", pw=token(admin))["status"] == "success"
    assert server.logs(f"authid           = 'ann/admin@{REALM}'")


def test_many_in_a_row(server: RunningServer, ann: dict[str, str]) -> None:
    for _ in range(10):
        with server.connect() as peer:
            assert peer.log_on(user_id="ann", pw=token(ann))["status"] == "success"


@pytest.mark.parametrize(
    ("shown", "logged"),
    [
        ("ann-s3cret", "it is no Kerberos token, encoded as base64"),
        ("hunter22", "it is no Kerberos token"),
        (base64.b64encode(b"NTLMSSP\0\1\0\0\0").decode(), "it is a token of NTLM"),
        (base64.b64encode(b"\x60\x03abc").decode(), "token"),
        (base64.b64encode(b"\x60\x84\xff\xff\xff\xff").decode(), "token"),
        (base64.b64encode(b"\x60\x06\x06\x04" + b"\xff" * 40).decode(), "token"),
        (base64.b64encode(b"\xa1\x03abc").decode(), "token"),
        ("YII" + "A" * 30_001, "token"),
        ("Yé==", "it is no Kerberos token"),
    ],
)
def test_tokens_that_are_none(server: RunningServer, shown: str, logged: str) -> None:
    user = f"user-{len(shown)}"  # the log has ten refusals of one user in a minute
    assert refused(server, shown, user) == "the credentials are not accepted"
    assert server.waits_for(
        lambda log: any("25-0081" in line and logged in line for line in log.splitlines())
    )


def test_tokens_that_are_cut_or_changed(server: RunningServer, ann: dict[str, str]) -> None:
    whole = base64.b64decode(token(ann))
    for size in (1, 2, 10, 20, 100, len(whole) - 1):
        refused(server, base64.b64encode(whole[:size]).decode())
    for place in (5, 200, 300, len(whole) - 3):
        changed = bytearray(whole)
        changed[place] ^= 0x55
        refused(server, base64.b64encode(changed).decode())
    with server.connect() as peer:
        assert peer.log_on(user_id="", pw=token(ann))["status"] == "success"


def test_a_token_is_good_once(server: RunningServer, ann: dict[str, str]) -> None:
    shown = token(ann)
    with server.connect() as peer:
        assert peer.log_on(user_id="", pw=shown)["status"] == "success"
    assert refused(server, shown, "twice") == "the credentials are not accepted"
    assert server.logs("Request is a replay")


def test_tokens_for_another_service(
    server: RunningServer, realm: Realm, ann: dict[str, str], tmp_path: Path
) -> None:
    realm.make_keytab("OTHER/localhost", tmp_path / "other.keytab")
    refused(server, token(ann, "OTHER/localhost"))


def test_a_ticket_that_has_expired(server: RunningServer, realm: Realm, tmp_path: Path) -> None:
    short = realm.kinit("bob", "bob-s3cret", tmp_path / "cache", "-l", "4s")
    shown = token(short)
    time.sleep(7)  # it ends after 4 seconds, and clocks may differ by 1
    assert refused(server, shown) == "the credentials are not accepted"
    with pytest.raises(AssertionError):
        Ticket(short)


def test_keys_that_have_changed(tmp_path: Path, realm: Realm, ann: dict[str, str]) -> None:
    """The keytab has other keys than the KDC, and then it has the right ones."""
    ports = {"admin": free_port(), "browsers": free_port()}
    keytab = tmp_path / "old.keytab"
    with running_realm(other := _made(tmp_path / "other")) as elsewhere:
        keytab.write_bytes(elsewhere.keytab.read_bytes())
    assert other.is_dir()
    with server_for(tmp_path, realm, ports, keytab) as server:
        refused(server, token(ann))
        keytab.write_bytes(realm.keytab.read_bytes())
        with server.connect() as peer:
            assert peer.log_on(user_id="", pw=token(ann))["status"] == "success"
        keytab.unlink()
        assert "at the moment" in refused(server, token(ann))
        assert server.logs("25-0003")


def _made(path: Path) -> Path:
    path.mkdir()
    return path


def test_without_a_password(tmp_path: Path, realm: Realm) -> None:
    ports = {"admin": free_port(), "browsers": free_port()}
    more = "<AllowAnonymous>true</AllowAnonymous>"
    with server_for(tmp_path, realm, ports, more=more) as server:
        with server.connect() as peer:
            assert peer.log_on(user_id="ann", pw="")["status"] == "success"
        assert server.logs("authid           = ''")


def _der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    length = len(content).to_bytes(2, "big")
    return bytes([tag, 0x82]) + length + content


def test_a_client_that_asks_which_mechanism_first(
    server: RunningServer, ports: dict[str, int], ann: dict[str, str]
) -> None:
    """The server says so in a challenge, which over HTTP is one round too many."""
    kerberos = b"\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02"
    spnego = b"\x06\x06\x2b\x06\x01\x05\x05\x02"
    offer = _der(0x60, spnego, _der(0xA0, _der(0x30, _der(0xA0, _der(0x30, kerberos)))))
    asks = base64.b64encode(offer).decode()
    ticket = base64.b64decode(token(ann))
    answer = _der(0xA1, _der(0x30, _der(0xA2, _der(0x04, ticket))))
    with server.connect() as peer:
        ack = peer.log_on(user_id="ann", pw=asks)
        assert (ack["status"], ack["user_id"]) == ("retry", "ann")
        assert base64.b64decode(ack["pw"]).startswith(b"\xa1")
        assert peer.log_on(user_id="ann", pw=base64.b64encode(answer).decode())["pw"]
        peer.flush()
    reply = ask(ports["admin"], "/amps.json", authorization=f"Negotiate {asks}")
    assert (reply.status, reply.headers["www-authenticate"]) == (401, "Negotiate")


# --- HTTP -------------------------------------------------------------------------------------


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


# --- our client -------------------------------------------------------------------------------


@pytest.fixture
def as_ann(monkeypatch: pytest.MonkeyPatch, ann: dict[str, str]) -> None:
    for name, value in ann.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("as_ann")
def test_the_client_logs_on_with_a_ticket(server: RunningServer) -> None:
    authenticator = KerberosAuthenticator(f"AMPS/localhost:{server.port}")
    for number in range(3):
        with Client(f"program-{number}", authenticator=authenticator) as client:
            client.connect(f"tcp://somebody@127.0.0.1:{server.port}/amps/json")
            client.logon()
            client.publish("news", b"{}")
            client.flush()


@pytest.mark.usefixtures("as_ann")
def test_the_asyncio_client_logs_on_with_a_ticket(server: RunningServer) -> None:
    async def scenario() -> None:
        async with AsyncClient("awaits", authenticator=KerberosAuthenticator(SPN)) as client:
            await client.connect(f"tcp://127.0.0.1:{server.port}/amps/json")
            await client.logon()
            await client.publish("news", b"{}")
            await client.flush()

    asyncio.run(scenario())


@pytest.mark.usefixtures("as_ann")
def test_the_client_wants_to_know_who_the_server_is(tmp_path: Path) -> None:
    """A server that takes anybody in has no token to show."""
    with (
        running_server(tmp_path) as server,
        Client("c", authenticator=KerberosAuthenticator(SPN)) as c,
    ):
        c.connect(f"tcp://127.0.0.1:{server.port}/amps/json")
        with pytest.raises(CredentialsError, match="the server has not proved who it is"):
            c.logon()


def test_the_client_logs_on_with_a_keytab(
    server: RunningServer, realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keytab = realm.make_keytab("robot", tmp_path / "robot.keytab")
    for name, value in realm.variables.items():
        monkeypatch.setenv(name, value)
    with Client("robot", authenticator=KerberosAuthenticator(SPN, str(keytab))) as client:
        client.connect(f"tcp://127.0.0.1:{server.port}/amps/json")
        client.logon()
    assert server.logs("authid           = 'robot'")


@pytest.mark.parametrize(
    ("spn", "keytab", "said"),
    [
        ("AMPS/localhost", None, "AMPS/localhost: "),
        ("AMPS/localhost", "missing.keytab", "AMPS/localhost: "),
        ("nonsense", None, "is no name of a service"),
        ("AMPS/unknown.example.org", None, "AMPS/unknown.example.org: "),
    ],
)
def test_the_client_says_what_is_missing(
    server: RunningServer,
    realm: Realm,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spn: str,
    keytab: str | None,
    said: str,
) -> None:
    for name, value in realm.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/none")
    with Client("c", authenticator=KerberosAuthenticator(spn, keytab)) as client:
        client.connect(f"tcp://127.0.0.1:{server.port}/amps/json")
        with pytest.raises(CredentialsError, match=said):
            client.logon()


@pytest.mark.usefixtures("as_ann")
def test_spark_logs_on_with_a_ticket(server: RunningServer) -> None:
    command = [sys.executable, "-m", "server.tools.spark", "ping"]
    command += ["-server", f"127.0.0.1:{server.port}", "-type", "json"]
    command += ["-authenticator", "client.kerberos:from_environment"]
    for spn, code, said in (
        (f"AMPS/localhost:{server.port}", 0, ""),
        ("AMPS/unknown.example.org", 1, "Kerberos, AMPS/unknown.example.org: "),
    ):
        ended = subprocess.run(
            command,
            check=False,
            env=environment(AMPS_KERBEROS_SPN=spn),
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
        )
        assert ended.returncode == code, ended.stderr
        assert said in ended.stderr
        assert "Traceback" not in ended.stderr


# --- links ------------------------------------------------------------------------------------


LOG: Final = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""

LINK: Final = """
<Modules>
  <Module><Name>ticket</Name><Library>libamps_multi_authenticator.so</Library></Module>
</Modules>
<Replication>
  <Destination>
    <Name>peer</Name><Group>peers</Group><SyncType>async</SyncType>
    <Topic>
      <Name>orders</Name><MessageType>json</MessageType>
      <ExcludeValidation>replicate</ExcludeValidation>
    </Topic>
    <Transport>
      <Type>amps-replication</Type><InetAddr>127.0.0.1:{port}</InetAddr>
      <Authenticator>
        <Module>ticket</Module>
        <Options>
          <Kerberos.SPN>{spn}</Kerberos.SPN><Kerberos.Keytab>{keytab}</Kerberos.Keytab>
        </Options>
      </Authenticator>
    </Transport>
  </Destination>
</Replication>
"""

INCOMING: Final = """
<Transport>
  <Name>replication</Name><Type>amps-replication</Type><InetAddr>127.0.0.1:{port}</InetAddr>
</Transport>
"""


@pytest.fixture
def guarded(tmp_path: Path, realm: Realm) -> Iterator[tuple[RunningServer, int]]:
    """A server that instances log on to with tickets, and the port where they do."""
    port = free_port()
    elements = ELEMENTS.format(spn=SPN, keytab=realm.keytab, more="", admin=free_port()) + LOG
    (tmp_path / "guarded").mkdir()
    with running_server(
        tmp_path / "guarded",
        elements=elements,
        transports=INCOMING.format(port=port),
        prepare=Environment(realm.variables),
    ) as server:
        yield server, port


def test_an_instance_logs_on_to_another_one(
    tmp_path: Path, realm: Realm, guarded: tuple[RunningServer, int]
) -> None:
    """Its token lets a peer in that shows it, and once only."""
    keytab = realm.make_keytab("partner", tmp_path / "partner.keytab")
    with Listening() as address:
        elements = LOG + LINK.format(port=address.port, spn=SPN, keytab=keytab)
        with running_server(tmp_path, elements=elements, prepare=Environment(realm.variables)):
            _, hello = address.accept().receive()
            user, shown = hello[7:9]
            assert user == f"partner@{REALM}"
    _, port = guarded
    with ReplicationPeer(port) as peer:
        peer.greet(user="whoever", password=shown)
        assert peer.receive().kind == HELLO
    with ReplicationPeer(port) as peer:
        peer.greet(user="whoever", password=shown)
        assert "the logon as 'whoever' is not accepted" in peer.refusal()


def test_tickets_that_are_not_to_be_had_are_said(tmp_path: Path, realm: Realm) -> None:
    """And the instance goes on: it keeps trying, and others are served."""
    other = realm.make_keytab("forgotten", tmp_path / "forgotten.keytab")
    realm.kadmin("delprinc -force forgotten")
    for number, (spn, keytab) in enumerate(
        [(SPN, tmp_path / "missing"), (SPN, other), ("AMPS/unknown.example.org", realm.keytab)]
    ):
        where = tmp_path / str(number)
        where.mkdir()
        with Listening() as address:
            elements = LOG + LINK.format(port=address.port, spn=spn, keytab=keytab)
            with running_server(
                where, elements=elements, prepare=Environment(realm.variables)
            ) as server:
                assert server.logs(f"Kerberos: no ticket for {spn}")
                with server.log_on() as peer:
                    peer.flush()


def test_a_kdc_that_is_down(tmp_path: Path) -> None:
    """Who has a ticket already does without it."""
    (tmp_path / "realm").mkdir()
    ports = {"admin": free_port(), "browsers": free_port()}
    with running_realm(tmp_path / "realm", ann="ann-s3cret") as realm:
        ann = realm.kinit("ann", "ann-s3cret", tmp_path / "cache")
        token(ann)
        with server_for(tmp_path, realm, ports) as server:
            realm.process.kill()
            realm.process.wait()
            with server.connect() as peer:
                assert peer.log_on(user_id="", pw=token(ann))["status"] == "success"
            with pytest.raises(AssertionError):
                Ticket(ann, "AMPS/other.example.org")
            elements = LOG + LINK.format(port=free_port(), spn=SPN, keytab=realm.keytab)
            (tmp_path / "out").mkdir()
            with running_server(
                tmp_path / "out", elements=elements, prepare=Environment(realm.variables)
            ) as sending:
                assert sending.logs(f"Kerberos: no ticket for {SPN}")
                with sending.log_on() as peer:
                    peer.flush()
