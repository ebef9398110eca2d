"""/amps/mesh: what one instance knows of all that replicate, whoever of them is asked."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import msgspec
import pytest

from tests.admin.support import Admin, Reply, ask, running_admin
from tests.replication.topologies import Link, Topology, both
from tests.support.cluster import DOWNGRADE, ORDERS, Cluster, Instance, cluster
from tests.support.long_form import spread
from tests.support.replication_peer import WORD, ReplicationPeer, description
from tests.support.server import free_port, running_configuration
from tests.support.waiting import WAIT_SECONDS, wait_until
from tests.transports.support import Authority

CHAIN: Final = Topology("chain", both(("A", "B"), ("B", "C")), ())
MESHES: Final = {
    "pair": Topology("pair", both(("A", "B")), ()),
    "chain": CHAIN,
    "ring": Topology("ring", (Link("A", "B"), Link("B", "C"), Link("C", "A")), ()),
}
ADMIN: Final = "<Admin><InetAddr>127.0.0.1:{port}</InetAddr><Interval>1s</Interval>{more}</Admin>"


class Meshed:
    """Instances that replicate, and their admin interfaces.

    Attributes:
        instances: all of them.
        ports: of their admin interfaces, by name.
    """

    def __init__(self, instances: Cluster, ports: dict[str, int]) -> None:
        self.instances = instances
        self.ports = ports

    def __getitem__(self, name: str) -> Instance:
        return self.instances[name]

    def ask(self, name: str, path: str = "/amps/mesh.json") -> Reply:
        reply = ask(self.ports[name], path)
        assert reply.status == 200, reply.text
        return reply

    def sees(self, name: str) -> dict[str, dict[str, str]]:
        """The instances that one knows, by name."""
        return {one["id"]: one for one in self.ask(name).json["amps"]["mesh"]["instances"]}

    def links(self, name: str) -> dict[str, dict[str, str]]:
        """The links that one knows, by their ids."""
        return {one["id"]: one for one in self.ask(name).json["amps"]["mesh"]["links"]}

    def until_reached(self, name: str, others: set[str]) -> None:
        """Wait until an instance can reach some, and no others."""

        def is_so() -> bool:
            found = self.sees(name).items()
            return {one for one, known in found if known["is_reachable"] == "1"} == others

        wait_until(is_so, lambda: self.sees(name))

    def until_found_at(self, name: str, expected: dict[str, tuple[str, str]]) -> None:
        """Wait until an instance knows where the admin interfaces are, and how to get there."""

        def is_so() -> bool:
            found = self.sees(name).items()
            return expected == {
                one: (known["admin_addr"], known["admin_scheme"]) for one, known in found
            }

        wait_until(is_so, lambda: self.sees(name))

    def until(self, name: str, link: str, **fields: str) -> None:
        """Wait until an instance knows something of a link."""

        def has_come() -> bool:
            found = self.links(name).get(link, {})
            return all(found.get(field) == value for field, value in fields.items())

        wait_until(has_come, lambda: f"{fields}: {self.links(name)}")


@contextmanager
def meshed(directory: Path, topology: Topology, **more: str) -> Iterator[Meshed]:
    """The instances of a topology, which have been started.

    Args:
        directory: where they run.
        topology: who replicates to whom.
        more: elements of the Admin section of one, by its name.
    """
    ports = {name: free_port() for name in topology.instances}
    of_each = {
        name: ADMIN.format(port=port, more=more.get(name, "")) for name, port in ports.items()
    }
    with cluster(directory, topology, of_each=of_each) as instances:
        instances.start()
        yield Meshed(instances, ports)


@pytest.mark.parametrize("topology", MESHES.values(), ids=MESHES)
def test_each_instance_shows_all_of_them(tmp_path: Path, topology: Topology) -> None:
    everybody = set(topology.instances)
    links = {f"{one.source}!{one.destination}" for one in topology.links}
    with meshed(tmp_path, topology) as mesh:
        for name in everybody:
            mesh.until_reached(name, everybody)
            for link in links:
                mesh.until(name, link, state="replicating", is_current="1", messages_behind="0")
            assert set(mesh.links(name)) == links
            found = mesh.sees(name)
            assert {one for one, known in found.items() if known["is_this"] == "1"} == {name}
            assert {known["group"] for known in found.values()} == everybody
        mesh["A"].server.log_on().publish("orders", b'{"id":1}')
        first = next(one for one in topology.links if one.source == "A")
        mesh.until("B", f"A!{first.destination}", messages_out="1", seconds_behind="0")


def test_where_others_are_looked_at_is_known_throughout(tmp_path: Path) -> None:
    external = "<ExternalInetAddr>https://proxy.example.com/c</ExternalInetAddr>"
    with meshed(tmp_path, CHAIN, C=external) as mesh:
        expected = {
            "A": (f"127.0.0.1:{mesh.ports['A']}", "http"),
            "B": (f"127.0.0.1:{mesh.ports['B']}", "http"),
            "C": ("proxy.example.com/c", "https"),
        }

        for name in expected:
            mesh.until_found_at(name, expected)
        path = "/amps/instance/replication/C/destination_admin_addr.csv"
        assert mesh.ask("B", path).text.rstrip().endswith(",proxy.example.com/c")


def test_who_is_killed_stays_listed_and_comes_back(tmp_path: Path) -> None:
    everybody = {"A", "B", "C"}
    with meshed(tmp_path, CHAIN) as mesh:
        for name in everybody:
            mesh.until_reached(name, everybody)
        for link in ("A!B", "B!C", "C!B"):
            mesh.until("A", link, state="replicating")
        found = {one: (f"127.0.0.1:{port}", "http") for one, port in mesh.ports.items()}
        mesh.until_found_at("A", found)
        mesh["C"].kill()
        mesh.until_reached("A", {"A", "B"})
        assert set(mesh.sees("A")) == everybody
        mesh.until("A", "B!C", state="not connected", is_connected="0", is_current="1")
        mesh.until("A", "C!B", state="replicating", is_current="0")
        mesh.until_found_at("A", found)
        leaf = "/amps/instance/replication/C/destination_admin_addr.csv"
        assert mesh.ask("B", leaf).text.rstrip().endswith(f",127.0.0.1:{mesh.ports['C']}")
        publisher = mesh["A"].server.log_on()
        for n in range(10):
            publisher.publish("orders", b'{"id":%d,"v":"%s"}' % (n, b"x" * 1000))
        mesh.until("A", "A!B", messages_behind="0", waits_for="instances behind B")
        mesh.until("A", "B!C", destination_name="C", messages_out="0")
        wait_until(lambda: int(mesh.links("A")["B!C"]["messages_behind"]) >= 10)
        behind = mesh.links("A")["B!C"]
        assert 10_000 < int(behind["bytes_behind"]) < 40_000
        assert behind["waits_for"].startswith("a connection")
        wait_until(lambda: int(mesh.links("A")["B!C"]["seconds_behind"]) >= 1)
        mesh["C"].start()
        mesh.until_reached("A", everybody)
        mesh.until("A", "B!C", state="replicating", messages_behind="0", waits_for="")
        mesh.until("A", "A!B", seconds_behind="0", waits_for="")


def test_who_is_waited_for_no_more_is_said(tmp_path: Path) -> None:
    topology = MESHES["pair"]
    ports = {name: free_port() for name in topology.instances}
    of_each = {name: ADMIN.format(port=port, more="") for name, port in ports.items()}
    elements = ORDERS + DOWNGRADE.format(every="1s", age="1s")
    with cluster(tmp_path, topology, elements=elements, of_each=of_each) as instances:
        instances.start()
        mesh = Meshed(instances, ports)
        mesh.until("B", "A!B", sync_type="sync", replication_type="sync", state="replicating")
        mesh["B"].kill()
        mesh["A"].server.log_on().publish("orders", b'{"id":1}')
        mesh.until("A", "A!B", sync_type="sync", replication_type="async", is_connected="0")


def test_an_instance_by_itself_shows_itself(tmp_path: Path) -> None:
    with running_admin(tmp_path) as admin:
        mesh = admin.tree("/amps/mesh.json")["amps"]["mesh"]
        [one] = mesh["instances"]
        assert (one["id"], one["is_this"], one["is_reachable"]) == ("test-instance", "1", "1")
        assert mesh["links"] == []
        assert admin.tree()["amps"]["mesh"] == mesh
        assert admin.ask("/amps/mesh/instances/test-instance/group.csv").status == 200


SECURE: Final = """
<AMPSConfig>
  <Name>{name}</Name>
  <Admin>
    <InetAddr>127.0.0.1:{admin}</InetAddr><Interval>1s</Interval>
    <Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey>
  </Admin>
  <Transports>
    <Transport>
      <Name>any-tcp</Name><Type>tcp</Type><Protocol>amps</Protocol>
      <InetAddr>127.0.0.1:{port}</InetAddr><ReuseAddr>true</ReuseAddr>
    </Transport>
    <Transport>
      <Name>replication</Name><Type>amps-replication-secure</Type>
      <InetAddr>127.0.0.1:{listens}</InetAddr>
      <Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey>
    </Transport>
  </Transports>
  <TransactionLog>
    <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
    <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
  <Replication>
    <Destination>
      <Name>{other}</Name><Group>{other}</Group><SyncType>sync</SyncType>
      <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
      <Transport>
        <Type>amps-replication-secure</Type><InetAddr>127.0.0.1:{leads}</InetAddr>
      </Transport>
    </Destination>
  </Replication>
  <Logging><Target><Protocol>stdout</Protocol><Level>info</Level></Target></Logging>
