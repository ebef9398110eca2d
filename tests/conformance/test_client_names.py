"""Client names are unique within an instance that has a transaction log."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, module_server, running_server

USERS = """
<Authentication>
  <Module>amps-default-authentication-module</Module>
  <Options><AllowSpoofing>true</AllowSpoofing></Options>
</Authentication>
"""
LOG = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>^log-</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


server = module_server(USERS + LOG)


def log_on(peer: RawPeer, name: str, user: str = "", **keys: Any) -> dict[str, Any]:
    """Log on as a user, and give the ack."""
    header = {"c": "logon", "cid": "1", "client_name": name, "mt": "json", "a": "processed"}
    return peer.ask(header | ({"user_id": user} if user else {}) | keys)


def is_disconnected(peer: RawPeer) -> bool:
    """Whether the server closes a connection; what it says before is passed over."""
    try:
        while True:
            peer.receive()
    except (EOFError, ConnectionError):
        return True
    except TimeoutError:
        return False


@pytest.mark.parametrize("user", ["", "ann"])
def test_the_same_user_takes_over(server: RunningServer, user: str) -> None:
    """The older connection gives way, with all that it had; the log says why."""
    name = f"taken-{user}"
    with server.connect() as old, server.connect() as new, server.log_on("watcher") as watcher:
        watcher.subscribe("/AMPS/ClientStatus", "w", f=f"/ClientStatus/client_name = '{name}'")
        assert log_on(old, name, user)["status"] == "success"
        old.subscribe("log-a", "s", bm="0|1|")
        old.send({"c": "publish", "t": "log-a", "s": 7}, b"{}")
        assert old.receive()[0]["c"] == "p"
        ack = log_on(new, name, user)
        assert (ack["status"], ack["s"]) == ("success", 7)
        assert is_disconnected(old)
        new.subscribe("log-a", "s", bm="0")
        assert new.receive()[0]["bm"].endswith("|7|")
        events = [json.loads(watcher.receive()[1])["ClientStatus"] for _ in range(6)]
    assert [event["event"] for event in events] == [
        *("logon", "subscribe", "unsubscribe", "disconnect"),
        *("logon", "subscribe"),
    ]
    assert events[3]["reason"] == "name in use"
    assert server.logs(f"client[{name}] with user id: {user}")
    assert server.logs(f"client[{name}] disconnected. Reason: name in use")
    assert server.logs("warning: 02-0025")


@pytest.mark.parametrize(("holder", "other"), [("ann", "bob"), ("ann", ""), ("", "bob")])
def test_another_user_is_refused(server: RunningServer, holder: str, other: str) -> None:
    """Whoever has the name keeps it; it is free again when that connection is gone."""
    name = f"kept-{holder}-{other}"
    with server.connect() as old:
        assert log_on(old, name, holder)["status"] == "success"
        old.subscribe("log-b", "s")
        for _ in range(2):
            with server.connect() as new:
                ack = log_on(new, name, other)
                assert (ack["status"], ack["reason"]) == ("failure", "name in use")
                assert is_disconnected(new)
        old.send({"c": "publish", "t": "log-b"}, b"{}")
        assert old.receive()[0]["c"] == "p"
        assert server.logs("Reason: name in use")
        assert f"client[{name}] disconnected" not in server.log()
    assert server.logs(f"client[{name}] disconnected. Reason: connection closed")
    with server.connect() as new:
        assert log_on(new, name, other)["status"] == "success"


def test_of_many_who_come_at_once_one_remains(server: RunningServer) -> None:
    """The last one to be let in; all have been let in, one after the other."""
    peers = [server.connect() for _ in range(10)]
    acks: list[dict[str, Any]] = []

    def come(peer: RawPeer) -> None:
        acks.append(log_on(peer, "crowd"))

    threads = [threading.Thread(target=come, args=(peer,)) for peer in peers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [ack["status"] for ack in acks] == ["success"] * 10
    alive = []
    for peer in peers:
        try:
            peer.send({"c": "flush", "cid": "f", "a": "completed"})
            peer.receive()
            alive.append(peer)
        except (EOFError, ConnectionError):
            pass
        peer.socket.close()
    assert len(alive) == 1
    assert server.logs("client[crowd] disconnected. Reason: name in use", 9)


def test_without_a_log_names_need_not_be_unique(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Nothing depends on them."""
    with (
        running_server(tmp_path_factory.mktemp("server"), elements=USERS) as server,
        server.connect() as first,
        server.connect() as second,
    ):
        assert log_on(first, "same", "ann")["status"] == "success"
        assert log_on(second, "same", "bob")["status"] == "success"
        assert first.ask({"c": "flush", "cid": "f", "a": "completed"})["a"] == "completed"
