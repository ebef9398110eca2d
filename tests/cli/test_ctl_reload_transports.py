"""`amps-ctl reload`: transports are added, removed and changed while clients are connected."""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.admin.support import Admin, running_admin
from tests.cli.reload_support import configuration, edit, refused, reloaded, running
from tests.cli.test_ctl import ctl
from tests.support.chances import examples
from tests.support.raw import RawPeer
from tests.support.server import free_port
from tests.support.waiting import wait_until
from tests.transports.support import Authority, connect_tls, connect_unix, transport

END: Final = "</Transports>"


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Admin]:
    with running_admin(tmp_path) as running:
        yield running


def inet(name: str, port: int, elements: str = "", kind: str = "tcp") -> str:
    """A transport at a port."""
    address = f"<InetAddr>127.0.0.1:{port}</InetAddr><ReuseAddr>true</ReuseAddr>"
    return transport(name, kind, f"{address}<Protocol>amps</Protocol>{elements}")


def serves(port: int) -> bool:
    """Whether clients can log on there."""
    try:
        with RawPeer(port) as peer:
            return bool(peer.log_on()["status"] == "success")
    except ConnectionRefusedError:
        return False


def names(admin: Admin) -> set[str]:
    """The transports that can be operated."""
    return set(ctl(admin, "transport", "list").stdout.split())


def test_a_transport_is_added_and_removed(admin: Admin) -> None:
    port = free_port()
    more = inet("more", port)
    edit(admin, END, more + END)
    planned = ctl(admin, "reload", "--dry-run").stdout.splitlines()
    assert len(planned) == 1
    assert planned[0].startswith("Transports/Transport more is added (")
    assert not serves(port)
    assert reloaded(admin) == [*planned, "1 difference applied."]
    assert names(admin) == {"any-tcp", "more"}
    admin.comes("/amps/instance/transports/more/is_enabled", "1")
    edit(admin, more, "")
    with RawPeer(port) as client, admin.server.log_on() as other:
        assert client.log_on("somebody")["status"] == "success"
        lines = reloaded(admin)
        assert lines[0].startswith("Transports/Transport more is removed (")
        assert lines[1] == "transport more is closed, with 1 connections"
        assert client.is_disconnected()
        assert not serves(port)
        assert other.subscribe("orders", "1")["status"] == "success"
    assert names(admin) == {"any-tcp"}


def test_a_changed_transport_is_closed_and_opened_at_the_same_address(admin: Admin) -> None:
    port = admin.server.port
    with admin.server.log_on() as client:
        edit(
            admin,
            "<Protocol>amps</Protocol>",
            "<Protocol>amps</Protocol><MessageType>json</MessageType>",
        )
        assert "transport any-tcp is closed, with 1 connections" in reloaded(admin)
        assert client.is_disconnected()
    with RawPeer(port) as client:
        assert client.log_on(message_type="fix")["status"] == "failure"
    assert serves(port)
    edit(admin, "any-tcp", "any")
    assert len(reloaded(admin)) == 4
    assert names(admin) == {"any"}
    assert serves(port)


def test_a_changed_transport_keeps_its_state(admin: Admin) -> None:
    open_port, closed_port = free_port(), free_port()
    closed = "<InitialState>disabled</InitialState>"
    transports = inet("open", open_port) + inet("closed", closed_port, closed)
    edit(admin, END, transports + END)
    reloaded(admin)
    assert ctl(admin, "transport", "disable", "open").returncode == 0
    assert ctl(admin, "transport", "enable", "closed").returncode == 0
    json = "<MessageType>json</MessageType>"
    changed = inet("open", open_port, json) + inet("closed", closed_port, closed + json)
    edit(admin, transports, changed)
    reloaded(admin)
    assert (serves(open_port), serves(closed_port)) == (False, True)
    edit(admin, closed, "")
    edit(admin, inet("open", open_port, json), inet("open", open_port, json + closed))
    reloaded(admin)
    edit(admin, closed, "")
    reloaded(admin)
    assert (serves(open_port), serves(closed_port)) == (True, True)


