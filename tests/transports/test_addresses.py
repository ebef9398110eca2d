"""Where transports listen: IPv4, IPv6 or both, one address or all."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

from config_schema.problems import Location
from config_schema.spec import InetAddr
from config_schema.units import parse_inet_address
from server.transports.sockets import listen_on_inet
from tests.support.raw import RawPeer
from tests.support.server import free_port, running_server
from tests.transports.support import transport


def has_ipv6() -> bool:
    """Whether this machine has IPv6."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def listen(text: str, *, reuse_address: bool = True) -> list[socket.socket]:
    """Listen on an address as a configuration writes it."""
    address = parse_inet_address(text)
    where = InetAddr(address.host, address.port, address.family, Location("test", 1))
    return listen_on_inet(where, reuse_address=reuse_address)


def can_connect(host: str, port: int) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection((host, port), 5).close()
    except OSError:
        return False
    return True


@pytest.fixture
def port() -> int:
    """A port that nobody listens on."""
    return free_port()


@needs_ipv6
@pytest.mark.parametrize(
    ("notation", "ipv4", "ipv6"),
    [
        ("{port}", True, True),
        ("0.0.0.0:{port}", True, False),
        ("[::]:{port}", False, True),
        ("127.0.0.1:{port}", True, False),
        ("[::1]:{port}", False, True),
    ],
)
def test_the_notation_decides_the_protocol(
    port: int, notation: str, ipv4: bool, ipv6: bool
) -> None:
    """A port alone is both, [::] is IPv6 only, 0.0.0.0 is IPv4 only, an address is itself."""
    sockets = listen(notation.format(port=port))
    try:
        assert can_connect("127.0.0.1", port) == ipv4
        assert can_connect("::1", port) == ipv6
    finally:
        for listening in sockets:
            listening.close()


@needs_ipv6
def test_every_family_serves(tmp_path: Path) -> None:
    """Clients come in over IPv4 and IPv6, and the log has their addresses as people write them."""
    both, only = free_port(), free_port()
    transports = transport("both", "tcp", f"<InetAddr>{both}</InetAddr>") + transport(
        "ipv6", "tcp", f"<InetAddr>[::]:{only}</InetAddr>"
    )
    with running_server(tmp_path, transports=transports) as server:
        for host, where in (("127.0.0.1", both), ("::1", both), ("::1", only)):
            with RawPeer(where, host) as peer:
                assert peer.log_on()["status"] == "success"
        assert server.logs("remote address = 127.0.0.1:")
        assert server.logs("remote address = [::1]:")
        assert not can_connect("127.0.0.1", only)


@pytest.mark.parametrize("reuse_address", [True, False])
def test_reuse_addr_takes_over_lingering_connections(port: int, reuse_address: bool) -> None:
    """Where the server closed first, its end lingers; only with ReuseAddr can it listen again."""
    (listening,) = listen(f"127.0.0.1:{port}", reuse_address=reuse_address)
    with closing(listening), socket.create_connection(("127.0.0.1", port)) as client:
        listening.setblocking(True)
        accepted, _ = listening.accept()
        accepted.close()  # first, so that this side waits
        assert client.recv(1) == b""
    if reuse_address:
        listen(f"127.0.0.1:{port}", reuse_address=True)[0].close()
    else:
        with pytest.raises(OSError, match="in use"):
            listen(f"127.0.0.1:{port}", reuse_address=False)


def test_a_name_stands_for_all_its_addresses(port: int) -> None:
    """A host name is listened on with one socket for each of its addresses."""
    sockets = listen(f"localhost:{port}")
    try:
        for listening in sockets:
            assert can_connect(listening.getsockname()[0], port)
    finally:
        for listening in sockets:
            listening.close()


def test_a_half_opened_name_is_closed_again(port: int) -> None:
    """Where one of the addresses cannot be had, none is kept."""
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", port))
        squatter.listen()
        with pytest.raises(OSError, match="in use"):
            listen(f"localhost:{port}")
    for listening in listen(f"localhost:{port}"):
        listening.close()


def test_a_name_with_an_address_of_ipv6_that_the_machine_does_not_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As for localhost in a container: its other address is enough. Alone, it is a mistake."""
    missing = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", 0, 0, 0))
    there = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [missing, there])
    (opened,) = listen("named:0")
    with closing(opened):
        assert opened.getsockname()[0] == "127.0.0.1"
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [missing])
    with pytest.raises(OSError, match=r"Cannot assign|not supported"):
        listen("named:0")
