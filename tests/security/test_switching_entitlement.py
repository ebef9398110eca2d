"""Entitlement switched off and on again, where permissions have limits."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Final

from tests.security.entitled import entitled_server
from tests.support.raw import RawPeer
from tests.support.server import RunningServer

LIMITS: Final = {"topic": ".*", "read": "/desk = 7", "select": "-/secret", "write": "/desk = 7"}
DOCUMENTS: Final = {
    "ann": {"logon": True, "topic": [{"topic": "closed", "read": False}, LIMITS]},
    "root": {"logon": True, "topic": [{"topic": ".*", "read": True, "write": True}]},
}


def switch(server: RunningServer, how: signal.Signals, state: str, times: int) -> None:
    """Switch authentication and entitlement, as the signal does by itself."""
    server.process.send_signal(how)
    assert server.logs(f"entitlement switched {state}", times)


def publish(peer: RawPeer, desk: int) -> str | None:
    """Publish a message; why it is refused."""
    command = {"c": "publish", "cid": "1", "t": "t", "a": "processed"}
    reason = peer.ask(command, b'{"desk":%d,"secret":1}' % desk).get("reason")
    return reason if reason is None else str(reason)


def publish_plainly(peer: RawPeer, desk: int) -> None:
    """Publish a message in a way that is remembered."""
    peer.publish("t", b'{"desk":%d,"secret":1}' % desk)
    peer.flush()


def heard(peer: RawPeer) -> tuple[str, int]:
    """The subscriptions that the next message is for, and its desk."""
    header, body = peer.receive()
    return header.get("sids") or header["sub_id"], json.loads(body)["desk"]


def test_limits_end_and_begin_again(tmp_path: Path) -> None:
    """What there is stays when entitlement is on again, and nobody is disconnected."""
    with (
        entitled_server(tmp_path, DOCUMENTS) as server,
        server.log_on("root", user_id="root") as root,
        server.log_on("ann", user_id="ann") as ann,
        server.log_on("reader", user_id="ann") as reader,
    ):
        reader.subscribe("t", "before")
        assert publish(ann, 8) == "not entitled"
        publish_plainly(ann, 8)
        switch(server, signal.SIGUSR1, "off", 1)
        reader.subscribe("t", "meanwhile")
        assert reader.subscribe("closed", "meanwhile-2")["status"] == "success"
        assert publish(ann, 8) is None
        publish_plainly(ann, 9)
        assert [heard(reader) for _ in range(2)] == [("meanwhile", 8), ("meanwhile", 9)]
        switch(server, signal.SIGUSR2, "on", 1)
        assert publish(ann, 8) == "not entitled"
        publish_plainly(ann, 9)
        assert reader.subscribe("closed", "after")["reason"] == "not entitled"
        reader.subscribe("t", "after")
        publish_plainly(root, 6)
        assert heard(reader) == ("meanwhile", 6)
        publish_plainly(root, 7)
        assert {reader.receive()[1], reader.receive()[1]} == {
            b'{"desk":7,"secret":1}',
            b'{"desk":7}',
        }
