"""A file cannot be flushed to stable storage for some time: its waiters are notified."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.recovery.large_messages import log_on
from tests.support.bad_disk import BadDisk
from tests.support.raw import RawPeer
from tests.support.server import running_server
from tests.support.sow import CHAINED_TOPIC, CHAINING

SOW: Final = f"""
<SOW>
  <Topic>
    <Name>aside</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>aside.sow</FileName>
  </Topic>
  {CHAINED_TOPIC}
</SOW>
{CHAINING}
"""
LOG: Final = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory>
  <JournalSize>10MB</JournalSize>
  <Topic><Name>events</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""

Outcome = tuple[int, str]


def publish(peer: RawPeer, topic: str, *sequences: int) -> None:
    """Publish messages in one go; they are to be acknowledged when they are safe."""
    for sequence in sequences:
        body = json.dumps({"id": sequence}).encode()
        peer.send({"c": "publish", "t": topic, "s": sequence, "a": "persisted"}, body)


def outcomes(peer: RawPeer, last: int) -> list[Outcome]:
    """What becomes of publishes, up to the one with a number."""
    found: list[Outcome] = []
    while not found or found[-1][0] != last:
        ack: dict[str, Any] = peer.receive_header()
        found.append((ack["s"], ack["status"]))
        if ack["status"] == "failure":
            assert ack["reason"] == "not stored"
            assert "cannot be flushed to stable storage: Input/output error" in ack["detail"]
    return found


@pytest.mark.parametrize("log", [LOG, ""], ids=["log", "no log"])
@pytest.mark.parametrize(
    ("topic", "file"),
    [("aside", "aside.sow"), ("chained", "chained.sow"), ("chained", "ids.chain")],
)
def test_a_sow_file_cannot_be_synchronised_for_a_while(
    tmp_path: Path, log: str, topic: str, file: str
) -> None:
    """Publishers hear of it, for each message; what they publish later is acknowledged as ever."""
    disk = BadDisk(tmp_path / "switch")
    with running_server(tmp_path, elements=SOW + log, prepare=disk) as server:
        with log_on(server) as peer, log_on(server, "other") as other:
            publish(peer, topic, 1)
            assert outcomes(peer, 1) == [(1, "success")]
            disk.break_down(file)
            publish(peer, topic, 2)
            assert outcomes(peer, 2) == [(2, "failure")]
            publish(peer, topic, 3, 4, 5)
            assert [one for one in outcomes(peer, 5) if one[1] == "failure"] == [
                (number, "failure") for number in (3, 4, 5)
            ]
            flush = {"c": "flush", "cid": "f", "a": "persisted"}
            assert peer.ask(flush)["status"] == "failure"
            publish(other, "events", 1)
            assert outcomes(other, 1) == [(1, "success")]
            delete = {"c": "sow_delete", "t": topic, "f": "/id = 5", "a": "persisted", "cid": "d"}
            assert peer.ask(delete)["status"] == "failure"
            disk.recover()
            assert server.logs("15-0013"), "it is tried again without anybody asking"
            publish(peer, "events", 6)
            publish(peer, topic, 7)
            publish(other, topic, 8)
            assert outcomes(peer, 7)[-1] == (7, "success")
            assert outcomes(other, 8) == [(8, "success")]
            assert peer.ask(flush)["status"] == "success"
        assert server.logs("15-0012", 1)
        disk.break_down(file)
        assert server.stop() == 0
        assert "Traceback" not in server.log()