</AMPSConfig>
"""


def test_links_over_tls_without_verified_certificates_are_as_good(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path, "known").issue("localhost")
    names = ("one", "two")
    listens = {name: free_port() for name in names}
    admins = {name: free_port() for name in names}

    @contextmanager
    def running(name: str, other: str) -> Iterator[Any]:
        port = free_port()
        text = SECURE.format(
            name=name,
            other=other,
            admin=admins[name],
            port=port,
            listens=listens[name],
            leads=listens[other],
            certificate=certificate,
            key=key,
        )
        (tmp_path / name).mkdir()
        with running_configuration(tmp_path / name, text, port) as server:
            yield server

    with running("one", "two"), running("two", "one"):
        wait_until(lambda: all(_all_reached(port, certificate) for port in admins.values()))
        expected = {(f"127.0.0.1:{port}", "https") for port in admins.values()}
        wait_until(lambda: _admins(admins["one"], certificate) == expected)


def _secure_tree(port: int, certificate: Path) -> Any:
    context = ssl.create_default_context(cafile=certificate.parent / "known.pem")
    connection = http.client.HTTPSConnection(
        "localhost", port, timeout=WAIT_SECONDS, context=context
    )
    try:
        connection.request("GET", "/amps/mesh.json")
        return msgspec.json.decode(connection.getresponse().read())["amps"]["mesh"]
    finally:
        connection.close()


def _admins(port: int, certificate: Path) -> set[tuple[str, str]]:
    instances = _secure_tree(port, certificate)["instances"]
    return {(one["admin_addr"], one["admin_scheme"]) for one in instances}


def _all_reached(port: int, certificate: Path) -> bool:
    mesh = _secure_tree(port, certificate)
    states = {one["state"] for one in mesh["links"]}
    names = {one["name"] for one in mesh["instances"] if one["is_reachable"] == "1"}
    return names == {"one", "two"} and states == {"replicating"} and len(mesh["links"]) == 2


TAKING: Final = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
LISTENING: Final = """
<Transport>
  <Name>replication</Name><Type>amps-replication</Type><InetAddr>127.0.0.1:{port}</InetAddr>
