"""Kerberos: instances log on to each other with tickets, which may not be to be had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.security.kerberos.support import ELEMENTS, Ticket, server_for, token
from tests.support.realm import REALM, SPN, Environment, Realm, needs_kdc, running_realm
from tests.support.replication_peer import HELLO, Listening, ReplicationPeer
from tests.support.server import RunningServer, free_port, running_server

pytestmark = needs_kdc

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
