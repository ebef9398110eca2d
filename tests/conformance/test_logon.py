"""logon: who is there, and which message type do they speak."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, free_port, running_server

TRANSPORTS = """
<Transport><Name>nvfix-tcp</Name><Type>tcp</Type><InetAddr>127.0.0.1:{nvfix}</InetAddr>
  <Protocol>amps</Protocol><MessageType>nvfix</MessageType></Transport>
<Transport><Name>open-tcp</Name><Type>tcp</Type><InetAddr>127.0.0.1:{open}</InetAddr>
  <Protocol>amps</Protocol><MessageType>json</MessageType>
  <Authentication><Module>amps-implicit-authentication-module</Module></Authentication></Transport>
<Transport><Name>any-open-tcp</Name><Type>tcp</Type><InetAddr>127.0.0.1:{any_open}</InetAddr>
  <Protocol>amps</Protocol>
  <Authentication><Module>amps-implicit-authentication-module</Module></Authentication></Transport>
<Transport><Name>no-tcp</Name><Type>tcp</Type><InetAddr>127.0.0.1:{closed}</InetAddr>
  <Protocol>amps</Protocol>
  <Authentication><Module>amps-default-no-authentication-module</Module></Authentication></Transport>
<Transport><Name>unentitled-tcp</Name><Type>tcp</Type><InetAddr>127.0.0.1:{unentitled}</InetAddr>
  <Protocol>amps</Protocol>
  <Entitlement><Module>amps-default-no-entitlement-module</Module></Entitlement></Transport>
"""


def test_a_logon_is_acknowledged_with_name_sequence_bookmark_and_version(
    server: RunningServer,
) -> None:
    """The processed ack of a logon tells a client what the server knows of it."""
    with server.connect() as peer:
        ack = peer.log_on("pubber")
    assert ack.pop("version").startswith("5.3.5")
    hash_, sequence, rest = ack.pop("bm").split("|")
    assert (hash_.isdecimal(), sequence, rest) == (True, "0", "")
    assert ack == {
        "c": "ack",
        "cid": "logon",
        "s": 0,
        "client_name": "pubber",
        "a": "processed",
        "status": "success",
        "reason": "authentication disabled",
    }


def test_received_comes_before_processed(server: RunningServer) -> None:
    """Each kind of ack is sent that was asked for, in the order in which things happen."""
    with server.connect() as peer:
        peer.send({"c": "logon", "cid": "1", "mt": "json", "a": "processed,received"})
        assert [peer.receive_header()["a"] for _ in range(2)] == ["received", "processed"]


def test_a_logon_without_ack_is_answered_by_nothing(server: RunningServer) -> None:
    """Acks are sent only on request."""
    with server.connect() as peer:
        peer.send({"c": "logon", "cid": "1", "mt": "json"})
        assert peer.hears_nothing()
        peer.flush()


def test_a_second_logon_is_refused(server: RunningServer) -> None:
    """A connection logs on once, and goes on with what it has."""
    with server.log_on() as peer:
        ack = peer.log_on("another")
        assert (ack["status"], ack["reason"]) == ("failure", "already logged on")
        peer.flush()


def test_a_command_before_the_logon_is_refused_and_ends_the_connection(
    server: RunningServer,
) -> None:
    """Implicit logons are off by default."""
    with server.connect() as peer:
        ack = peer.subscribe("orders", "1")
        assert (ack["status"], ack["reason"]) == ("failure", "auth failure")
        assert peer.is_disconnected()


@pytest.mark.parametrize(
    "message_type", ["fix", "nvfix", "xml", "json", "bson", "bflat", "msgpack"]
)
def test_every_built_in_message_type_can_be_chosen(
    server: RunningServer, message_type: str
) -> None:
    """The types that AMPS loads by itself need no configuration."""
    with server.connect() as peer:
        assert peer.log_on(message_type=message_type)["status"] == "success"


@pytest.mark.parametrize("keys", [{}, {"mt": "jsn"}, {"mt": ""}])
def test_a_message_type_must_be_named_and_exist(
    server: RunningServer, keys: dict[str, str]
) -> None:
    """Where the transport leaves the choice, the client has to choose one that exists."""
    with server.connect() as peer:
        ack = peer.ask({"c": "logon", "cid": "1", "a": "processed"} | keys)
        assert (ack["status"], ack["reason"]) == ("failure", "invalid message type")
        assert "json" in ack["detail"] or "mt" in ack["detail"]


def test_transports_decide_on_types_logons_and_entitlements(tmp_path: Path) -> None:
    """A transport may fix the message type, and bring its own security modules."""
    ports = {name: free_port() for name in ("nvfix", "open", "any_open", "closed", "unentitled")}
    with running_server(tmp_path, transports=TRANSPORTS.format(**ports)):
        with RawPeer(ports["nvfix"]) as peer:
            assert peer.log_on(message_type="json")["reason"] == "invalid message type"
            assert peer.ask({"c": "logon", "a": "processed"})["status"] == "success"
        with RawPeer(ports["open"]) as peer:
            assert peer.subscribe("t", "1")["status"] == "success"
            peer.publish("t", b"{}")
            assert peer.receive()[0]["sids"] == "1"
        with RawPeer(ports["any_open"]) as peer:
            assert peer.subscribe("t", "1")["reason"] == "invalid message type"
            assert peer.log_on()["status"] == "success"
        with RawPeer(ports["closed"]) as peer:
            assert peer.log_on()["reason"] == "auth failure"
            assert peer.is_disconnected()
        with RawPeer(ports["unentitled"]) as peer:
            assert peer.log_on()["reason"] == "not entitled"
            assert peer.is_disconnected()


def test_a_pretty_connection_gets_binary_bodies_as_text(server: RunningServer) -> None:
    """MessagePack arrives as indented JSON; others get the bytes."""
    body = b"\x81\xa1a\x01"
    with server.connect() as pretty, server.log_on("plain", "msgpack") as plain:
        options = {"o": "pretty=true,ack_conflation=100ms"}
        ack = pretty.ask({"c": "logon", "mt": "msgpack", "a": "processed"} | options)
        assert ack["status"] == "success"
        for peer in (pretty, plain):
            peer.subscribe("binary", "1", f="/a = 1")
        plain.publish("binary", body)
        assert pretty.receive()[1] == b'{\n  "a": 1\n}'
        assert plain.receive()[1] == body


def test_a_malformed_logon_option_is_refused(server: RunningServer) -> None:
    """With the option and what was expected; the client may try again."""
    with server.connect() as peer:
        ack = peer.ask({"c": "logon", "mt": "json", "o": "ack_conflation=soon", "a": "processed"})
        assert (ack["status"], ack["reason"]) == ("failure", "invalid option")
        assert peer.log_on()["status"] == "success"