def test_a_unix_socket_passes_to_the_next_transport(admin: Admin, tmp_path: Path) -> None:
    path = tmp_path / "s"
    first = transport("one", "amps-unix", f"<FileName>{path}</FileName><Protocol>amps</Protocol>")
    edit(admin, END, first + END)
    reloaded(admin)
    edit(admin, first, first.replace("one", "two"))
    with connect_unix(path) as client:
        client.log_on()
        reloaded(admin)
        assert client.is_disconnected()
    with connect_unix(path) as client:
        assert client.log_on()["status"] == "success"
    edit(admin, first.replace("one", "two"), "")
    reloaded(admin)
    assert not path.exists()


def test_a_transport_that_cannot_be_opened_refuses_all(admin: Admin) -> None:
    free, taken = free_port(), free_port()
    with socket.create_server(("127.0.0.1", taken)):
        edit(admin, "any-tcp", "other")
        edit(admin, END, inet("free", free) + inet("taken", taken) + END)
        with admin.server.log_on() as client:
            assert f"transport taken cannot listen on 127.0.0.1:{taken}" in refused(admin)
            assert client.subscribe("orders", "1")["status"] == "success"
        assert serves(admin.server.port)
        assert not serves(free)
        assert names(admin) == {"any-tcp"}
    reloaded(admin)
    assert names(admin) == {"other", "free", "taken"}
    assert serves(free)
    assert serves(taken)


def test_certificates_change_for_new_connections(admin: Admin, tmp_path: Path) -> None:
    old, new, third = (Authority(tmp_path, name) for name in ("old", "new", "third"))
    port = free_port()

    def files(authority: Authority) -> str:
        certificate, key = authority.issue("localhost")
        return f"<Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey>"

    before, after = files(old), files(new)
    edit(admin, END, inet("secure", port, before, "tcps") + END)
    reloaded(admin)
    with connect_tls(port, old.client_context()) as client:
        client.log_on()
        edit(admin, before, "<Certificate>missing</Certificate><PrivateKey>missing</PrivateKey>")
        assert "transport secure cannot be secured" in refused(admin)
        edit(admin, "<Certificate>missing</Certificate><PrivateKey>missing</PrivateKey>", after)
        assert reloaded(admin)[-1] == "2 differences applied."
        with connect_tls(port, new.client_context()) as next_client:
            assert next_client.log_on()["status"] == "success"
        assert not accepts(port, old)
        assert client.subscribe("orders", "1")["status"] == "success"
    for theirs, ours in zip(third.issue("localhost"), new.issue("localhost"), strict=True):
        ours.write_bytes(theirs.read_bytes())
    wait_until(lambda: accepts(port, third), "the new files are not watched")


def accepts(port: int, authority: Authority) -> bool:
    """Whether the certificate of a transport is of an authority."""
    try:
        with connect_tls(port, authority.client_context()):
            return True
    except ssl.SSLError:
        return False


@pytest.mark.long
def test_random_edits_are_whole_or_refused(admin: Admin) -> None:
    """A model has the transports that the instance runs; one address cannot be listened on."""
    chances = random.Random(7)
    ports = {name: free_port() for name in "abcd"}
    original = configuration(admin.server).read_text()
    runs: dict[str, int] = {}
    with socket.create_server(("127.0.0.1", ports["d"])):
        for _ in range(examples(15, 7)):
            listed = chances.sample("abcd", chances.randrange(4))
            wanted = dict(zip("xyz", (ports[name] for name in listed), strict=False))
            elements = "".join(inet(name, port) for name, port in wanted.items())
            configuration(admin.server).write_text(original.replace(END, elements + END))
            if ports["d"] in wanted.values():
                refused(admin)
            else:
                reloaded(admin)
                runs = wanted
            assert names(admin) == {"any-tcp", *runs}
            assert [serves(port) for name, port in ports.items() if name != "d"] == [
                port in runs.values() for name, port in ports.items() if name != "d"
            ]
            assert all(f"<Name>{name}</Name>" in running(admin) for name in runs)
