"""What is known of clients: of those that do not read, of those that come and go."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import trustme

from tests.admin.support import Admin, running_admin
from tests.support.raw import frame
from tests.support.server import free_port
from tests.support.waiting import WAIT_SECONDS, wait_until

_LARGE: Final = b'{"v":"' + b"x" * 100_000 + b'"}'

_TRANSPORTS: Final = """
<Transport>
  <Name>local</Name><Type>amps-unix</Type><FileName>amps.sock</FileName>
  <Protocol>amps</Protocol>
</Transport>
<Transport>
  <Name>secured</Name><Type>tcps</Type><InetAddr>127.0.0.1:{port}</InetAddr>
  <Protocol>amps</Protocol><ReuseAddr>true</ReuseAddr>
  <Certificate>certificate.pem</Certificate><PrivateKey>key.pem</PrivateKey>
</Transport>
"""

_LOGON: Final = {"c": "logon", "cid": "1", "mt": "json", "a": "processed"}

_SECURED_PORT: Final = free_port()
_AUTHORITY: Final = trustme.CA()


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    directory = tmp_path_factory.mktemp("clients")
    issued = _AUTHORITY.issue_cert("localhost")
    issued.private_key_pem.write_to_path(directory / "key.pem")
    issued.cert_chain_pems[0].write_to_path(directory / "certificate.pem")
    transports = _TRANSPORTS.format(port=_SECURED_PORT)
    with running_admin(directory, transports=transports) as found:
        yield found


def clients(admin: Admin) -> dict[str, dict[str, str]]:
    """All clients, by name."""
    found = admin.tree("/amps/instance/clients.json")["amps"]["instance"]["clients"]
    return {one["client_name"]: one for one in found}


def is_said(admin: Admin, name: str, field: str, value: str) -> bool:
    """Whether a field of a client has a value."""
    return clients(admin).get(name, {}).get(field) == value


def test_what_a_client_does_not_read_is_shown(admin: Admin) -> None:
    with admin.server.log_on("idle") as idle, admin.server.log_on("busy") as busy:
        idle.subscribe("large", "1")
        for _ in range(200):
            busy.publish("large", _LARGE)
        busy.flush()
        wait_until(lambda: is_said(admin, "idle", "tcp_zero_window_advert", "1"))
        wait_until(lambda: float(clients(admin)["idle"]["queue_max_latency"]) > 1)
        found = clients(admin)["idle"]
        kept, sending = int(found["queued_bytes_out"]), int(found["transport_tx_queue"])
        assert 0 < kept < 200 * len(_LARGE) + 20_000
        assert sending > 0
        assert int(found["queue_depth_out"]) == pytest.approx(kept / len(_LARGE), rel=0.05)
        for _ in range(200):
            idle.receive()
        wait_until(lambda: is_said(admin, "idle", "queued_bytes_out", "0"))
        found = clients(admin)["idle"]
        assert found["queue_depth_out"] == found["tcp_zero_window_advert"] == "0"
        assert float(found["queue_max_latency"]) == 0
        assert int(found["messages_out"]) == 202


def assert_logon_is_counted(admin: Admin, peer: socket.socket, transport: str) -> None:
    """Log on under the name of the transport, and look what is said of that."""
    logon = frame(_LOGON | {"client_name": transport})
    peer.sendall(logon)
    answer = peer.recv(4096)
    wait_until(lambda: is_said(admin, transport, "bytes_out", str(len(answer))))
    found = clients(admin)[transport]
    assert found["bytes_in"] == str(len(logon))
    assert (found["messages_in"], found["messages_out"]) == ("1", "1")
    assert found["transport"] == transport
    assert found["transport_rx_queue"] == found["tcp_zero_window_advert"] == "0"


def test_clients_of_a_local_socket_are_shown(admin: Admin) -> None:
    with socket.socket(socket.AF_UNIX) as local:
        local.settimeout(WAIT_SECONDS)
        local.connect(str(Path(admin.server.log_file).parent / "amps.sock"))
        assert_logon_is_counted(admin, local, "local")


def test_clients_that_come_over_tls_are_counted_without_it(admin: Admin) -> None:
    context = ssl.create_default_context()
    _AUTHORITY.configure_trust(context)
    with (
        socket.create_connection(("127.0.0.1", _SECURED_PORT), WAIT_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        assert_logon_is_counted(admin, secured, "secured")


def test_a_client_that_has_gone_still_counts_and_its_id_does_not_return(admin: Admin) -> None:
    def received() -> int:
        path = "/amps/instance/processors/external/messages_received.csv"
        return int(admin.ask(path).text.strip().rpartition(",")[2])

    with admin.server.log_on("gone") as peer:
        for _ in range(50):
            peer.publish("plain", b"{}")
        peer.flush()
        wait_until(lambda: is_said(admin, "gone", "messages_in", "52"))
        first, before = clients(admin)["gone"]["id"], received()
    wait_until(lambda: "gone" not in clients(admin))
    assert received() >= before
    with admin.server.log_on("gone"):
        wait_until(lambda: "gone" in clients(admin))
        assert int(clients(admin)["gone"]["id"]) > int(first)