</Transport>
"""
MARKUP: Final = "</td><script>alert(1)</script>&'\"\x00\n"


@contextmanager
def taking(directory: Path) -> Iterator[tuple[Admin, int]]:
    """A server that takes replication, and where it does."""
    port = free_port()
    with running_admin(directory, elements=TAKING, transports=LISTENING.format(port=port)) as admin:
        yield admin, port


HOSTILE: Final = {
    "markup": {"host": None, "port": 1, "is_secure": False, "external": f"x:1/{MARKUP}"},
    "a script": {"host": None, "port": 1, "is_secure": False, "external": "javascript:alert(1)"},
    "huge": {"host": None, "port": 1, "is_secure": False, "external": "x" * 500_000},
    "no host": {"host": MARKUP, "port": 1, "is_secure": False},
    "no port": {"host": None, "port": -(1 << 63), "is_secure": False},
}


@pytest.mark.parametrize("said", spread(tuple(HOSTILE.values()), 3), ids=HOSTILE)
def test_an_address_that_is_none_is_not_shown(tmp_path: Path, said: dict[str, object]) -> None:
    with taking(tmp_path) as (admin, port), ReplicationPeer(port) as peer:
        peer.greet(description=description("peer", "peers", admin=said))
        peer.receive()
        admin.comes("/amps/mesh/instances/peer/is_reachable", "1")
        assert admin.tree("/amps/mesh/instances/peer.json")["amps"]["mesh"]["instances"] == [
            {
                "id": "peer",
                "admin_addr": "",
                "admin_scheme": "",
                "group": "peers",
                "has_reported": "0",
                "is_reachable": "1",
                "is_this": "0",
                "name": "peer",
                "seconds_ago": "0",
            }
        ]


def test_what_is_no_address_at_all_is_refused(tmp_path: Path) -> None:
    with taking(tmp_path) as (_, port), ReplicationPeer(port) as peer:
        peer.greet(description=description("peer", "peers", admin="localhost:8085"))
        assert "the configuration summary of peer cannot be read" in peer.refusal()


def test_what_is_told_is_shown_as_text(tmp_path: Path) -> None:
    with taking(tmp_path) as (admin, port), ReplicationPeer(port) as peer:
        peer.hears_mesh = True
        peer.greet()
        link = [MARKUP, MARKUP, MARKUP, MARKUP, True, MARKUP, 253_402_300_799_000_000]
        link += [1 << 62] * 4 + [MARKUP]
        there = [[MARKUP, MARKUP, MARKUP, True, True]]
        strange = [MARKUP, 1, 1, MARKUP, MARKUP, True, there, [link]]
        plain = ["peer", 1, 1, "peers", "", False, there, []]
        told = msgspec.msgpack.encode((3, [(0, plain), (0, strange), (0, b"none")]))
        peer.send(WORD, "test-instance", ["peer"], 1, "mesh", told)
        wait_until(lambda: len(admin.tree("/amps/mesh.json")["amps"]["mesh"]["instances"]) == 3)
        mesh = admin.tree("/amps/mesh.json")["amps"]["mesh"]
        known = {one["id"]: one for one in mesh["instances"]}
        assert set(known) == {"test-instance", "peer", MARKUP}
        assert known[MARKUP]["admin_addr"] == ""
        assert [one["state"] for one in mesh["links"]] == [MARKUP]
        whole = ET.fromstring(admin.ask("/amps/mesh.xml").text)
        assert [one.findtext("group") for one in whole.iter("instance")].count("peers") == 1
        for path in ("/amps/mesh", "/amps/mesh/instances", "/amps/mesh/links"):
            assert "<script>" not in admin.ask(path).text


def test_words_that_make_no_sense_change_nothing(tmp_path: Path) -> None:
    with taking(tmp_path) as (admin, port), ReplicationPeer(port) as peer:
        peer.hears_mesh = True
        peer.greet()
        for number, body in enumerate((b"", b"\xc1" * 60_000, b"\x91" * 60_000, b"\x92\x09\x00")):
            peer.send(WORD, "test-instance", ["peer"], number, "mesh", body)
        while True:  # until it says which reports it has
            came = peer.receive()
            if came.kind == WORD:
                break
        kind, reports = msgspec.msgpack.decode(came.fields[4])
        assert (kind, [name for name, _, _ in reports]) == (1, ["test-instance"])
        peer.send(WORD, "test-instance", ["peer"], 9, "mesh", msgspec.msgpack.encode((2, ["peer"])))
        peer.send(
            WORD,
            "test-instance",
            ["peer"],
            10,
            "mesh",
            msgspec.msgpack.encode((2, ["test-instance"])),
        )
        while (came := peer.receive()).kind != WORD or came.fields[4][1] != 3:
            pass
        [[_, report]] = msgspec.msgpack.decode(came.fields[4])[1]
        assert report[0] == "test-instance"
        admin.comes("/amps/mesh/instances/peer/is_reachable", "1")
        admin.comes("/amps/mesh/instances/peer/has_reported", "0")


def test_who_watches_is_told_of_changes(tmp_path: Path) -> None:
    with (
        taking(tmp_path) as (admin, port),
        socket.create_connection(("127.0.0.1", admin.port), WAIT_SECONDS) as watching,
    ):
        watching.sendall(b"GET /amps/mesh?watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
        lines = watching.makefile("rb")
        assert _until(lines, b"event: node")
        with ReplicationPeer(port) as peer:
            peer.greet()
            peer.receive()
            change = _until(lines, b"/amps/mesh/instances/peer/is_reachable")
            assert b'/amps/mesh/instances/peer/is_reachable":"1"' in change


def _until(lines: Any, wanted: bytes) -> bytes:
    """The first line that has something in it."""
    while wanted not in (line := lines.readline()):
        assert line, "the end has come"
    return bytes(line)
