"""amps-action-do-reset-entitlement: those concerned are disconnected, and nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, free_port, running_server

ACTION = """
<Action>
  <On>
    <Module>amps-action-on-publish-message</Module>
    <Options><Topic>{topic}</Topic><MessageType>json</MessageType></Options>
  </On>
  <Do>
    <Module>amps-action-do-extract-values</Module>
    <Options>
      <MessageType>json</MessageType><Data>{{{{AMPS_DATA}}}}</Data><Value>GIVEN=/given</Value>
    </Options>
  </Do>
  <Do><Module>amps-action-do-reset-{what}</Module>{options}</Do>
</Action>
"""

RESETS = {
    "reset-all": "",
    "reset-user": "<AuthenticationId>{{GIVEN}}</AuthenticationId>",
    "reset-transport": "<Transport>{{GIVEN}}</Transport>",
    "reset-both": "<Transport>other</Transport><AuthenticationId>{{GIVEN}}</AuthenticationId>",
}

TRANSPORT = """
<Transport>
  <Name>other</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>
  <Protocol>amps</Protocol><MessageType>json</MessageType>
</Transport>
"""

BELIEVING = """
<Authentication>
  <Module>amps-default-authentication-module</Module>
  <Options><AllowSpoofing>true</AllowSpoofing></Options>
</Authentication>
"""


RESET = "has been reset"


@dataclass(frozen=True)
class Resetting:
    """A server whose entitlement is reset by publishes."""

    server: RunningServer
    other_port: int

    def log_on(self, name: str, user: str | None = None, *, other: bool = False) -> RawPeer:
        """A connection of a user, to either transport."""
        peer = RawPeer(self.other_port if other else self.server.port)
        logon = {"c": "logon", "cid": "1", "client_name": name, "mt": "json", "a": "processed"}
        assert peer.ask(logon | ({"user_id": user} if user else {}))["status"] == "success"
        return peer


@pytest.fixture(scope="module")
def resetting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Resetting]:
    """One server for all tests."""
    actions = "".join(
        ACTION.format(
            topic=topic, what="entitlement", options=f"<Options>{text}</Options>" if text else ""
        )
        for topic, text in RESETS.items()
    )
    actions += ACTION.format(topic="reset-authentication", what="authentication", options="")
    port = free_port()
    with running_server(
        tmp_path_factory.mktemp("resetting"),
        elements=f"{BELIEVING}<Actions>{actions}</Actions>",
        transports=TRANSPORT.format(port=port),
    ) as server:
        yield Resetting(server, port)


@pytest.mark.parametrize(
    ("topic", "given", "gone"),
    [
        ("reset-all", "", ["ada", "ada at the other", "bob", "nobody"]),
        ("reset-user", "ada", ["ada", "ada at the other"]),
        ("reset-user", "", []),
        ("reset-user", "eve", []),
        ("reset-transport", "other", ["ada at the other"]),
        ("reset-both", "ada", ["ada at the other"]),
        ("reset-both", "bob", []),
        ("reset-authentication", "", []),
    ],
)
def test_those_concerned_are_disconnected(
    resetting: Resetting, topic: str, given: str, gone: list[str]
) -> None:
    """By user and transport; a user without a name is meant only where everybody is."""
    peers = {
        "ada": resetting.log_on("ada", "ada"),
        "ada at the other": resetting.log_on("ada-other", "ada", other=True),
        "bob": resetting.log_on("bob", "bob"),
        "nobody": resetting.log_on("nobody"),
    }
    before = resetting.server.log().count(RESET)
    peers["nobody"].publish(topic, b'{"given":"%b"}' % given.encode())
    assert all(peers[name].is_disconnected() for name in gone)
    assert resetting.server.waits_for(lambda log: log.count(RESET) > before)
    for name in peers.keys() - set(gone):
        peers[name].flush()
        assert peers[name].hears_nothing()
    for peer in peers.values():
        peer.socket.close()
    if gone:
        assert resetting.server.logs("entitlement reset")


def test_a_transport_that_does_not_exist_is_said(resetting: Resetting) -> None:
    """The step fails, and nobody is disconnected."""
    with resetting.log_on("asking") as peer:
        peer.publish("reset-transport", b'{"given":"nowhere"}')
        assert resetting.server.logs("there is no transport 'nowhere'")
        peer.flush()
