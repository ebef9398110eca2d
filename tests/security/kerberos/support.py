"""What tests of Kerberos have in common: a server that takes tickets, and tickets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.realm import SPN, Environment, Realm
from tests.support.server import ROOT, RunningServer, environment, running_server
from tests.support.waiting import WAIT_SECONDS

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
from amperage.client import gssapi
from amperage.client.gssapi import byref, c_void_p

if sys.argv[2] == "spnego":
    gssapi.KERBEROS = gssapi.SPNEGO
context = gssapi.initiate(sys.argv[1], None)
print(base64.b64encode(context.step(b"")).decode(), flush=True)
for line in sys.stdin:
    context.step(base64.b64decode(line))
    print(context.is_complete, flush=True)
"""
"""Makes a token in a process of its own, as whoever its environment names."""


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
