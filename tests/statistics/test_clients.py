"""What is known of clients: of those that do not read, of those that come and go."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.admin.support import Admin, running_admin
from tests.support.raw import frame
from tests.support.waiting import WAIT_SECONDS, wait_until

_LARGE: Final = b'{"v":"' + b"x" * 100_000 + b'"}'

_SOCKET: Final = """
<Transport>
  <Name>local</Name><Type>amps-unix</Type><FileName>amps.sock</FileName>
  <Protocol>amps</Protocol>
</Transport>
"""


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    with running_admin(tmp_path_factory.mktemp("clients"), transports=_SOCKET) as found:
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


def test_clients_of_a_local_socket_are_shown(admin: Admin) -> None:
    path = str(Path(admin.server.log_file).parent / "amps.sock")
    with socket.socket(socket.AF_UNIX) as local:
        local.settimeout(WAIT_SECONDS)
        local.connect(path)
        logon = {"c": "logon", "cid": "1", "client_name": "local", "mt": "json", "a": "processed"}
        local.sendall(frame(logon))
        answer = local.recv(4096)
        wait_until(lambda: is_said(admin, "local", "bytes_out", str(len(answer))))
        found = clients(admin)["local"]
        assert found["bytes_in"] == str(len(frame(logon)))
        assert (found["messages_in"], found["messages_out"]) == ("1", "1")
        assert found["transport"] == "local"
        assert found["transport_rx_queue"] == found["tcp_zero_window_advert"] == "0"


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
