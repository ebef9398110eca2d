"""libamps_simple_access_entitlement: by the names of topics and paths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.admin.support import ask
from tests.support.raw import RawPeer
from tests.support.server import free_port, running_server

LOADED: Final = """
<Modules>
  <Module><Name>simple</Name><Library>libamps_simple_access_entitlement.so</Library></Module>
</Modules>
<Admin>
  <InetAddr>127.0.0.1:{admin}</InetAddr>
  <Entitlement>
    <Module>simple</Module>
    <Options><DeniedTopics>^/amps/administrator</DeniedTopics></Options>
  </Entitlement>
</Admin>
"""

TRANSPORT: Final = """
<Transport>
  <Name>{name}</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>
  <Protocol>amps</Protocol>
  <Entitlement><Module>simple</Module><Options>{options}</Options></Entitlement>
</Transport>
"""

OPTIONS: Final = {
    "some": "<AllowedTopics>^orders</AllowedTopics><DeniedTopics>secret</DeniedTopics>",
    "reading": "<GrantedPermissions>read</GrantedPermissions>",
    "writing": "<GrantedPermissions>write</GrantedPermissions>",
}


READING: Final = [
    "subscribe",
    "delta_subscribe",
    "sow",
    "sow_and_subscribe",
    "sow_and_delta_subscribe",
]


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    ports = {name: free_port() for name in (*OPTIONS, "admin")}
    transports = "".join(
        TRANSPORT.format(name=name, port=ports[name], options=options)
        for name, options in OPTIONS.items()
    )
    directory = tmp_path_factory.mktemp("simple")
    with running_server(
        directory, elements=LOADED.format(admin=ports["admin"]), transports=transports
    ):
        yield ports


@pytest.mark.parametrize(
    ("transport", "topic", "reads", "writes"),
    [
        ("some", "orders-1", True, True),
        ("some", "orders-secret", False, False),
        ("some", "prices", False, False),
        ("reading", "orders", True, False),
        ("writing", "orders", False, True),
    ],
)
def test_topics_are_allowed_and_denied(
    ports: dict[str, int], transport: str, topic: str, reads: bool, writes: bool
) -> None:
    for command, may in (("subscribe", reads), ("publish", writes)):
        with RawPeer(ports[transport]) as peer:
            assert peer.log_on()["status"] == "success"
            ack = peer.ask({"c": command, "cid": "1", "t": topic, "a": "processed"}, b"{}")
            assert ack["status"] == ("success" if may else "failure"), command
            assert may or ack["reason"] == "not entitled"


@pytest.mark.parametrize("command", READING)
def test_who_may_not_read_is_told_that_before_the_filter_is_looked_at(
    ports: dict[str, int], command: str
) -> None:
    asked = {"c": command, "cid": "1", "sub_id": "s", "a": "processed", "filter": "/id ="}
    more = ["", "top_n=2,skip_n=1"] if command.startswith("sow") else [""]
    with RawPeer(ports["some"]) as peer:
        peer.log_on()
        for options in more:
            ack = peer.ask(asked | {"t": "prices", "o": options})
            assert (ack["status"], ack["reason"]) == ("failure", "not entitled"), options
        ack = peer.ask(asked | {"t": "^prices"})  # of which topics that are denied are passed over
        assert (ack["status"], ack["reason"]) == ("failure", "bad filter")


def test_a_regular_expression_passes_over_what_is_denied(ports: dict[str, int]) -> None:
    with RawPeer(ports["some"]) as peer, RawPeer(ports["writing"]) as publisher:
        peer.log_on()
        publisher.log_on()
        assert peer.subscribe(".*", "1")["status"] == "success"
        for topic in ("prices", "orders-secret", "orders"):
            publisher.publish(topic, b"{}")
        publisher.flush()
        assert peer.receive()[0]["t"] == "orders"
        assert peer.hears_nothing()


def test_paths_of_the_admin_interface_are_denied(ports: dict[str, int]) -> None:
    assert ask(ports["admin"], "/amps/instance.json").status == 200
    assert ask(ports["admin"], "/amps/administrator/minidump").status == 403
