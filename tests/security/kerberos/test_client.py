"""Kerberos: our client and spark log on with tickets."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from amperage.client import AsyncClient, Client, CredentialsError, KerberosAuthenticator
from tests.support.realm import SPN, Realm, needs_kdc
from tests.support.server import RunningServer, environment, running_server
from tests.support.waiting import WAIT_SECONDS

pytestmark = needs_kdc


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
        with pytest.raises(CredentialsError, match="the server has not proved its identity"):
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
    command = [sys.executable, "-m", "server.cli.spark", "ping"]
    command += ["-server", f"127.0.0.1:{server.port}", "-type", "json"]
    command += ["-authenticator", "amperage.client.kerberos:from_environment"]
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
